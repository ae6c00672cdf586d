"""What a diagnosis looks at, and what it says."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from carso.attacks.attack import Attack
from carso.attacks.margin import Margin
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.protocol import AttackResults
from carso.threats.threat import Threat

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
class DiagnosticContext:
    """What the diagnostics look at: the evaluation, its attacks and what they did."""

    evaluation: Evaluation
    plan: Suite
    results: AttackResults
    training_kl: float | None
    """The posterior's KL at the end of training, in nats, where the record of it is known."""
    descended: dict[float, float] = field(default_factory=dict)
    """What `after_descent` found, by the radius."""

    @property
    def count(self) -> int:
        """The first so many images take part."""
        return min(self.plan.effort.images, len(self.evaluation.images))

    @property
    def images(self) -> Tensor:
        return self.evaluation.images[: self.count]

    @property
    def labels(self) -> Tensor:
        return self.evaluation.labels[: self.count]

    @property
    def accuracy(self) -> float:
        """The accuracy that the attacks left of the first images."""
        return float(self.results.final.right[: self.count].double().mean()) / self.evaluation.draws

    @property
    def mean_logits(self) -> AttackedView:
        """The view that diagnostics attack through."""
        return AttackedView(samples=self.evaluation.samples)

    def broken_by(self, attacks: list[int]) -> tuple[int, int]:
        """How many images these attacks of the suite, by their numbers, broke for sure, and how
        many the first of them was given."""
        outcomes = [outcome for number in attacks for outcome in self.results.outcomes[number]]
        broken = sum(int(outcome.confirmed.sum()) for outcome in outcomes)
        return broken, sum(len(outcome.right) for outcome in self.results.outcomes[attacks[0]])

    def accuracy_under(
        self, attack: Attack, through: AttackedView, occasion: str, threat: Threat
    ) -> float:
        """Accuracy of the first images under one more attack."""
        examples, _ = self.evaluation.run_attack(
            attack, through, self.images, self.labels, "diagnosis", occasion, threat=threat
        )
        judged = self.evaluation.judge(examples, self.labels, "diagnosis", occasion)
        return self.evaluation.accuracy(judged)

    def weaker_half(self, first: int) -> Tensor:
        """Of the `first` images that stand, the half that stands by least, the weakest first: what
        breaks late is among these."""
        final = self.results.final
        standing = (final.right[:first] > 0).nonzero().flatten()
        order = final.margin[standing].nan_to_num().argsort(stable=True)
        return standing[order][: math.ceil(len(standing) / 2)]

    def after_descent(self, threat: Threat) -> float:
        """Accuracy of the first images under a short margin attack through the mean logits, made
        once for all who ask."""
        if threat.eps not in self.descended:
            self.descended[threat.eps] = self.accuracy_under(
                Margin(steps=self.plan.effort.steps),
                self.mean_logits,
                f"curve-{threat.eps:g}",
                threat,
            )
        return self.descended[threat.eps]
