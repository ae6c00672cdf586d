"""The generated parts of the documents that are about hardening."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterable
from functools import partial
from typing import Any

from evaluation_parts import has_last_pass
from records import RESULTS, ROOT, WEIGHTS, record, table

HARDENED = (
    "fashion-hardened",
    "fashion-anchored-unet",
    "fashion-retrofit",
    "fashion-retrofit-unet",
    "convex-anchored-unet",
    "cifar10-small-hardened",
    "cifar10-resnet20-retrofit",
    "cifar10-retrofit",
)
GROUPS = {
    "around an adversarially trained classifier": (
        "fashion-bare-adaptive",
        "fashion-bare-standard",
        "fashion-hardened-adaptive",
        "fashion-baseline-adaptive",
        "fashion-anchored-unet-adaptive",
        "fashion-anchored-unet-baseline-adaptive",
    ),
    "around a classifier trained on clean images": (
        "fashion-retrofit-bare-standard",
        "fashion-retrofit-adaptive",
        "fashion-retrofit-baseline-adaptive",
        "fashion-retrofit-unet-adaptive",
        "fashion-retrofit-unet-baseline-adaptive",
        "fashion-retrofit-unet-baseline-by-time-adaptive",
    ),
    "around a network that others trained with a proof (Wong and Kolter), anchored": (
        "convex-anchored-unet-bare-adaptive",
        "convex-anchored-unet-adaptive",
        "convex-anchored-unet-baseline-adaptive",
    ),
    "around a small classifier of CIFAR-10": (
        "cifar10-small-bare-adaptive",
        "cifar10-small-bare-standard",
        "cifar10-small-hardened-adaptive",
        "cifar10-small-baseline-adaptive",
    ),
    "around a ResNet-20 of CIFAR-10 that others trained on clean images": (
        "cifar10-resnet20-retrofit-bare-standard",
        "cifar10-resnet20-retrofit-adaptive",
        "cifar10-resnet20-retrofit-baseline-adaptive",
    ),
    "around the ResNet-18 of CIFAR-10 inside `pyautoattack`, trained on clean images": (
        "cifar10-retrofit-bare-standard",
        "cifar10-retrofit-adaptive",
        "cifar10-retrofit-baseline-adaptive",
    ),
}
"""The records of hardened defences around one classifier, the classifier's own first."""
BASELINES = {
    "fashion-baseline-adaptive": "fashion-hardened-adaptive",
    "fashion-anchored-unet-baseline-adaptive": "fashion-anchored-unet-adaptive",
    "fashion-retrofit-baseline-adaptive": "fashion-retrofit-adaptive",
    "fashion-retrofit-unet-baseline-adaptive": "fashion-retrofit-unet-adaptive",
    "convex-anchored-unet-baseline-adaptive": "convex-anchored-unet-adaptive",
    "cifar10-small-baseline-adaptive": "cifar10-small-hardened-adaptive",
    "cifar10-resnet20-retrofit-baseline-adaptive": "cifar10-resnet20-retrofit-adaptive",
    "cifar10-retrofit-baseline-adaptive": "cifar10-retrofit-adaptive",
}
"""The record of a hardened defence whose gradient passes a fair baseline was given."""
BY_TIME = {"fashion-retrofit-unet-baseline-by-time-adaptive": "fashion-retrofit-unet-adaptive"}
"""The record of a hardened defence whose time on the clock a baseline was given."""


def title(name: str) -> str:
    """Of a line."""
    if "-bare-" in name:
        return "the classifier alone"
    if name in BASELINES:
        whose = title(BASELINES[name])
        return f"the classifier, trained on against attacks: the fair baseline of {whose}"
    if name in BY_TIME:
        return f"the same for as long as {title(BY_TIME[name])} took"
    return f"`{name.removesuffix('-adaptive')}`"


def present(names: Iterable[str]) -> list[str]:
    """Those that there is a record of."""
    return [name for name in names if (RESULTS / f"{name}.json").exists()]


def hardening() -> str:
    """Hardened defences beside their classifiers and the fair baselines."""
    from carso.report.record_tables import summary
    from carso.report.table_formats import as_markdown

    parts = []
    for where, names in GROUPS.items():
        found = [
            {**record(RESULTS / f"{name}.json"), "title": title(name)} for name in present(names)
        ]
        if found:
            parts += [f"{where[0].upper()}{where[1:]}:", as_markdown(summary(found))]
    return "\n\n".join([*parts, *not_alike()])


