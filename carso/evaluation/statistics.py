"""Accuracies with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

Z95 = 1.959964


@dataclass(frozen=True, kw_only=True, slots=True)
class Proportion:
    """A share of images with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def share(outcomes: Tensor) -> Proportion:
    """The mean of outcomes in [0, 1], one per image, with Wilson's interval.

    For outcomes between 0 and 1 (the share of an image's draws) the interval is on the safe
    side: their variance is at most that of zeros and ones with the same mean.
    """
    count = len(outcomes)
    if not count:
        return Proportion(value=0.0, low=0.0, high=1.0)
    mean = float(outcomes.double().mean())
    z = Z95**2 / count
    centre = (mean + z / 2) / (1 + z)
    width = math.sqrt(max(0.0, mean * (1 - mean)) * z + z * z / 4) / (1 + z)
    low, high = max(0.0, centre - width), min(1.0, centre + width)
    return Proportion(value=mean, low=min(low, mean), high=max(high, mean))


def paired_difference(first: Tensor, second: Tensor) -> Proportion:
    """The mean of `first - second`, outcomes of the same images, with its interval.

    The interval is Agresti's and Min's (2005): a normal one after half an image has been added to
    each of the four outcomes of a pair. So it has a width even where no two outcomes differ.
    """
    difference = first.double() - second.double()
    mean = float(difference.mean())
    if len(difference) < 2:
        return Proportion(value=mean, low=-1.0, high=1.0)
    count = len(difference) + 2
    centre = float(difference.sum()) / count
    variance = (float(difference.square().sum()) + 1) / count - centre**2
    width = Z95 * math.sqrt(variance / count)
    low, high = max(-1.0, centre - width), min(1.0, centre + width)
    return Proportion(value=mean, low=min(low, mean), high=max(high, mean))


def percent(value: float) -> str:
    """A share; a little is never rounded to none, and not quite all never to all."""
    if 0 < value < 0.0005:
        return "<0.1%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{value:.1%}"
