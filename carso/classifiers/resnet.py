"""The small ResNets that He et al. (2016) made for CIFAR-10: depth 20, 32, 44 or 56.

Module names are those under which pretrained weights of these networks are commonly published.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.errors import CarsoError


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, each with batch norm, around a shortcut that learns nothing."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.stride, self.added = stride, channels_out - channels_in

    def forward(self, x: Tensor) -> Tensor:
        residual = F.relu(self.bn1(self.conv1(x)))
        residual = self.bn2(self.conv2(residual))
        return F.relu(residual + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """Every second pixel at stride 2; channels that `x` lacks are zeros, half of them before
        its own and half after."""
        x = x[:, :, :: self.stride, :: self.stride]  # (B, C, ceil(H / stride), ceil(W / stride))
        before = self.added // 2
        return F.pad(x, (0, 0, 0, 0, before, self.added - before)) if self.added else x


class SmallResNet(nn.Module):
    """ResNet-`depth` with 16, 32 and 64 channels, on images in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        depth: int,
        classes: int,
        channels: int = 3,
        *,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise CarsoError(f"such a ResNet's depth is 6n + 2 (20, 32, 44, 56, ...), got {depth}")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = residual_blocks(16, 16, blocks=blocks, stride=1)
        self.layer2 = residual_blocks(16, 32, blocks=blocks, stride=2)
        self.layer3 = residual_blocks(32, 64, blocks=blocks, stride=2)
        self.linear = nn.Linear(64, classes)
        # Published files hold no mean and std, hence not persistent.
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1((images - self.mean) / self.std)))  # (B, 16, H, W)
        x = self.layer3(self.layer2(self.layer1(x)))  # (B, 64, H / 4, W / 4)
        return self.linear(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]  # (B, K)


def residual_blocks(
    channels_in: int, channels_out: int, *, blocks: int, stride: int
) -> nn.Sequential:
    """`blocks` blocks, of which the first widens and strides."""
    first = ResidualBlock(channels_in, channels_out, stride)
    rest = (ResidualBlock(channels_out, channels_out, 1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)
