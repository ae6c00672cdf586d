"""What the attacker may do: change every pixel by at most eps, and stay an image.

A scenario holds a threat, and is read without torch, so that a list of scenarios answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carso.errors import CarsoError

if TYPE_CHECKING:
    from torch import Generator, Tensor

ROUNDING = 1e-6
"""Slack for float32 rounding when an image is checked to lie inside the ball."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Linf:
    """The ball of images that differ from the original by at most `eps` in every pixel."""

    eps: float
    """Largest change of a pixel, on the [0, 1] scale."""

    def __post_init__(self) -> None:
        if not 0 < self.eps <= 1:
            raise CarsoError(
                f"eps is on the [0, 1] pixel scale (8/255 = 0.0314), in (0, 1], got {self.eps}"
            )

    def scaled(self, factor: float) -> Linf:
        """The ball of `factor` times this radius, e.g. the eps/2 of section 4.4."""
        return Linf(eps=self.eps * factor)

    def project(self, images: Tensor, origin: Tensor) -> Tensor:
        """The nearest images inside the ball around `origin` and inside [0, 1]."""
        low = (origin - self.eps).clamp_(min=0)
        high = (origin + self.eps).clamp_(max=1)
        return images.maximum(low).minimum(high)

    def random_start(self, origin: Tensor, generator: Generator) -> Tensor:
        """A uniform draw from the ball, clipped to [0, 1]."""
        from carso.randomness import uniform

        return (origin + self.eps * uniform(origin, generator)).clamp_(0, 1)

    def contains(self, images: Tensor, origin: Tensor) -> Tensor:
        """Of each image, whether it is finite, in [0, 1] and within eps of its origin: (B,)."""
        inside = (images - origin).abs() <= self.eps + ROUNDING
        valid = (images >= 0) & (images <= 1)  # false for NaN
        return (inside & valid).flatten(1).all(dim=1)
