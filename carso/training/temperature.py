"""The temperature at which a classifier says how sure it is."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from carso.classifiers.frozen import Frozen
from carso.data import Split

LOWEST, HIGHEST = 0.05, 50.0
IMAGES_AT_ONCE = 500


@torch.no_grad()
def fitted_temperature(classifier: Frozen, split: Split, device: torch.device) -> float:
    """Where the likelihood of the labels is greatest, once the logits are divided by it (Guo et
    al. 2017). A classifier trained on clean images is mostly too sure: it has one above 1."""
    images, labels = split.batch(slice(None))
    parts = [classifier(some.to(device)).cpu() for some in torch.split(images, IMAGES_AT_ONCE)]
    return most_likely(torch.cat(parts).double(), labels)


def most_likely(logits: Tensor, labels: Tensor) -> float:
    """The temperature of these logits (B, K), by golden-section search along its logarithm.

    The cost has one valley: it is convex in the inverse temperature.
    """

    def cost(position: float) -> float:
        return float(F.cross_entropy(logits / math.exp(position), labels))

    low, high = math.log(LOWEST), math.log(HIGHEST)
    golden = (math.sqrt(5) - 1) / 2
    while high - low > 1e-4:
        left, right = high - golden * (high - low), low + golden * (high - low)
        if cost(left) <= cost(right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)
