"""The Euclidean ball: all pixels together may change by a length of at most eps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from carso.arguments import real
from carso.errors import CarsoError
from carso.threats.threat import ROUNDING

if TYPE_CHECKING:
    from torch import Generator, Tensor

TINY = 1e-30
"""Divides nothing by zero, and is below any length that matters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class L2:
    """The ball of images whose difference from the original has a Euclidean length up to `eps`."""

    norm: ClassVar[str] = "L2"

    eps: float
    """Largest length of the whole change, pixels on the [0, 1] scale."""

    def __post_init__(self) -> None:
        eps = real("eps", self.eps)
        if not 0 < eps < math.inf:
            raise CarsoError(
                "eps of L2 is the length of the whole change, pixels on the [0, 1] scale (0.5 is "
                f"common for CIFAR-10), above 0, got {self.eps}"
            )
        object.__setattr__(self, "eps", eps)  # frozen: the only way

    def with_eps(self, eps: float) -> L2:
        return L2(eps=eps)

    def scaled(self, factor: float) -> L2:
        return L2(eps=self.eps * factor)

    def project(self, images: Tensor, origin: Tensor) -> Tensor:
        """The nearest images inside the ball, then clipped to [0, 1].

        Clipping does not leave the ball: the origin lies in [0, 1], so each pixel that is clipped
        moves toward the origin's, and the length of the change can only fall. The result need not
        be the nearest point that is in both.
        """
        change = images - origin
        length = lengths(change)
        # What is inside already is left as it is, to the last bit.
        shrunk = origin + change * (self.eps / length.clamp(min=TINY))
        return images.where(length <= self.eps, shrunk).clamp(0, 1)

    def ascend(self, gradient: Tensor, step: float) -> Tensor:
        """Along the gradient, whatever its length, by `step`; no step where it is zero."""
        return gradient * (step / lengths(gradient).clamp(min=TINY))

    def random_start(self, origin: Tensor, generator: Generator) -> Tensor:
        """Uniform in the ball: any direction, and a radius whose d-th power is uniform, for in d
        dimensions the volume grows with that power."""
        from carso.randomness import normal, uniform

        direction = normal(tuple(origin.shape), origin, generator)
        volume = uniform(origin[:, 0, 0, 0], generator).abs().view(-1, 1, 1, 1)
        radius = self.eps * volume ** (1 / origin[0].numel())
        return (origin + direction * (radius / lengths(direction))).clamp(0, 1)

    def distance(self, images: Tensor, origin: Tensor) -> Tensor:
        """The Euclidean length of each image's change, (B,)."""
        return lengths(images - origin).flatten()

    def contains(self, images: Tensor, origin: Tensor) -> Tensor:
        # A length has the rounding of a few thousand pixels in it: also some of its own share.
        limit = self.eps * (1 + 10 * ROUNDING) + ROUNDING
        inside = self.distance(images.double(), origin.double()) <= limit
        valid = (images >= 0) & (images <= 1)  # false for NaN
        return inside & valid.flatten(1).all(dim=1)

    def overwhelming(self, shape: tuple[int, ...]) -> float:
        """Nearly the whole range of every pixel, all of them at once."""
        return 0.95 * math.sqrt(math.prod(shape))


def lengths(change: Tensor) -> Tensor:
    """The length of each image's change, (B, 1, 1, 1).

    Measured in units of the largest entry: the squares of gradients as small as those of a
    saturated softmax would vanish in float32.
    """
    largest = change.abs().amax(dim=(1, 2, 3), keepdim=True).clamp(min=TINY)
    return largest * (change / largest).square().sum(dim=(1, 2, 3), keepdim=True).sqrt()
