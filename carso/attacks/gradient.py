"""The paper's own attacks, FGSM and PGD on the cross-entropy, and what every attack must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from carso.errors import CarsoError
from carso.threats.linf import Linf

Model = Callable[[Tensor], Tensor]
"""Anything that maps images (B, C, H, W) in [0, 1] to one score per class (B, K)."""


class Attack(Protocol):
    """Images in, images inside `threat` out; draws come from `generator`, which advances."""

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FGSM:
    """One signed gradient step of size eps, from the image itself (Goodfellow et al. 2015)."""

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor:
        step = threat.eps * cross_entropy_gradient(model, images, labels).sign()
        return verified(threat.project(images + step, images), images, threat)


@dataclass(frozen=True, kw_only=True, slots=True)
class PGD:
    """Projected gradient ascent (Madry et al. 2018); defaults as in the paper's table."""

    steps: int = 40
    step_size: float = 0.01
    """Largest change of a pixel in one step, on the [0, 1] scale."""
    random_start: bool = True
    eot: int = 1
    """How many passes' gradients are averaged in a step (expectation over transformation)."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.eot < 1:
            raise CarsoError(
                f"PGD needs at least one step and one pass in it, got {self.steps} and {self.eot}"
            )
        if not 0 < self.step_size <= 1:
            raise CarsoError(f"step_size is on the [0, 1] pixel scale, got {self.step_size}")

    @property
    def period(self) -> int:
        return self.steps

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor:
        start = threat.random_start(images, generator) if self.random_start else images
        return self.ascend(model, start, images, labels, threat=threat)

    def ascend(
        self, model: Model, start: Tensor, images: Tensor, labels: Tensor, *, threat: Linf
    ) -> Tensor:
        """The same from a given start inside the ball around `images`."""
        adversarial = start
        for _ in range(self.steps):
            gradient = cross_entropy_gradient(model, adversarial, labels)
            for _ in range(self.eot - 1):
                gradient += cross_entropy_gradient(model, adversarial, labels)
            adversarial = threat.project(adversarial + self.step_size * gradient.sign(), images)
        return verified(adversarial, images, threat)


def cross_entropy_gradient(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the summed cross-entropy with respect to the images.

    The sum keeps the gradient of an image independent of its batch.
    """
    images = images.detach().requires_grad_(True)
    with torch.enable_grad():
        loss = F.cross_entropy(model(images), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, images)
    return gradient


def verified(adversarial: Tensor, images: Tensor, threat: Linf) -> Tensor:
    """`adversarial`, after a check that it is what `threat` allows: an attack is not trusted."""
    if adversarial.shape != images.shape:
        raise RuntimeError(
            f"an attack gave {tuple(adversarial.shape)} for images {tuple(images.shape)}"
        )
    inside = threat.contains(adversarial, images)
    if not bool(inside.all()):
        count = int((~inside).sum())
        raise RuntimeError(
            f"an attack left its threat model on {count} of {len(images)} images: every pixel "
            f"must be finite, in [0, 1] and within {threat.eps:g} of the original"
        )
    return adversarial.detach()
