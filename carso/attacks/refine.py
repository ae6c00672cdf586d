"""The last pass: from the worst example that is known of an image, with small steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, NamedByFields, verified, ways_at_once
from carso.attacks.margin import Descent, WorstSoFar, margins, slope_of
from carso.errors import CarsoError
from carso.threats.threat import Threat

TOGETHER = 2
"""Starts of a descent that are followed at once where there is room; the next ones begin from what
these have found."""


def lead_over(scores: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    """The lead of the right class over the class `target`, (B,)."""
    right, other = (scores.gather(1, index.unsqueeze(1)).squeeze(1) for index in (labels, target))
    return right - other


@dataclass(frozen=True, kw_only=True, slots=True)
class Refine(NamedByFields):
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
        if start is not None:
            worst.offer(start, torch.arange(len(images), device=images.device))
        with torch.no_grad():
            scores = model(worst.examples).nan_to_num(nan=-torch.inf)
        others = scores.scatter(1, labels.unsqueeze(1), -torch.inf).argsort(dim=1, descending=True)
        targets = others[:, : min(self.targets, scores.shape[1] - 1)].unbind(dim=1)
        together = min(TOGETHER, ways_at_once(len(images)))
        for target in (None, *targets):
            for first in range(0, 1 + self.restarts, together):
                starts = range(first, min(first + together, 1 + self.restarts))
                self.follow(worst, target, [i > 0 for i in starts], threat, generator)
        return verified(worst.examples, images, threat)

    def follow(
        self,
        worst: WorstSoFar,
        target: Tensor | None,
        shaken: list[bool],
        threat: Threat,
        generator: Generator,
    ) -> None:
        """One descent from each of some starts, all at once; what it finds is offered."""
        many = len(shaken)
        images, labels = worst.images.repeat(many, 1, 1, 1), worst.labels.repeat(many)
        lead = partial(margins, labels=labels)
        if target is not None:
            lead = partial(lead_over, labels=labels, target=target.repeat(many))
        begin = torch.cat(
            [
                worst.examples.lerp(threat.random_start(worst.images, generator), self.shake)
                if one
                else worst.examples
                for one in shaken
            ]
        )
        descent = Descent(self.steps, self.step_share, self.momentum)
        everything = torch.arange(len(worst.images), device=images.device)
        for found in descent(slope_of(worst.model, lead), begin, images, threat):
            for examples in found.chunk(many):
                worst.offer(examples, everything)
