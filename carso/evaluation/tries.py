"""One submission or many: what is left against an attacker who may try the same image again."""

from __future__ import annotations

from math import comb

import torch
from torch import Tensor

TRIES = 20
"""Fresh draws of the worst examples, and so the most tries that are told apart."""


def survival(right: Tensor, draws: int, tries: int) -> Tensor:
    """Of each image, the chance that `tries` draws are all right, where `right` of `draws` were.

    The share of all choices of `tries` draws among those that were made in which every one is
    right: an unbiased estimate, exact for the draws at hand. (B,), float64.
    """
    if not 1 <= tries <= draws:
        raise ValueError(f"{tries} of {draws} draws cannot be chosen")
    table = [comb(count, tries) / comb(draws, tries) for count in range(draws + 1)]
    return torch.tensor(table, dtype=torch.float64)[right.long()]