def not_alike() -> list[str]:
    """A word on groups whose records are of different states of the adaptive suite."""
    words = []
    for names in map(present, GROUPS.values()):
        adaptive = [name for name in names if name.endswith("-adaptive")]
        got = {name: has_last_pass(record(RESULTS / f"{name}.json")) for name in adaptive}
        if len(set(got.values())) > 1:
            without = ", ".join(f"`{name}`" for name, has in got.items() if not has)
            words.append(
                f"Of the records of one table, {without} did not get the last passes of the "
                "adaptive suite, and the others did: what they gain on those is partly that."
            )
    return words


def differences() -> str:
    """Hardened defences against their classifiers and fair baselines, image by image."""
    from carso.report.table_formats import Row, as_markdown

    baselines = {"its fair baseline": BASELINES, "the baseline of as much time": BY_TIME}
    rows: list[Row] = []
    for names in filter(None, map(present, GROUPS.values())):
        found = {name: record(RESULTS / f"{name}.json") for name in names}
        bare = next((name for name in names if "-bare-" in name), None)
        if bare is None:
            continue
        for hardened in (name for name in names if name in BASELINES.values()):
            others = {bare: "the classifier alone"} | {
                name: what
                for what, whose in baselines.items()
                for name in names
                if whose.get(name) == hardened
            }
            for other, what in others.items():
                both = found[hardened], found[other]
                cells = (difference(*both, how) for how in ("clean", "worst", "all draws"))
                suite = found[other]["suite"]["name"]
                if has_last_pass(found[other]) and not has_last_pass(found[hardened]):
                    suite += ", with last passes that the former did not get: too good for it"
                rows.append((f"{title(hardened)} minus {what}", suite, *cells))
    header: Row = ("difference", "attacks on the latter", "clean", "worst case", "on all draws")
    return as_markdown((header, rows))


def difference(first: dict[str, Any], second: dict[str, Any], how: str) -> str:
    """The paired difference of two records, of the clean images, of the mean of the draws on the
    worst examples, or of the images that are right on all of them."""
    import torch

    from carso.evaluation.statistics import paired_difference
    from carso.report.record_tables import outcomes, signed

    assert first["data"]["sha256"] == second["data"]["sha256"]

    def of(record: dict[str, Any]) -> torch.Tensor:
        right = outcomes(record, "clean_right" if how == "clean" else "worst_right")
        return (right == 1).double() if how == "all draws" else right

    return signed(paired_difference(of(first), of(second)))


def hardened_epochs() -> str:
    """The trainings of the shipped hardened defences, epoch by epoch."""
    parts = []
    for name in HARDENED:
        found = record(WEIGHTS / name / "hardening.json")
        passes = sum(row["gradient_passes"] for row in found["history"])
        count = found["scenario"]["hardening"]["validation_images"]
        rows = [
            f"| {int(row['epoch'])} | {row['loss']:.3f} | {row['reconstruction']:.1f} | "
            f"{row['training_accuracy']:.3f} | {row['validation_accuracy']:.3f} | "
            f"{row['validation_adaptive_accuracy']:.3f} | {row['images_per_second']:.0f} |"
            for row in found["history"]
        ]
        threads = found["provenance"]["hardware"]["threads"]
        parts += [
            f"`{name}`, {passes:.3g} gradient passes, {count} validation images, {threads} "
            f"thread{'s' if threads > 1 else ''} beside other work:",
            table(
                "| epoch | loss | reconstruction, nats | attacked in training | validation | "
                "attacked validation | images/s |",
                rows,
            ),
        ]
    return "\n\n".join(parts)


def anchors(name: str = "fashion-hardened") -> str:
    """The weights that were tried for the anchor of a hardened defence."""
    found = record(WEIGHTS / name / "anchor.json")
    rows = [
        f"| {row['anchor']:g}{', chosen' if row['anchor'] == found['anchor'] else ''} | "
        f"{row['clean']:.4f} | {row['attacked']:.3f} |"
        for row in found["tried"]
    ]
    count = found["images"]
    alone = f"{found['classifier_attacked']:.3f}" if "classifier_attacked" in found else ""
    return table(
        f"| weight | clean, {count['clean']} validation images | attacked, {count['attacked']} |",
        [f"| the classifier alone | {found['classifier_clean']:.4f} | {alone} |", *rows],
    )


