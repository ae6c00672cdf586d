"""Batch norm over the batch of all processes, on CPUs too.

torch's `SyncBatchNorm` refuses CPU tensors. Here the sums of a batch are all-reduced with
gradients, so that statistics and gradients are those of one process on the whole batch.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from carso.distributed.processes import Processes, collective


class Summed(torch.autograd.Function):
    """The sum of the processes' tensors, whose gradients are summed on the way back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.contiguous().clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        with collective():
            torch.distributed.all_reduce(total)
        return total


def summed(tensor: Tensor) -> Tensor:
    with collective():
        return cast(Tensor, Summed.apply(tensor))  # type: ignore[no-untyped-call]


class SynchronisedBatchNorm(_BatchNorm):
    """Any of torch's batch norms, with the statistics of all processes' images in training."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"a batch of channels is wanted, got shape {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        return self.synced(input.float()).to(input.dtype)

    def synced(self, input: Tensor) -> Tensor:
        """In float32: the sums of a large batch need its digits."""
        channels = [1, -1] + [1] * (input.ndim - 2)
        others = [side for side in range(input.ndim) if side != 1]
        count = input.new_tensor([input.numel() / max(1, input.shape[1])])
        total = summed(torch.cat([input.sum(dim=others), count]))
        number = total[-1].detach()
        mean = total[:-1] / number
        centred = input - mean.view(channels)
        variance = summed(centred.square().sum(dim=others)) / number
        self.remember(mean.detach(), variance.detach(), number)
        scaled = centred * torch.rsqrt(variance + self.eps).view(channels)
        if self.weight is not None and self.bias is not None:
            scaled = scaled * self.weight.view(channels) + self.bias.view(channels)
        return scaled

    @torch.no_grad()
    def remember(self, mean: Tensor, variance: Tensor, number: Tensor) -> None:
        """Move the running statistics, as torch does, with the unbiased variance."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:  # a plain average over all batches
            share = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * number / (number - 1), share)


def synced(module: nn.Module, processes: Processes, device: torch.device) -> nn.Module:
    """`module` with its batch norms over the batch of all processes; state dicts stay the same."""
    if processes.world_size == 1:
        return module
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call, no-any-return]
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm) and not isinstance(child, SynchronisedBatchNorm):
                setattr(parent, name, like(child))
    return module


def like(norm: _BatchNorm) -> SynchronisedBatchNorm:
    """A synced batch norm that takes the place of `norm`, with its very tensors."""
    result = SynchronisedBatchNorm(
        norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats
    )
    result.weight, result.bias = norm.weight, norm.bias
    result.running_mean, result.running_var = norm.running_mean, norm.running_var
    result.num_batches_tracked = norm.num_batches_tracked
    return result.train(norm.training)
