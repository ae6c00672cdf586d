"""How far a rebuilt image is from the clean one."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def reconstruction_cost(logits: Tensor, clean: Tensor) -> Tensor:
    """Binary cross-entropy of each image, summed over its pixels and channels: (B,).

    `logits` are the rebuilt images before the sigmoid, so that nothing is rounded away.
    """
    return F.binary_cross_entropy_with_logits(logits, clean, reduction="none").flatten(1).sum(1)
