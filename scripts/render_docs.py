"""Fills the generated parts of README, docs and model cards from committed records.

    python scripts/render_docs.py            write
    python scripts/render_docs.py --check    exit 1 if something is not up to date

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import math
import re
import sys
from datetime import datetime
from functools import partial
from pathlib import Path

from benchmark_parts import BENCHMARK_PARTS
from hardening_parts import (
    GROUPS,
    HARDENED,
    anchors,
    baselines,
    differences,
    hardened_epochs,
    hardening,
    refutations,
    samples,
    trials,
)
from records import FASHION, RESULTS, ROOT, WEIGHTS, in_one_line, record, table
from reproduced_parts import REPRODUCED_PARTS
from scale_parts import SCALE_PARTS

from carso.storage import files


def demo() -> str:
    """The demo's table, as the command prints it."""
    from carso.demo import RECORDS
    from carso.demo import table as lines_of
    from carso.report.table_formats import as_text

    lines = as_text(lines_of([record(RESULTS / "demo" / f"{name}.json") for name in RECORDS]))
    return "\n".join(["```", *lines, "```"])


def demo_beside() -> str:
    """What the adaptive suite leaves of the images of the demo."""
    shown = {
        "classifier": ("fashion-bare-adaptive", "the robust classifier"),
        "hardened": ("fashion-hardened-adaptive", "the hardened defence around it"),
        "adaptive": ("fashion-adaptive", "the paper's"),
        "retrofit": ("fashion-retrofit-adaptive", "the retrofit"),
    }
    words = []
    for short, (name, what) in shown.items():
        one, long = record(RESULTS / "demo" / f"{short}.json"), record(RESULTS / f"{name}.json")
        count = one["data"]["count"]
        assert one["images"]["label"] == long["images"]["label"][:count]
        right = sum(long["images"]["worst_right"][:count]) / count / long["suite"]["draws"]
        words.append(f"{right:.3f} to {what}")
    return (
        f"Of the same {count} images the adaptive suite leaves {', '.join(words[:-1])}, and "
        f"{words[-1]}: the short attacks leave some of them too much."
    )


def recipe() -> str:
    """What is shorter than in the paper's own scenarios."""
    from carso.scenario.parser import read

    ours, theirs = (read(name).purifier for name in ("fashion", "cifar10"))
    kept = "kept" if ours.attacks.bank != "off" else "made anew"
    return (
        f"Its training has {ours.training.epochs} epochs, on attacks of {ours.attacks.steps} "
        f"steps that are {kept}; the paper's has {theirs.training.epochs}, on attacks of "
        f"{theirs.attacks.steps} steps made anew."
    )


def paper_hint() -> str:
    """What the paper's own table of aggregations says."""
    from carso.reproduction import published

    row = {"dataset": "cifar10"}

    def said(key: str) -> str:
        return f"{published.value('aggregation', row, key):.4f}"

    return (
        "The paper's own tables point there: on CIFAR-10, with the mean of the logits in place of "
        f"the double exponential, clean accuracy is {said('mean_logits_clean')} instead of "
        f"{said('carso_clean')}, and robust accuracy {said('mean_logits_randaa')} instead of "
        f"{said('carso_randaa')}. In size ours differs: masked more completely, weakened less "
        "([the tables](docs/results.md))."
    )


EVALUATIONS = (
    "fashion-bare-adaptive",
    "fashion-randaa-released",
    "fashion-adaptive",
)


def evaluations() -> str:
    """The records of the shipped defence, one line each."""
    from carso.report.record_tables import summary
    from carso.report.table_formats import as_markdown

    found = [record(RESULTS / f"{name}.json") for name in EVALUATIONS]
    return as_markdown(summary(found))


def verdicts() -> str:
    """What the records say of themselves."""
    found = {name: record(RESULTS / f"{name}.json") for name in EVALUATIONS}
    return "\n".join(f"- `{name}.json`: {one['verdict']}" for name, one in found.items())


