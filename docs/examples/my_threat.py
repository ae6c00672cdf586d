"""A threat of your own: an attacker who can only make pixels lighter.

python docs/examples/my_threat.py
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

import carso
from carso import data
from carso.randomness import uniform


@dataclass(frozen=True, kw_only=True)
class Lighter:
    """Every pixel may rise by at most `eps`, and none may fall."""

    eps: float
    norm: str = "lighter"
    """Names the threat in records. "Linf" and "L2" are taken."""

    def with_eps(self, eps: float) -> Lighter:
        return replace(self, eps=eps)

    def scaled(self, factor: float) -> Lighter:
        return replace(self, eps=self.eps * factor)

    def project(self, images: Tensor, origin: Tensor) -> Tensor:
        return images.maximum(origin).minimum((origin + self.eps).clamp(max=1))

    def ascend(self, gradient: Tensor, step: float) -> Tensor:
        # A step back is allowed on the way: `project` has the last word.
        return step * gradient.sign()

    def random_start(self, origin: Tensor, generator: Generator) -> Tensor:
        # Noise comes through carso.randomness, so that many processes draw what one would.
        return (origin + self.eps * uniform(origin, generator).abs()).clamp(max=1)

    def distance(self, images: Tensor, origin: Tensor) -> Tensor:
        rise = (images - origin).flatten(1)
        return rise.amax(dim=1).where(rise.amin(dim=1) >= 0, torch.inf)

    def contains(self, images: Tensor, origin: Tensor) -> Tensor:
        valid = ((images >= 0) & (images <= 1)).flatten(1).all(dim=1)
        return valid & (self.distance(images, origin) <= self.eps + 1e-6)

    def overwhelming(self, shape: tuple[int, ...]) -> float:
        return 0.95  # nearly white, whatever it was


def main(count: int = 100) -> dict[str, Any]:
    """The record of a shipped classifier alone. Of the suite, the attacks that cannot run under
    this threat are left out."""
    classifier = carso.load("fashion").classifier
    images, labels = data.load("fashion-embedded").test.balanced(count).batch(slice(None))
    return carso.evaluate(classifier, images, labels, threat=Lighter(eps=0.1), suite="quick")


if __name__ == "__main__":
    print(main()["verdict"])
