"""Gradients over many draws of a model's noise: expectation over transformation (Athalye et al.
2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

Scores = Callable[[Tensor], Tensor]
"""From images (B, C, H, W) to one score per class (B, K)."""
Loss = Callable[[Tensor], Tensor]
"""From the scores (B, K) of a pass to a number that sums over its images."""


@runtime_checkable
class OverDraws(Protocol):
    """A model of which many draws cost less together than one by one."""

    def gradient_over_draws(self, images: Tensor, loss: Loss, draws: int) -> Tensor:
        """What the function of this name says."""
        ...


def gradient_over_draws(model: Scores, images: Tensor, loss: Loss, draws: int) -> Tensor:
    """The sum, over so many draws of the model's noise, of the gradients of a loss at `images`."""
    together: object = model
    if draws > 1 and isinstance(together, OverDraws):
        return together.gradient_over_draws(images, loss, draws)
    return sum_of_gradients(model, images, loss, draws)


def sum_of_gradients(model: Scores, images: Tensor, loss: Loss, draws: int) -> Tensor:
    """The same pass by pass, for any model."""
    found = torch.zeros_like(images)
    for _ in range(draws):
        point = images.detach().requires_grad_(True)
        with torch.enable_grad():
            lost = loss(model(point))
        found += torch.autograd.grad(lost, point)[0]
    return found