def adaptive() -> str:
    """Attack by attack."""
    from carso.report.record_tables import attacks, diagnostics
    from carso.report.table_formats import as_markdown

    found = record(RESULTS / "fashion-adaptive.json")
    command, seed = found["provenance"]["command"], found["seed"]
    seconds, threads = found["provenance"]["seconds"], found["provenance"]["hardware"]["threads"]
    return "\n\n".join(
        [
            f"`{command}`, seed {seed}, {math.ceil(seconds / 60)} minutes with {threads} thread"
            f"{'s' if threads > 1 else ''}.",
            as_markdown(attacks(found)),
            as_markdown(diagnostics(found)),
        ]
    )


def older() -> str:
    """Which records of defences under the adaptive suite lack its newest attack."""
    names, unconfirmed = [], []
    for path in sorted(RESULTS.glob("*adaptive*.json")):
        found = record(path)
        attacks = {attack["name"] for attack in found["attacks"]}
        if found["subject"]["kind"] == "defence" and "margin@classifier" not in attacks:
            names.append(f"`{path.stem}`")
            if found["provenance"]["revision"][:7] in UNCONFIRMED:
                unconfirmed.append(names[-1])
    if not names:
        return "All records of defences under the adaptive suite are of the suite as it is now."
    return (
        f"Not all records are of the suite as it is now. The attack `margin@classifier` is not in "
        f"{', '.join(names)}. Of these, {', '.join(unconfirmed) or 'none'} took an image for "
        "broken after five wrong draws, where now fifteen more must agree, which leaves the worst "
        "case a little too good in the mean of the draws; what is right on all draws is hardly "
        "touched by that."
    )


UNCONFIRMED = ("84108d4", "8afb1ec", "d31a2aa", "bd685fb")
"""Revisions of records that were made before fresh draws had to confirm that an image is broken."""


def accuracies() -> str:
    """The shipped weights' accuracies and provenance."""
    found = record(FASHION / "accuracies.json")
    rows = []
    for name in ("validation", "test"):
        part = found[name]
        rows.append(
            f"| {name} | {part['images']} | {part['classifier']:.4f} | {part['defence']:.4f} | "
            f"{part['classifier_under_pgd']:.4f} ({part['images_under_pgd']} images) |"
        )
    head = "| images | count | classifier, clean | defence, clean | classifier under PGD |"
    about = f"PGD: {found['attack']}. Seed {found['seed']}, N = {found['samples']}."
    return f"{table(head, rows)}\n\n{about}"


def provenance(name: str = "fashion") -> str:
    """Where the weights of a shipped defence come from."""
    rows = []
    folder = WEIGHTS / name
    for part in ("classifier", "purifier", "hardening"):
        if not (folder / f"{part}.json").exists():
            continue
        found = record(folder / f"{part}.json")
        made = found["provenance"]
        rows.append(
            f"| {part} | `{found['sha256'][:16]}…` | {len(found['history'])} epochs on "
            f"{found['data']['training_images']} images of {found['data']['name']} "
            f"(`{found['data']['fingerprint'][:16]}…`) | {found['scenario']['seed']} | "
            f"`{made['revision'][:12]}` | {made['versions']['torch']} |"
        )
    return table("| part | SHA-256 of the file | trained | seed | revision | torch |", rows)


def history() -> str:
    """Validation accuracy of the classifier, epoch by epoch."""
    found = record(FASHION / "classifier.json")
    rows = [
        f"| {int(row['epoch'])} | {row['loss']:.4f} | {row['validation_accuracy']:.4f} | "
        f"{row['validation_pgd_accuracy']:.3f} |"
        for row in found["history"]
    ]
    return table("| epoch | training loss | validation | under PGD |", rows)


