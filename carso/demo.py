"""`carso demo`: a classifier that an attack takes to nothing, the same classifier behind a hardened
purifier, and how the paper's defence fares under published attacks and under better ones.

Six short evaluations on images that ship with the package: a classifier trained on clean images;
that one, untouched, behind a hardened purifier; an adversarially trained classifier; the paper's
defence around it, attacked in short by examples made for the classifier and, as published protocols
do, through the log-odds that the released code computes, then through its mean logits; a hardened
purifier around the same classifier. Last, a few images are certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carso import data as data_sets
from carso.attacks.saved import read_examples
from carso.certification.certify import certify
from carso.defence.on_disk import Deployed, load
from carso.defence.shipped import folder_of
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.by_name import posterior_kl
from carso.evaluation.evaluate import evaluate, silent
from carso.evaluation.planned_attacks import Effort, Suite, apgd, saved_examples
from carso.evaluation.protocol import Counted
from carso.evaluation.record import write
from carso.evaluation.statistics import percent
from carso.evaluation.suites import quick
from carso.report.figures import Purification, picture
from carso.report.record_tables import interval
from carso.report.table_formats import Row, Table
from carso.report.write import write_page
from carso.storage import files

EFFORT = Effort(images=24, steps=10, queries=20, eps=(0.0, 1.0, 2.0))
RETROFIT, ROBUST = "fashion-retrofit-unet", "fashion"
"""The defences whose classifiers are trained on clean images, and against attacks."""
CERTIFIED, CERTIFIED_IMAGES, CERTIFIED_DRAWS = "fashion-certified", 10, 500
"""Of the line about certificates."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One of the evaluations."""

    record: str
    """Its name in the demo's folder."""
    what: str
    defence: str
    """A shipped name."""
    bare: bool = False
    """The classifier alone."""
    published: bool = False
    """Attacked as published protocols do, not through the mean logits."""


SCENES = (
    Scene("clean-classifier", "a classifier trained on clean images", RETROFIT, bare=True),
    Scene("retrofit", "the same classifier, untouched, behind a hardened purifier", RETROFIT),
    Scene("classifier", "a classifier trained against attacks", ROBUST, bare=True),
    Scene(
        "published", "the paper's purifier around it, attacked as published", ROBUST, published=True
    ),
    Scene("adaptive", "the paper's purifier, attacked through its mean logits", ROBUST),
    Scene("hardened", "a hardened purifier instead, attacked in the same way", "fashion-hardened"),
)
RECORDS = tuple(scene.record for scene in SCENES)
"""The names of the records in the demo's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demo:
    """What the demo found, and where it drew it."""

    records: tuple[dict[str, Any], ...]
    certified: dict[str, Any]
    """The record of a few certificates."""
    picture: Path
    page: Path


def short_attacks(seed: int) -> Suite:
    """The suite `quick` with fewer diagnostics: through logits, the mean ones of a defence."""
    return replace(quick(seed, samples=1), name="quick, fewer diagnostics", effort=EFFORT)


def published_attacks(examples: Path) -> Suite:
    """What published protocols attack, shortened: the classifier, and the released log-odds."""
    return Suite(
        name="short, as published",
        attacks=(
            replace(
                saved_examples(examples),
                name="made-for-the-classifier",
                what="the examples that the attacks made for the classifier alone",
            ),
            apgd("ce", 10, AttackedView(name="released")),
        ),
        effort=EFFORT,
        independent=True,
    )


def run(
    folder: Path,
    *,
    count: int = 100,
    seed: int = 0,
    device: torch.device | str = "cpu",
    counted: Counted = silent,
) -> Demo:
    """The evaluations on `count` test images, a picture, and the page of them all."""
    data = data_sets.load("fashion-embedded")
    images, labels = data.test.balanced(count).batch(slice(None))
    records: list[dict[str, Any]] = []
    for scene in SCENES:
        defence = load(scene.defence, seed=seed, device=device)
        made_for_classifier = examples_of(folder, "classifier")
        suite = published_attacks(made_for_classifier) if scene.published else short_attacks(seed)
        records.append(
            evaluate(
                defence.classifier if scene.bare else defence,
                images,
                labels,
                threat=defence.scenario.threat,
                suite=suite,
                seed=seed,
                device=device,
                name=scene.defence,
                classes=defence.classes,
                counted=counted,
                about={
                    "data": {"set": data.name, "split": "test", "fingerprint": data.fingerprint},
                    "posterior_kl": posterior_kl(folder_of(scene.defence)),
                    "title": scene.what,
                },
                save_examples=examples_of(folder, scene.record),
            )
        )
        write(folder / f"{scene.record}.json", records[-1])
    certified = certificates(images, labels, folder, seed=seed, device=device, counted=counted)
    drawn = folder / "candidates.png"
    attacked = read_examples(examples_of(folder, "retrofit")).examples
    draw(load(RETROFIT, seed=seed, device=device), images, attacked.to(device), labels, drawn)
    page = folder / "index.html"
    write_page(records, page)
    return Demo(records=tuple(records), certified=certified, picture=drawn, page=page)


def certificates(
    images: Tensor,
    labels: Tensor,
    folder: Path,
    *,
    seed: int,
    device: torch.device | str,
    counted: Counted,
) -> dict[str, Any]:
    """The record of the first few images' certificates: few draws, and so small radii."""
    defence = load(CERTIFIED, seed=seed, device=device)
    assert defence.scenario.hardening is not None
    few = slice(0, CERTIFIED_IMAGES)
    record = certify(
        defence, images[few], labels[few], sigma=defence.scenario.hardening.sigma,
        draws=CERTIFIED_DRAWS, name=CERTIFIED, seed=seed, device=device, counted=counted,
    )  # fmt: skip
    files.write_json(folder / "certified.json", record)
    return record


