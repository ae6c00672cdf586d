"""The l-infinity ball: every pixel may change by at most eps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from carso.arguments import real
from carso.errors import CarsoError
from carso.threats.threat import ROUNDING

if TYPE_CHECKING:
    from torch import Generator, Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Linf:
    """The ball of images that differ from the original by at most `eps` in every pixel."""

    norm: ClassVar[str] = "Linf"

    eps: float
    """Largest change of a pixel, on the [0, 1] scale."""

    def __post_init__(self) -> None:
        eps = real("eps", self.eps)
        if not 0 < eps <= 1:
            raise CarsoError(
                f"eps is on the [0, 1] pixel scale (8/255 = 0.0314), in (0, 1], got {self.eps}"
            )
        object.__setattr__(self, "eps", eps)  # frozen: the only way

    def with_eps(self, eps: float) -> Linf:
        return Linf(eps=eps)

    def scaled(self, factor: float) -> Linf:
        return Linf(eps=self.eps * factor)

    def project(self, images: Tensor, origin: Tensor) -> Tensor:
        """The nearest images inside the ball around `origin` and inside [0, 1]."""
        low = (origin - self.eps).clamp_(min=0)
        high = (origin + self.eps).clamp_(max=1)
        return images.maximum(low).minimum(high)

    def ascend(self, gradient: Tensor, step: float) -> Tensor:
        """Every pixel by `step`, in the direction of the gradient's sign."""
        return step * gradient.sign()

    def random_start(self, origin: Tensor, generator: Generator) -> Tensor:
        from carso.randomness import uniform

        return (origin + self.eps * uniform(origin, generator)).clamp_(0, 1)

    def distance(self, images: Tensor, origin: Tensor) -> Tensor:
        """The largest change of a pixel of each image, (B,)."""
        return (images - origin).abs().flatten(1).amax(dim=1)

    def contains(self, images: Tensor, origin: Tensor) -> Tensor:
        inside = (images - origin).abs() <= self.eps + ROUNDING
        valid = (images >= 0) & (images <= 1)  # false for NaN
        return (inside & valid).flatten(1).all(dim=1)

    def overwhelming(self, shape: tuple[int, ...]) -> float:
        """Nearly the whole range of every pixel."""
        return 0.95