def lab_purifier() -> str:
    found = record(FASHION / "purifier.json")
    rows = [
        f"| {int(row['epoch'])} | {row['reconstruction']:.1f} | {row['kl']:.3f} | "
        f"{row['beta']:g} | {row['validation_accuracy']:.3f} | "
        f"{row['validation_transfer_accuracy']:.3f} |"
        for row in found["history"]
    ]
    return table(
        "| epoch | reconstruction, nats | KL, nats | beta | validation, N = 1 | "
        "attacked through the classifier |",
        rows,
    )


def subset() -> str:
    """How long the default takes on the embedded images, from the records of such a run."""
    folder = RESULTS / "fashion-embedded"
    classifier, purifier, found = (
        record(folder / f"{name}.json") for name in ("classifier", "purifier", "accuracies")
    )
    made = [datetime.fromisoformat(part["provenance"]["made"]) for part in (classifier, found)]
    seconds = sum(row["seconds"] for row in classifier["history"])
    seconds += (made[1] - made[0]).total_seconds()  # bank, purifier and final measurements
    threads = purifier["provenance"]["hardware"]["threads"]
    return (
        f"On the embedded subset, the classifier and the paper's purifier of `fashion` took "
        f"{math.ceil(seconds / 60)} minutes with {threads} threads (hardening comes after them); "
        f"the classifier then has a test accuracy of "
        f"{found['test']['classifier']:.3f}, and {found['test']['classifier_under_pgd']:.3f} "
        f"under PGD, the defence {found['test']['defence']:.3f} on clean images (records in "
        "`docs/results/fashion-embedded`, with the scenario: `fashion` without hardening)."
    )


PARTS = {
    "hardening": hardening,
    "differences": differences,
    "hardened-epochs": hardened_epochs,
    "anchors": anchors,
    "anchors-cifar10-small-hardened": partial(anchors, "cifar10-small-hardened"),
    "baselines": baselines,
    "trials": trials,
    "samples": samples,
    "refutations": refutations,
    "demo": demo,
    "demo-beside": demo_beside,
    "accuracies": accuracies,
    "provenance": provenance,
    **{f"provenance-{name}": partial(provenance, name) for name in HARDENED},
    "history": history,
    "subset": subset,
    "recipe": recipe,
    "paper-hint": paper_hint,
    "evaluations": evaluations,
    "verdicts": verdicts,
    "adaptive": adaptive,
    "older-records": older,
    "lab-purifier": lab_purifier,
    **SCALE_PARTS,
    **BENCHMARK_PARTS,
    **REPRODUCED_PARTS,
}
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "lab_log.md",
    ROOT / "docs" / "evaluation.md",
    ROOT / "docs" / "hardening.md",
    ROOT / "docs" / "scale.md",
    ROOT / "docs" / "performance.md",
    ROOT / "docs" / "results.md",
    FASHION / "README.md",
    *(WEIGHTS / name / "README.md" for name in HARDENED),
)


def rendered(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- begin {name} -->\n{PARTS[name]()}\n<!-- end {name} -->"

    return re.sub(r"<!-- begin ([\w-]+) -->.*?<!-- end \1 -->", fill, text, flags=re.DOTALL)


def reports() -> dict[Path, str]:
    """The page and the tables of the records."""
    from carso.report.write import rendered_files

    names = dict.fromkeys([*EVALUATIONS, *(name for group in GROUPS.values() for name in group)])
    paths = [RESULTS / f"{name}.json" for name in names]
    return rendered_files([path for path in paths if path.exists()], RESULTS)


def main() -> None:
    wanted = {page: rendered(page.read_text(encoding="utf-8")) for page in PAGES} | reports()
    stale = [
        path
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    checking = "--check" in sys.argv
    for path in stale:
        if not checking:
            files.write_text(path, wanted[path])
        print(f"{'stale' if checking else 'written'}: {path.relative_to(ROOT)}")
    sys.exit(1 if stale and checking else 0)


if __name__ == "__main__":
    in_one_line(main)