def examples_of(folder: Path, record: str) -> Path:
    """Where the worst examples of a scene are kept."""
    return folder / f"{record}-examples.safetensors"


def table(records: Sequence[dict[str, Any]]) -> Table:
    """The demo's table."""
    first = records[0]
    header = (
        f"{first['data']['count']} test images, eps = {first['threat']['eps']:g}, seed "
        f"{first['seed']}",
        "clean",
        "under attack",
        "useless gradients",
        "diagnostics",
    )
    rows: list[Row] = []
    for scene, record in zip(SCENES, records, strict=True):
        rows.append(
            (
                scene.what,
                f"{record['accuracy']['clean']['value']:.3f}",
                interval(record["accuracy"]["worst"]),
                percent(max(useless(attack["gradients"]) for attack in record["attacks"])),
                "UNRELIABLE" if record["unreliable"] else "no objection",
            )
        )
    return header, rows


def useless(gradients: dict[str, float]) -> float:
    """The share of gradients that an attack cannot follow."""
    return gradients["nan"] + gradients["infinite"] + gradients["zero"]


def draw(defence: Deployed, images: Tensor, attacked: Tensor, labels: Tensor, path: Path) -> None:
    """The first images attacked through the whole defence that its classifier alone mistakes and
    the defence does not; `attacked` is where the defence is."""
    found = defence.explain(attacked)
    seen, answered = found.own_labels.cpu(), found.labels.cpu()
    telling = ((seen != labels) & (answered == labels)).nonzero().flatten()
    chosen = (telling if len(telling) >= 3 else torch.arange(len(labels)))[:3]
    rows = [
        Purification(
            image=images[i],
            attacked=attacked[i].cpu(),
            candidates=found.candidates[:, i].cpu(),
            truth=defence.classes[labels[i]],
            seen=defence.classes[seen[i]],
            answered=defence.classes[answered[i]],
        )
        for i in chosen.tolist()
    ]
    picture(rows, path, eps=defence.scenario.threat.eps)
