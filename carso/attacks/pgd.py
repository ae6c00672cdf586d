"""The paper's own attacks, FGSM and PGD on the cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, NamedByFields, verified
from carso.errors import CarsoError
from carso.machine.many_draws import gradient_over_draws
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class FGSM(NamedByFields):
    """One gradient step of size eps, from the image itself (Goodfellow et al. 2015)."""

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts()

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        step = threat.ascend(cross_entropy_gradient(model, images, labels), threat.eps)
        return verified(threat.project(images + step, images), images, threat)


@dataclass(frozen=True, kw_only=True, slots=True)
class PGD(NamedByFields):
    """Projected gradient ascent (Madry et al. 2018); defaults as in the paper's table."""

    steps: int = 40
    step_size: float = 0.01
    """Length of a step in the threat's norm: in Linf, the largest change of a pixel."""
    random_start: bool = True
    eot: int = 1
    """How many passes' gradients are averaged in a step (expectation over transformation)."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.eot < 1:
            raise CarsoError(
                f"PGD needs at least one step and one pass in it, got {self.steps} and {self.eot}"
            )
        if not 0 < self.step_size < math.inf:
            raise CarsoError(
                f"step_size is a length on the [0, 1] pixel scale, above 0, got {self.step_size}"
            )

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(eot=self.eot, period=self.steps)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        start = threat.random_start(images, generator) if self.random_start else images
        return self.ascend(model, start, images, labels, threat=threat)

    def ascend(
        self, model: Model, start: Tensor, images: Tensor, labels: Tensor, *, threat: Threat
    ) -> Tensor:
        """The same from a given start inside the ball around `images`."""
        if threat.norm == "Linf" and self.step_size > 1:
            raise CarsoError(
                f"step_size in Linf is at most 1, a pixel's range, got {self.step_size}"
            )

        def gradient(attacked: Tensor) -> Tensor:
            return cross_entropy_gradient(model, attacked, labels, draws=self.eot)

        return ascent(
            gradient, start, images, threat=threat, steps=self.steps, step_size=self.step_size
        )


def ascent(
    gradient: Callable[[Tensor], Tensor],
    start: Tensor,
    images: Tensor,
    *,
    threat: Threat,
    steps: int,
    step_size: float,
) -> Tensor:
    """The end of so many steps along a gradient, from a start in the ball around `images`."""
    attacked = start
    for _ in range(steps):
        step = threat.ascend(gradient(attacked), step_size)
        attacked = threat.project(attacked + step, images)
    return verified(attacked, images, threat)


def cross_entropy_gradient(
    model: Model, images: Tensor, labels: Tensor, *, draws: int = 1
) -> Tensor:
    """The gradient of the summed cross-entropy with respect to the images, over so many draws.

    The sum keeps the gradient of an image independent of its batch.
    """
    loss = partial(F.cross_entropy, target=labels, reduction="sum")
    return gradient_over_draws(model, images, loss, draws)
