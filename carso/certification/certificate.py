"""The certificate of one image: select a class on some draws, bound its probability on others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from carso.certification.bounds import l2_radius, least_successes, lower_bound
from carso.certification.smoothing import ROUNDING, Votes
from carso.distributed.launchers import PRECISIONS
from carso.errors import CarsoError

ABSTAINED = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Smoothing:
    """What is certified, and how surely."""

    sigma: float
    """Standard deviation of the noise, on the [0, 1] pixel scale."""
    draws: int = 10_000
    """Noisy copies that estimate the probability of the selected class."""
    selection: int = 100
    """Noisy copies, others, that select it."""
    alpha: float = 0.001
    """The probability, for each image, that its certificate is wrong."""
    batch: int = 250
    """Noisy copies in one pass."""
    precision: str = "32-true"
    """Of the networks' passes; noise and grid are exact to float64 in any."""

    def __post_init__(self) -> None:
        if not 0 < self.sigma < float("inf"):
            raise CarsoError(f"sigma is a deviation above 0 on the pixel scale, got {self.sigma}")
        for key in ("draws", "selection", "batch"):
            if getattr(self, key) < 1:
                raise CarsoError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise CarsoError(f"precision is one of {known}, got {self.precision!r}")
        if not 0 < self.alpha < 1:
            raise CarsoError(f"alpha must be a probability in (0, 1), got {self.alpha}")
        if lower_bound(self.draws, self.draws, self.alpha) <= 0.5:
            raise CarsoError(
                f"{self.draws} draws can certify nothing at alpha = {self.alpha:g}: even if all "
                "agree, the bound is not above one half; take more draws"
            )

    @property
    def largest_radius(self) -> float:
        """The radius of an image on which all draws agree: no certificate is larger."""
        return l2_radius(lower_bound(self.draws, self.draws, self.alpha), self.sigma)


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """The smoothed prediction of one image, and the radius within which it cannot change."""

    selected: int
    """The class that most of the selecting draws voted for."""
    votes: int
    """Estimating draws that voted for it."""
    spent: int
    """Estimating draws that were made."""
    radius: float
    """L2, on the [0, 1] pixel scale; 0 where there is none."""
    decided: str
    """"all draws", or why they ended early: "hopeless" (no majority can come of it any more) or
    "wrong" (the selected class is not the label, so that no radius would count)."""

    @property
    def prediction(self) -> int:
        """The selected class, or ABSTAINED where no majority is certain."""
        return self.selected if self.radius > 0 else ABSTAINED


def certify_image(
    select: Votes, estimate: Votes, smoothing: Smoothing, *, label: int | None
) -> Certificate:
    """A certificate from two independent sources of votes.

    The draws end early where they cannot matter any more. "hopeless" looks only at what the outcome
    would be whatever the remaining draws say: it is the one that all draws would have given.
    "wrong" gives up a certificate that would not count. Neither can make one, so they do not touch
    the confidence. What float64 may round otherwise is taken off the probabilities.
    """
    lost = ROUNDING * estimate.image.numel()
    selected = int(select.count(smoothing.selection).argmax())
    if label is not None and selected != label:
        return Certificate(selected=selected, votes=0, spent=0, radius=0.0, decided="wrong")
    needed = least_successes(smoothing.draws, smoothing.alpha, above=0.5 + 2 * lost)
    votes = spent = 0
    while spent < smoothing.draws:
        size = min(smoothing.batch, smoothing.draws - spent)
        found: Tensor = estimate.count(size)
        votes, spent = votes + int(found[selected]), spent + size
        if votes + smoothing.draws - spent < needed:
            return Certificate(
                selected=selected, votes=votes, spent=spent, radius=0.0, decided="hopeless"
            )
    bound = lower_bound(votes, smoothing.draws, smoothing.alpha)
    radius = l2_radius(bound, smoothing.sigma, lost=lost)
    return Certificate(
        selected=selected, votes=votes, spent=spent, radius=radius, decided="all draws"
    )


def certified_accuracy(radii: Tensor, right: Tensor, at: float) -> Tensor:
    """Of each image, whether its prediction is right and certain within L2 radius `at`; bool (B,).

    At 0 it is enough that the smoothed prediction is right and not abstained.
    """
    return right & (radii > 0) & (radii >= torch.as_tensor(at, dtype=radii.dtype))