def baselines() -> str:
    """Adversarial training that went on from a shipped classifier, epoch by epoch."""
    rows = []
    for path in sorted((RESULTS / "baselines").glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                name = path.stem.replace("-", " ")
                rows.append(
                    f"| {name} | {row['epoch']} | {float(row['loss']):.3f} | "
                    f"{float(row['validation_accuracy']):.3f} | "
                    f"{float(row['validation_pgd_accuracy']):.3f} |"
                )
    head = "| baseline | epoch | training loss | validation | under PGD of 10 steps |"
    return table(head, rows)


def weight(anchor: float | None) -> str:
    return "" if anchor is None else f", weight {anchor:g}"


def samples() -> str:
    """Accuracy under attack by number of candidates and by aggregation."""
    parts = []
    for path in sorted((RESULTS / "samples").glob("*.json")):
        found = record(path)
        rows = [
            f"| {row['aggregation']}{weight(row['anchor'])} | {row['samples']} | "
            f"{row['clean']:.3f} | {row['attacked']:.3f} |"
            for row in found["rows"]
        ]
        images = found["data"]
        parts += [
            f"`{found['name']}`, {images['images']} {images['split']} images of {images['set']}, "
            f"{found['attack']}, {found['draws']} draws; candidates differ by "
            f"{found['pixel_deviation']:.4f} per pixel:",
            table("| aggregation | N | clean | attacked |", rows),
        ]
    return "\n\n".join(parts)


def averaging() -> str:
    """Accuracy under attacks that average more candidates in a step."""
    rows = []
    for path in sorted((RESULTS / "averaging").glob("*.json")):
        found = record(path)
        images = found["data"]
        cells = [found["clean"], *found["rows"]]
        rows.append(
            f"| `{found['name']}` | {images['images']}, {images['set']} | "
            + " | ".join(f"{cell['mean']:.3f} ({cell['all']:.3f})" for cell in cells)
            + " |"
        )
    return table("| defence | validation images | clean | 1 candidate a step | 4 | 16 |", rows)


def trials() -> str:
    """What was tried around hardening, by the images that it was trained on."""
    groups: dict[str, list[str]] = {}
    for path in sorted((RESULTS / "trials").glob("*.json")):
        found = record(path)
        best, settings = found["best"], found["scenario"]["hardening"]
        alone = found.get("classifier_attacked")
        groups.setdefault(found["data"]["set"], []).append(
            f"| `{found['trial']['name']}` | {found['trial']['what']} | "
            f"{settings['validation_images']} | {best['training_accuracy']:.3f} | "
            f"{best['validation_accuracy']:.3f} | {best['validation_adaptive_accuracy']:.3f} | "
            f"{'' if alone is None else f'{alone:.3f}'} | "
            f"{int(best['epoch'])} of {len(found['history'])} | "
            f"{', '.join(f'{v:.3f}' for v in found.get('attacked_by_samples', {}).values())} |"
        )
    head = (
        "| trial | what | validation images | attacked in training | clean | attacked | "
        "classifier alone, attacked | best epoch | "
        "attacked, last epoch, judged by N = 1, 2, 4, 8, 16 |"
    )
    return "\n\n".join(f"On {name}:\n\n{table(head, rows)}" for name, rows in groups.items())


def layer_choice() -> str:
    """What a purifier gains from the layers that it reads, in two short epochs of hardening."""
    known = tomllib.loads((ROOT / "scripts" / "hardening_trials.toml").read_text(encoding="utf-8"))
    rows = []
    for trial in known["trial"]:
        _, _, rest = trial["name"].partition("layers.")
        if not rest:
            continue
        path = RESULTS / "trials" / f"{trial['name']}.json"
        cells = ["not run", *[""] * 3]
        if path.exists():
            found = record(path)
            best = found["best"]
            cells = [
                f"{best['validation_accuracy']:.3f}",
                f"{best['validation_adaptive_accuracy']:.3f}",
                f"{found['parameters'] / 1e6:.2f}",
                f"{found['processor_seconds'] / 60:.1f}",
            ]
        rows.append(f"| {rest.partition('.')[0]} | {trial['what']} | {' | '.join(cells)} |")
    head = (
        "| kind | layers | clean, 500 validation images | attacked | million parameters | "
        "processor minutes |"
    )
    return table(head, rows)


HARDENING_PARTS = {
    "hardening": hardening,
    "differences": differences,
    "hardened-epochs": hardened_epochs,
    "anchors": anchors,
    "anchors-cifar10-small-hardened": partial(anchors, "cifar10-small-hardened"),
    "baselines": baselines,
    "trials": trials,
    "layer-choice": layer_choice,
    "samples": samples,
    "averaging": averaging,
}
