"""How the bank keeps an attacked image: as its difference from the clean one, in few bits.

In Linf no pixel changes by more than eps, so 8 bits do: a difference is stored in units of
eps / 127. In other norms one pixel may change by eps and the others by a hundredth of that, which
such units would lose; there a difference is stored as a float of 16 bits, wrong by at most
2^-11 of itself, and so is the length of the whole. What is read back is put inside the ball again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from carso.threats.threat import Threat

LEVELS = 127


def stored_as(threat: Threat) -> torch.dtype:
    """The type of a stored difference."""
    return torch.int8 if threat.norm == "Linf" else torch.float16


def packed(attacked: Tensor, clean: Tensor, threat: Threat) -> Tensor:
    """What is stored of attacked images, of the type `stored_as` says."""
    change = attacked - clean
    if stored_as(threat) == torch.int8:
        return (change * (LEVELS / threat.eps)).round().clamp_(-LEVELS, LEVELS).to(torch.int8)
    return change.to(torch.float16)


def unpacked(stored: Tensor, clean: Tensor, threat: Threat) -> Tensor:
    """The attacked images, from what is stored of them."""
    change = stored.to(clean.device, clean.dtype)
    if stored_as(threat) == torch.int8:
        return (clean + change * (threat.eps / LEVELS)).clamp_(0, 1)
    return threat.project(clean + change, clean)
