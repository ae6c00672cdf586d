"""Adversarial weight perturbation (Wu et al. 2020): the gradient of an update is taken where the
weights are worst nearby, so that training ends where the loss is flat around them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Weights = list[tuple[Tensor, Tensor]]
"""Tensors of a module, each with the values that it had."""


def climbed(module: nn.Module, gamma: float, climb: Callable[[], None]) -> Weights:
    """Move each weight by `gamma` times its own norm up the gradient that `climb` leaves in the
    parameters; what there was before.

    Biases and batch norms are left alone. The pass of `climb` moves no batch-norm statistics.
    """
    statistics = [(buffer, buffer.clone()) for buffer in module.buffers()]
    climb()
    put_back(statistics)
    before: Weights = []
    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim > 1 and weight.grad is not None:
                before.append((weight, weight.detach().clone()))
                length = weight.grad.norm().clamp(min=1e-12)
                weight.add_(weight.grad * (gamma * weight.norm() / length))
    return before


@torch.no_grad()
def put_back(before: Weights) -> None:
    """Undo `climbed`, bit for bit."""
    for tensor, value in before:
        tensor.copy_(value)
