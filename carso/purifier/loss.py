"""The loss of section 5.1: summed binary cross-entropy plus beta times the KL divergence."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def reconstruction_cost(logits: Tensor, clean: Tensor) -> Tensor:
    """Binary cross-entropy of each image, summed over its pixels and channels: (B,)."""
    return F.binary_cross_entropy_with_logits(logits, clean, reduction="none").flatten(1).sum(1)


def kl_to_prior(mean: Tensor, logvar: Tensor) -> Tensor:
    """KL(q(z | x, c) || N(0, I)) of each image; the second loss term of section 5.1."""
    return 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum(dim=1)
