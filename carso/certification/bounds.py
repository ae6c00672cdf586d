"""From counted votes to a radius that holds with a stated confidence (Cohen et al. 2019)."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import torch
from torch import Tensor

from carso.errors import CarsoError

BISECTIONS = 60
"""Halvings of [0, 1]: more digits than float64 has."""


@lru_cache(maxsize=4096)  # images of a set share their counts
def lower_bound(successes: int, draws: int, alpha: float) -> float:
    """The lower end of the one-sided Clopper-Pearson interval of a probability.

    Whatever the true probability is, the bound lies above it in at most a share `alpha` of all
    repetitions. It is the probability at which `successes` or more are as rare as `alpha`.
    """
    if not 0 <= successes <= draws or draws < 1:
        raise CarsoError(f"{successes} successes of {draws} draws cannot be")
    if not 0 < alpha < 1:
        raise CarsoError(f"alpha is the probability of a wrong certificate, in (0, 1), got {alpha}")
    if successes == 0:
        return 0.0
    low, high = 0.0, 1.0  # the tail rises with the probability
    tail = UpperTail(successes, draws)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if tail.probability(middle) > alpha:
            high = middle
        else:
            low = middle
    return low


class UpperTail:
    """The probability of at least `successes` of `draws`, as a function of the single one."""

    def __init__(self, successes: int, draws: int) -> None:
        self.count = torch.arange(successes, draws + 1, dtype=torch.float64)
        self.missed = draws - self.count
        self.ways: Tensor = (
            math.lgamma(draws + 1) - torch.lgamma(self.count + 1) - torch.lgamma(self.missed + 1)
        )

    def probability(self, single: float) -> float:
        if single <= 0:
            return 0.0
        if single >= 1:
            return 1.0
        terms = self.ways + self.count * math.log(single) + self.missed * math.log1p(-single)
        return float(terms.logsumexp(dim=0).exp())


def l2_radius(probability: float, sigma: float, *, lost: float = 0.0) -> float:
    """The certified L2 radius of a class that wins with at least this probability; 0: none.

    Of each probability, arithmetic that is not exact may have moved `lost`: of that of the image
    itself, and of that of the attacked one, which must stay above one half all the same.
    """
    if probability - lost <= 0.5 + lost:
        return 0.0
    normal = NormalDist()
    farthest = normal.inv_cdf(min(probability - lost, 1 - 1e-16))
    return sigma * (farthest - normal.inv_cdf(0.5 + lost))


def linf_radius(radius: float, pixels: int) -> float:
    """The largest L-infinity ball of images of so many numbers inside an L2 ball of `radius`."""
    return radius / math.sqrt(pixels)


@lru_cache
def least_successes(draws: int, alpha: float, *, above: float = 0.5) -> int:
    """How many successes of `draws` it takes for a bound above one half (or `above`)."""
    low, high = draws // 2, draws + 1
    while low + 1 < high:
        middle = (low + high) // 2
        if lower_bound(middle, draws, alpha) > above:
            high = middle
        else:
            low = middle
    return high
