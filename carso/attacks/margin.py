"""The direct attack: lower the lead of the right class, with momentum and a decaying step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, NamedByFields, verified
from carso.errors import CarsoError
from carso.threats.threat import Threat

TINY = torch.finfo(torch.float32).tiny
"""Below every margin and gradient that a float32 can hold without losing digits."""


def margins(scores: Tensor, labels: Tensor) -> Tensor:
    """The lead of the right class over the best other one, (B,); below 0 is a mistake."""
    right = scores.gather(1, labels.unsqueeze(1)).squeeze(1)
    return right - scores.scatter(1, labels.unsqueeze(1), -torch.inf).amax(dim=1)


@dataclass(slots=True)
class WorstSoFar:
    """Of each image, the example with the smallest margin among those that were offered.

    Margins are measured by a pass of their own, not by the one that led to the example: on a
    stochastic defence that one was lucky.
    """

    model: Model
    images: Tensor
    labels: Tensor
    examples: Tensor = field(init=False)
    margin: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.examples = self.images.clone()
        self.margin = self.measured(self.images, self.labels)

    @torch.no_grad()
    def measured(self, images: Tensor, labels: Tensor) -> Tensor:
        return margins(self.model(images), labels).nan_to_num(nan=math.inf)

    @property
    def standing(self) -> Tensor:
        """The indices of the images that no example fools yet."""
        return (self.margin >= 0).nonzero().flatten()

    def offer(self, examples: Tensor, index: Tensor) -> None:
        """Examples for the images at `index`."""
        margin = self.measured(examples, self.labels[index])
        better = margin < self.margin[index]
        self.examples[index[better]] = examples[better]
        self.margin[index[better]] = margin[better]


@dataclass(frozen=True, kw_only=True, slots=True)
class Margin(NamedByFields):
    """Steepest descent on the margin with momentum, from random starts."""

    steps: int = 40
    restarts: int = 1
    step_share: float = 0.5
    """The first step's size as a share of eps; it falls to a fiftieth of that along a cosine."""
    momentum: float = 0.75

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise CarsoError(
                f"an attack needs a step and a start, got {self.steps} and {self.restarts}"
            )

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(period=self.steps, direct_steps=self.steps)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        worst = WorstSoFar(model, images, labels)
        for _ in range(self.restarts):
            index = worst.standing
            if not len(index):
                break
            start = threat.random_start(images[index], generator)
            descent = Descent(self.steps, self.step_share, self.momentum)
            slope = slope_of(model, partial(margins, labels=labels[index]))
            for found in descent(slope, start, images[index], threat):
                worst.offer(found, index)
        return verified(worst.examples, images, threat)


Lead = Callable[[Tensor], Tensor]
"""What is to be lowered, (B,), of scores (B, K)."""
Slope = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Of points (B, C, H, W): their lead, (B,), and its gradient."""


def slope_of(model: Model, lead: Lead) -> Slope:
    """The lead and its gradient, by one pass of `model`."""

    def slope(points: Tensor) -> tuple[Tensor, Tensor]:
        points = points.detach().requires_grad_(True)
        with torch.enable_grad():
            value = lead(model(points))
            total = value.sum()
        (gradient,) = torch.autograd.grad(total, points)
        return value.detach(), gradient

    return slope


@dataclass(frozen=True, slots=True)
class Descent:
    """Steepest descent with momentum, each step smaller than the one before."""

    steps: int
    step_share: float
    momentum: float

    def __call__(
        self, slope: Slope, start: Tensor, images: Tensor, threat: Threat
    ) -> tuple[Tensor, Tensor]:
        """The last iterate, and the one whose lead was smallest when it was met."""
        current, velocity = start, torch.zeros_like(start)
        best = start.clone()
        lowest = torch.full((len(start),), math.inf, device=start.device)
        for step in range(self.steps):
            lead, gradient = slope(current)
            # A gradient that is not finite costs its image one step, not the momentum for good.
            usable = gradient.isfinite().flatten(1).all(dim=1).view(-1, 1, 1, 1)
            gradient = gradient.where(usable, 0.0)
            better = lead < lowest
            best[better], lowest[better] = current[better], lead[better]
            scale = gradient.abs().mean(dim=(1, 2, 3), keepdim=True).clamp(min=TINY)
            velocity = self.momentum * velocity + gradient / scale
            decay = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / self.steps))
            size = self.step_share * threat.eps * decay
            current = threat.project(current - threat.ascend(velocity, size), images).detach()
        return current, best


@dataclass(frozen=True, kw_only=True, slots=True)
class Noise(NamedByFields):
    """Random points of the ball, every other one on its edge: what one gets without a gradient.

    A gradient attack that does no better than this has no gradient worth the name.
    """

    tries: int = 20

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(black_box=True)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        worst = WorstSoFar(model, images, labels)
        everything = torch.arange(len(images), device=images.device)
        for number in range(self.tries):
            point = threat.random_start(images, generator)
            if number % 2:
                outward = threat.ascend(point - images, threat.eps)
                point = threat.project(images + outward, images)
            worst.offer(point, everything)
        return verified(worst.examples, images, threat)
