"""The last pass: from the worst example that is known of an image, with small steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, identity_of, verified
from carso.attacks.margin import Descent, WorstSoFar, margins, slope_of
from carso.errors import CarsoError
from carso.threats.threat import Threat


def lead_over(scores: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """The lead of the right class over the class `target`, (B,)."""
    right, other = (scores.gather(1, index.unsqueeze(1)).squeeze(1) for index in (labels, target))
    return right - other


@dataclass(frozen=True, kw_only=True, slots=True)
class Refine:
    """Descent on the lead over the best other class, then over each of the likeliest others.

    It starts from the worst examples so far, and from points on the way from there to random ones.
    An image that one pass gets wrong is not left alone: of a noisy model the next pass may get it
    right, and a smaller margin is what helps.
    """

    steps: int = 40
    targets: int = 3
    restarts: int = 1
    """Shaken starts for each loss, besides the worst example itself."""
    step_share: float = 0.25
    """The first step's size as a share of eps; it falls to a fiftieth of that along a cosine."""
    momentum: float = 0.75
    shake: float = 0.5
    """How far a shaken start is on its way to a random point."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.targets < 0 or self.restarts < 0:
            raise CarsoError(
                "a last pass needs a step, and no fewer than 0 targets and restarts, got "
                f"{self.steps}, {self.targets} and {self.restarts}"
            )

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(period=self.steps, direct_steps=self.steps, starts=True)

    def identity(self) -> dict[str, Any]:
        return identity_of(self)

    def __call__(
        self,
        model: Model,
        images: Tensor,
        labels: Tensor,
        *,
        threat: Threat,
        generator: Generator,
        start: Tensor | None = None,
    ) -> Tensor:
        worst = WorstSoFar(model, images, labels)
        everything = torch.arange(len(images), device=images.device)
        if start is not None:
            worst.offer(start, everything)
        descent = Descent(self.steps, self.step_share, self.momentum)
        with torch.no_grad():
            scores = model(worst.examples).nan_to_num(nan=-torch.inf)
        others = scores.scatter(1, labels.unsqueeze(1), -torch.inf).argsort(dim=1, descending=True)
        targets = others[:, : min(self.targets, scores.shape[1] - 1)].unbind(dim=1)
        leads = [
            partial(margins, labels=labels),
            *(partial(lead_over, labels=labels, target=target) for target in targets),
        ]
        for lead in leads:
            for number in range(1 + self.restarts):
                begin = worst.examples.clone()
                if number:
                    begin = begin.lerp(threat.random_start(images, generator), self.shake)
                for found in descent(slope_of(model, lead), begin, images, threat):
                    worst.offer(found, everything)
        return verified(worst.examples, images, threat)
