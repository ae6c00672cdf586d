"""Whether an attack finds more when it averages more candidates in a step.

    python scripts/try_averaging.py docs/results/averaging RUN... [--classifier FILE] [--images 100]

Each RUN is the folder of a run or a shipped name. Validation images are attacked through the mean
logits, 40 steps on the margin, with 1, 4 and 16 candidates averaged in each step, and judged on
five draws of the defence. Where more candidates find more, an attack of one candidate, such as that
of a hardening and of its validation, is blinded by the defence's own noise.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from records import in_one_line
from torch import Tensor

import carso
from carso.attacks.margin import Margin
from carso.defence.on_disk import Deployed
from carso.randomness import generator
from carso.storage import files
from carso.storage.provenance import provenance
from carso.training.train import load_data

CANDIDATES = (1, 4, 16)
ATTACK = Margin(steps=40)
DRAWS = 5
PART = 50


def attacked(defence: Deployed, images: Tensor, labels: Tensor, candidates: int) -> Tensor:
    source = generator(0, "averaging")
    view = defence.view("mean-logits", samples=candidates)
    parts = zip(torch.split(images, PART), torch.split(labels, PART), strict=True)
    threat = defence.scenario.threat
    return torch.cat([ATTACK(view, x, y, threat=threat, generator=source) for x, y in parts])


def judged(defence: Deployed, images: Tensor, labels: Tensor) -> dict[str, float]:
    """The share of draws that are right, and of images that all draws get right."""
    defence.seed(0)
    right = torch.stack([defence.predict(images) == labels for _ in range(DRAWS)]).double()
    return {"mean": float(right.mean()), "all": float(right.min(dim=0).values.mean())}


def measured(name: str, defence: Deployed, count: int) -> dict[str, Any]:
    data = load_data(defence.scenario, None)
    images, labels = data.validation.balanced(count).batch(slice(None))
    rows = [
        {
            "candidates": number,
            **judged(defence, attacked(defence, images, labels, number), labels),
        }
        for number in CANDIDATES
    ]
    return {
        "name": Path(name).name,
        "data": {"set": data.name, "split": "validation", "images": count},
        "attack": {"steps": ATTACK.steps, "eps": defence.scenario.threat.eps, "seed": 0},
        "draws": DRAWS,
        "clean": judged(defence, images, labels),
        "rows": rows,
        "provenance": provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("run", nargs="+")
    parser.add_argument("--classifier", type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for run in given.run:
        own = None if given.classifier is None else carso.load_classifier(given.classifier)
        defence = carso.load(run, classifier=own, seed=0)
        files.write_json(given.out / f"{Path(run).name}.json", measured(run, defence, given.images))


if __name__ == "__main__":
    in_one_line(main)
