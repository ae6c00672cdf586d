"""`carso demo`: what a published protocol sees of the paper's defence, and what an attacker sees.

Three short evaluations on images that ship with the package: the classifier alone; the defence
attacked as published protocols do, by examples made for the classifier and through the log-odds
that the released code computes; the same defence attacked through its mean logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carso import data as data_sets
from carso.attacks.gradient import Model
from carso.attacks.saved import read_examples
from carso.deployed import Deployed, folder_of, load
from carso.evaluation.evaluate import evaluate, silent
from carso.evaluation.named import posterior_kl
from carso.evaluation.plan import Effort, Suite, apgd, saved_examples
from carso.evaluation.protocol import Counted
from carso.evaluation.record import write
from carso.evaluation.statistics import percent
from carso.evaluation.subject import Through
from carso.evaluation.suites import quick
from carso.report import write_page
from carso.report.figures import Purification, picture
from carso.report.tables import Row, Table, interval

EFFORT = Effort(images=40, steps=10, queries=20, eps=(0.0, 1.0, 2.0))
EXAMPLES = "classifier-examples.safetensors"
RECORDS = ("classifier", "published", "adaptive")
"""The names of the three records in the demo's folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demo:
    """What the demo found, and where it drew it."""

    records: tuple[dict[str, Any], ...]
    picture: Path
    page: Path


WHAT = (
    "the classifier alone",
    "CARSO, as published protocols attack it",
    "CARSO, attacked through its mean logits",
)
"""What the three records are of."""


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
            apgd("ce", 10, Through(view="released")),
        ),
        effort=EFFORT,
        independent=True,
    )


def run(
    folder: Path,
    *,
    name: str = "fashion",
    count: int = 100,
    seed: int = 0,
    counted: Counted = silent,
) -> Demo:
    """The three evaluations on `count` test images, a picture, and the page of all three."""
    defence = load(name, seed=seed)
    data = data_sets.load("fashion-embedded")
    images, labels = data.test.balanced(count).batch(slice(None))
    about = {
        "data": {"set": data.name, "split": "test", "fingerprint": data.fingerprint},
        "posterior_kl": posterior_kl(folder_of(name)),
    }

    def evaluated(
        model: torch.nn.Module, title: str, suite: Suite, **settings: Any
    ) -> dict[str, Any]:
        return evaluate(
            model, images, labels, eps=defence.scenario.threat.eps, suite=suite, seed=seed,
            name=name, classes=defence.classes, counted=counted, about={**about, "title": title},
            **settings,
        )  # fmt: skip

    examples = folder / EXAMPLES
    alone, published, known = WHAT
    classifier = evaluated(defence.classifier, alone, short_attacks(seed), save_examples=examples)
    records = (
        classifier,
        evaluated(defence, published, published_attacks(examples)),
        evaluated(defence, known, short_attacks(seed)),
    )
    drawn = folder / "candidates.png"
    draw(defence, images, read_examples(examples)["examples"], labels, drawn)
    for record, kind in zip(records, RECORDS, strict=True):
        write(folder / f"{kind}.json", record)
    page = folder / "index.html"
    write_page(records, page)
    return Demo(records=records, picture=drawn, page=page)


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
    for what, record in zip(WHAT, records, strict=True):
        rows.append(
            (
                what,
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


@torch.no_grad()
def classify(model: Model, images: Tensor) -> Tensor:
    """The labels that `model` gives, a batch at a time."""
    return torch.cat([model(part).argmax(dim=1) for part in torch.split(images, 50)])


def draw(defence: Deployed, images: Tensor, attacked: Tensor, labels: Tensor, path: Path) -> None:
    """The first images that the attack makes the classifier mistake and the defence does not."""
    seen, answered = classify(defence.classifier, attacked), classify(defence, attacked)
    telling = ((seen != labels) & (answered == labels)).nonzero().flatten()
    chosen = (telling if len(telling) >= 3 else torch.arange(len(labels)))[:3]
    candidates = defence.purify(attacked[chosen])  # (N, 3, C, H, W)
    rows = [
        Purification(
            image=images[i],
            attacked=attacked[i],
            candidates=candidates[:, row],
            truth=defence.classes[labels[i]],
            seen=defence.classes[seen[i]],
            answered=defence.classes[answered[i]],
        )
        for row, i in enumerate(chosen.tolist())
    ]
    picture(rows, path, eps=defence.scenario.threat.eps)
