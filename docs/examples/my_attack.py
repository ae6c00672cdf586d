"""An attack of your own, in a suite beside one of ours.

python docs/examples/my_attack.py
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Generator, Tensor

import carso
from carso import data
from carso.attacks.attack import AttackFacts, Model, verified
from carso.attacks.margin import WorstSoFar
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import Effort, PlannedAttack, Suite, margin
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True)
class Stripes:
    """Lays random stripes over the image, and keeps what fools the model most. No gradients."""

    tries: int = 20

    facts = AttackFacts(black_box=True)
    """What an evaluation must know; the defaults are those of an attack that follows gradients."""

    def identity(self) -> dict[str, Any]:
        # A stopped evaluation goes on only with an attack that says the same here.
        return {"attack": "Stripes", **asdict(self)}

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        worst = WorstSoFar(model, images, labels)
        everyone = torch.arange(len(images), device=images.device)
        for _ in range(self.tries):
            rows = torch.randn(len(images), 1, images.shape[2], 1, generator=generator)
            stripes = rows.to(images.device).expand_as(images)
            found = threat.project(images + threat.ascend(stripes, threat.eps), images)
            worst.offer(found, everyone)
        return verified(worst.examples, images, threat)


def suite(tries: int = 20) -> Suite:
    """Stripes first, then the margin attack on what still stands."""
    mine = PlannedAttack(
        name="stripes",
        what=f"the worst of {tries} patterns of stripes",
        attack=Stripes(tries=tries),
        through=AttackedView(),
    )
    return Suite(
        name="stripes and margin",
        attacks=(mine, margin(20, 1, AttackedView())),
        effort=Effort(images=50, steps=15, queries=30, eps=(0.0, 1.0, 2.0)),
    )


def main(count: int = 100, **threat: Any) -> dict[str, Any]:
    """The record of a shipped classifier alone."""
    classifier = carso.load("fashion").classifier
    images, labels = data.load("fashion-embedded").test.balanced(count).batch(slice(None))
    return carso.evaluate(classifier, images, labels, suite=suite(), **(threat or {"eps": 0.1}))


if __name__ == "__main__":
    print(main()["verdict"])
