"""A guide for hardening: a linear head that tells classes from the purifier's summary of an image.

A frozen classifier that was trained on clean images is a bad teacher: under attack its word on
candidates is confident nonsense, and from it alone a purifier of natural images learns nothing. The
head teaches what the purifier has seen, not what it paints. It is attacked and trained with the
defence, and dropped when the hardening ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Generator, Tensor, nn

from carso.errors import CarsoError
from carso.purifiers.base import SummarisingPurifier, TrainablePurifier, as_module
from carso.randomness import seeded


class Guided(nn.Module):
    """A purifier and the head on its summary."""

    def __init__(self, purifier: TrainablePurifier, *, classes: int, seed: int) -> None:
        super().__init__()
        if not isinstance(purifier, SummarisingPurifier):
            kind = type(purifier).__name__
            raise CarsoError(
                f"guide needs a purifier with a summary, such as a unet; {kind} has none"
            )
        self.purifier = as_module(purifier)
        with seeded(seed, "hardening", "guide"):
            self.head = nn.Linear(self.summarising.summary_size, classes)

    @property
    def summarising(self) -> SummarisingPurifier:
        return cast(SummarisingPurifier, self.purifier)

    def told(self, activations: Sequence[Tensor], generator: Generator) -> Tensor:
        """The head's logits (B, K); no candidate is made."""
        return self.head(self.summarising.summary(activations, generator)).float()  # type: ignore[no-any-return]

    def painted(self, activations: Sequence[Tensor], generator: Generator) -> tuple[Tensor, Tensor]:
        """One candidate per image before the sigmoid, and the head's logits, from one pass."""
        pixels, summary = self.summarising.with_summary(activations, generator)
        return pixels, self.head(summary).float()
