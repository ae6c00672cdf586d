"""What an attacker differentiates of a noisy module: the mean of many passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from carso.randomness import global_generators_kept


class MeanOverDraws(nn.Module):
    """The mean logits of a noisy `model` over `draws` passes of the same images.

    A pass is computed again on the way back instead of being kept, so that many draws take the
    memory of one. With a `seed` every call draws the same noise from torch's global generator.
    """

    def __init__(self, model: nn.Module, draws: int, seed: int | None = None) -> None:
        super().__init__()
        self.model, self.draws, self.seed = model, draws, seed

    def forward(self, images: Tensor) -> Tensor:
        if self.seed is None:
            return self.mean(images)
        with global_generators_kept():
            torch.manual_seed(self.seed)
            return self.mean(images)

    def mean(self, images: Tensor) -> Tensor:
        one: Callable[[Tensor], Tensor] = self.model
        if torch.is_grad_enabled() and images.requires_grad:
            one = partial(checkpoint, self.model, use_reentrant=False)
        logits = one(images)
        for _ in range(self.draws - 1):
            logits = logits + one(images)
        return logits / self.draws
