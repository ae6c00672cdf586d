"""What a diagnosis looks at, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from carso.attacks.gradient import Attack
from carso.evaluation.attacked_model import Through
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.protocol import Battle
from carso.threats.linf import Linf

SLACK = 0.02
"""Two points of accuracy, and one image: less is no finding."""


def slack(count: int) -> float:
    """The difference of accuracies on `count` images that is no finding."""
    return SLACK + 1 / count


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """One finding; `ok` is None where there is nothing to pass or fail."""

    name: str
    ok: bool | None
    verdict: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What the diagnostics look at: the case, the plan and the battle's outcome."""

    case: Evaluation
    plan: Suite
    battle: Battle
    training_kl: float | None
    """The posterior's KL at the end of training, in nats, where the record of it is known."""

    @property
    def count(self) -> int:
        return min(self.plan.effort.images, len(self.case.images))

    @property
    def images(self) -> Tensor:
        return self.case.images[: self.count]

    @property
    def labels(self) -> Tensor:
        return self.case.labels[: self.count]

    @property
    def reached(self) -> float:
        """The accuracy that the attacks left of the examined images."""
        return float(self.battle.final.right[: self.count].double().mean()) / self.case.draws

    @property
    def mean(self) -> Through:
        return Through(samples=self.case.samples)

    def under(self, attack: Attack, through: Through, occasion: str, threat: Linf) -> float:
        """Accuracy of the examined images under one more attack."""
        examples, _ = self.case.attacked(
            attack, through, self.images, self.labels, "diagnosis", occasion, threat=threat
        )
        judged = self.case.judged(examples, self.labels, "diagnosis", occasion)
        return self.case.accuracy(judged)
