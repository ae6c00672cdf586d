"""`carso demo`: the shipped defence at work on images that ship with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from carso import data as data_sets
from carso.attacks.gradient import PGD, Model
from carso.deployed import Deployed, load
from carso.randomness import generator
from carso.report.figures import Purification, picture

BATCH = 50
"""Images attacked at once; small, so that progress shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of the demo's table."""

    images: str
    classifier: float
    """Accuracy of the classifier alone."""
    defence: float
    """Accuracy of the defence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demo:
    """What the demo found, and where it drew it."""

    eps: float
    count: int
    seed: int
    lines: tuple[Line, ...]
    picture: Path


def run(
    folder: Path,
    *,
    name: str = "fashion",
    count: int = 200,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Demo:
    """Attack the classifier, and then the whole defence, on `count` test images."""
    defence = load(name, seed=seed)
    threat = defence.scenario.threat
    images, labels = data_sets.load("fashion-embedded").test.balanced(count).batch(slice(None))
    through_classifier = PGD(steps=40, step_size=0.01)
    through_defence = PGD(steps=10, step_size=threat.eps / 4)

    def attacked(model: Model, attack: PGD) -> Tensor:
        parts = []
        for start in range(0, count, BATCH):
            part = slice(start, start + BATCH)
            source = generator(seed, "attack", start)
            parts.append(attack(model, images[part], labels[part], threat=threat, generator=source))
            advance(len(parts[-1]))
        return torch.cat(parts)

    transfer = attacked(defence.classifier, through_classifier)
    adaptive = attacked(defence.view("mean-logits"), through_defence)
    lines = tuple(
        Line(
            images=what,
            classifier=accuracy(classify(defence.classifier, batch), labels),
            defence=accuracy(classify(defence, batch), labels),
        )
        for what, batch in (
            ("clean", images),
            ("attacked through the classifier (PGD, 40 steps)", transfer),
            ("attacked through the whole defence (PGD, 10 steps, mean logits)", adaptive),
        )
    )
    path = folder / "candidates.png"
    draw(defence, images, transfer, labels, path)
    return Demo(eps=threat.eps, count=count, seed=seed, lines=lines, picture=path)


@torch.no_grad()
def classify(model: Model, images: Tensor) -> Tensor:
    """The labels that `model` gives, a batch at a time."""
    return torch.cat([model(part).argmax(dim=1) for part in torch.split(images, BATCH)])


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    return float((predicted == labels).float().mean())


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
