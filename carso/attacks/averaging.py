"""How many draws of a noisy model an attack averages in a step: expectation over transformation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from carso.attacks.margin import margins

GOOD_COSINE = 0.95
"""With the true gradient: alike enough to follow."""


def cosine(first: Tensor, second: Tensor) -> Tensor:
    """The cosine of two batches of gradients, image by image, (B,)."""
    return torch.nn.functional.cosine_similarity(first.flatten(1), second.flatten(1), dim=1)


def gradient_likeness(view: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> float:
    """The mean cosine of the gradients of two passes of `view`."""
    gradients = []
    for _ in range(2):
        point = images.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            lead = margins(view(point), labels).sum()
        gradients.append(torch.autograd.grad(lead, point)[0])
    return float(cosine(*gradients).mean())


def draws_needed(alike: float, *, most: int) -> int:
    """The smallest power of two, up to `most`, of passes whose mean gradient is good.

    With `alike` = c the mean cosine of the gradients of two of them, the mean of n has the cosine
    sqrt(n c / (n c + 1 - c)) with the true gradient; wanted is `GOOD_COSINE`.
    """
    if not alike > 0:
        return most
    wanted = GOOD_COSINE**2 / (1 - GOOD_COSINE**2) * (1 - alike) / alike
    doublings = max(0, math.ceil(math.log2(max(wanted, 1.0))))
    return min(most, 1 << doublings)
