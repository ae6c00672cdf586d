"""Accuracy under attack against the number of candidates, and by aggregation.

    python scripts/try_samples.py docs/results/samples NAME... [--images 300] [--threads 1]

Each NAME is a shipped defence (or the folder of a run). Validation images of its data set are
attacked through the mean logits, one candidate a step (40 steps on the margin); the examples are
then judged with every number of candidates and every aggregation. The anchored ones see other mean
logits at each weight, so for each weight the images are attacked anew.
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

SAMPLES = (1, 2, 4, 8, 16)
PLAIN = ("mean-logits", "double-exponential", "mean-probabilities", "majority-vote")
WEIGHTS = (0.5, 1.0, 2.0, 4.0)
ATTACK = Margin(steps=40)
DRAWS = 5


def attacked(defence: Deployed, images: Tensor, labels: Tensor) -> Tensor:
    source = generator(0, "samples")
    view = defence.view("mean-logits", samples=1)
    parts = zip(torch.split(images, 100), torch.split(labels, 100), strict=True)
    threat = defence.scenario.threat
    return torch.cat([ATTACK(view, x, y, threat=threat, generator=source) for x, y in parts])


def accuracy(defence: Deployed, images: Tensor, labels: Tensor) -> float:
    """Over several draws; a majority vote that ties is decided by the first of its classes."""
    right = [
        (defence.predict(part) == answers).double().mean() * len(part)
        for _ in range(DRAWS)
        for part, answers in zip(torch.split(images, 100), torch.split(labels, 100), strict=True)
    ]
    return float(sum(right)) / DRAWS / len(images)


def judged(defence: Deployed, clean: Tensor, worst: Tensor, labels: Tensor) -> dict[str, Any]:
    return {
        "aggregation": defence.aggregation,
        "anchor": defence.anchor if defence.aggregation == "anchored" else None,
        "samples": defence.samples,
        "clean": accuracy(defence, clean, labels),
        "attacked": accuracy(defence, worst, labels),
    }


def run(name: str, count: int) -> dict[str, Any]:
    defence = carso.load(name)
    own, samples = (defence.aggregation, defence.anchor), defence.samples
    data = load_data(defence.scenario, None)
    images, labels = data.validation.balanced(count).batch(slice(None))
    rows = []
    worst = attacked(defence, images, labels)
    for number in SAMPLES:
        defence.samples = number
        rows.append(judged(defence, images, worst, labels))
    with torch.no_grad():
        defence.samples = 16
        deviation = float(defence.purify(worst[:100]).std(dim=0).mean())
    defence.samples, defence.aggregation = samples, "mean-logits"
    worst = attacked(defence, images, labels)
    for aggregation in PLAIN:
        defence.aggregation = aggregation
        rows.append(judged(defence, images, worst, labels))
    if own[0] == "anchored":
        defence.aggregation = "anchored"
        for weight in WEIGHTS:
            defence.anchor = weight
            worst = attacked(defence, images, labels)
            rows.append(judged(defence, images, worst, labels))
    return {
        "name": name,
        "data": {"set": data.name, "split": "validation", "images": count},
        "attack": f"margin, {ATTACK.steps} steps, one candidate a step, seed 0",
        "draws": DRAWS,
        "pixel_deviation": deviation,
        "rows": rows,
        "provenance": provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for name in given.names:
        files.write_json(given.folder / f"{Path(name).name}.json", run(name, given.images))


if __name__ == "__main__":
    in_one_line(main)
