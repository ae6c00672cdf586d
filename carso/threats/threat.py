"""What every threat is: a ball around each image, and how an attack moves in it.

A scenario holds a threat, and is read without torch, so that a list of scenarios answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Generator, Tensor

ROUNDING = 1e-6
"""Slack for float32 rounding when an image is checked to lie inside the ball."""


class Threat(Protocol):
    """The images that an attacker may make of an image: those within `eps` of it, in [0, 1].

    Images are (B, C, H, W) in [0, 1]; every answer is image by image. An object of a user's own
    serves wherever one of ours does; it needs a `norm` of its own name.
    """

    @property
    def eps(self) -> float:
        """The radius of the ball."""
        ...

    @property
    def norm(self) -> str:
        """What the distance is called, "Linf" or "L2" as attack libraries say; of a user's own, a
        name that says all that a record must say of it besides eps."""
        ...

    def with_eps(self, eps: float) -> Threat:
        """The ball of this kind with the radius `eps`."""
        ...

    def scaled(self, factor: float) -> Threat:
        """The ball of `factor` times this radius, e.g. the eps/2 of section 4.4."""
        ...

    def project(self, images: Tensor, origin: Tensor) -> Tensor:
        """Images inside the ball around `origin` and inside [0, 1], near the given ones."""
        ...

    def ascend(self, gradient: Tensor, step: float) -> Tensor:
        """The change of length `step` that raises a loss of this gradient most; none where the
        gradient is zero."""
        ...

    def random_start(self, origin: Tensor, generator: Generator) -> Tensor:
        """A uniform draw from the ball, clipped to [0, 1].

        Noise comes through `carso.randomness`, images along its first side, so that many
        processes draw together what one would.
        """
        ...

    def distance(self, images: Tensor, origin: Tensor) -> Tensor:
        """How far each image is from its origin, (B,), in the unit of eps."""
        ...

    def contains(self, images: Tensor, origin: Tensor) -> Tensor:
        """Of each image, whether it is finite, in [0, 1] and within eps of its origin, rounding
        aside: bool (B,)."""
        ...

    def overwhelming(self, shape: tuple[int, ...]) -> float:
        """A radius at which nothing can hold: nearly any image of `shape` (C, H, W) can be made of
        any other."""
        ...
