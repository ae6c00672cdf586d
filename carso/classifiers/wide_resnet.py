"""WideResNet in the layout in which robust classifiers are published.

Gowal, Rebuffi, Wang and Cui all publish their adversarially trained weights with these module
names and this arithmetic: pre-activation blocks, SiLU, and the "same" padding of TensorFlow.
Input normalisation belongs to the classifier, so that attacks and purifiers see [0, 1] images.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.errors import CarsoError


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, each convolution after batch norm and SiLU."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.batchnorm_0 = nn.BatchNorm2d(channels_in)
        own_padding = 1 if stride == 1 else 0  # at stride 2 `same_padding` pads instead
        self.conv_0 = nn.Conv2d(
            channels_in, channels_out, 3, stride=stride, padding=own_padding, bias=False
        )
        self.batchnorm_1 = nn.BatchNorm2d(channels_out)
        self.conv_1 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if channels_in != channels_out or stride != 1:
            self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        activated = F.silu(self.batchnorm_0(x))
        residual = x if self.shortcut is None else self.shortcut(activated)
        padded = activated if self.stride == 1 else same_padding(activated)
        out = self.conv_0(padded)  # (B, C', ceil(H / stride), ceil(W / stride))
        out = self.conv_1(F.silu(self.batchnorm_1(out)))
        combined: Tensor = residual + out
        return combined


def same_padding(x: Tensor) -> Tensor:
    """Zeros such that a 3x3 convolution of stride 2 gives ceil(size / 2).

    An even side is padded at its end only, as TensorFlow does; an odd side at both.
    """
    top, left = x.shape[-2] % 2, x.shape[-1] % 2
    return F.pad(x, (left, 1, top, 1))


class WideResNet(nn.Module):
    """WideResNet-`depth`-`width`; WRN-28-10 is the classifier of all scenarios of the paper."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        depth: int,
        width: int,
        classes: int,
        channels: int = 3,
        *,
        strides: Sequence[int] = (1, 2, 2),
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise CarsoError(f"a WideResNet's depth is 6n + 4 (10, 16, 22, 28, ...), got {depth}")
        if len(strides) != 3 or not set(strides) <= {1, 2}:
            raise CarsoError(f"strides are three numbers of 1 or 2, got {tuple(strides)}")
        blocks = (depth - 4) // 6
        widths = (16, 16 * width, 32 * width, 64 * width)
        self.init_conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.layer = nn.Sequential(
            *(group(widths[i], widths[i + 1], blocks=blocks, stride=strides[i]) for i in range(3))
        )
        self.batchnorm = nn.BatchNorm2d(widths[3])
        self.logits = nn.Linear(widths[3], classes)
        # The published files hold no mean and std, hence not persistent.
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        x = self.init_conv((images - self.mean) / self.std)  # (B, 16, H, W)
        x = F.silu(self.batchnorm(self.layer(x)))
        return self.logits(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]  # (B, K)


class Group(nn.Module):
    """A run of blocks at one resolution; a module only so that names read `layer.0.block.0`."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.block = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)  # type: ignore[no-any-return]


def group(channels_in: int, channels_out: int, *, blocks: int, stride: int) -> Group:
    """`blocks` blocks, of which the first widens and strides."""
    first = Block(channels_in, channels_out, stride)
    rest = (Block(channels_out, channels_out, 1) for _ in range(blocks - 1))
    return Group([first, *rest])


def conditioning_layers(depth: int) -> tuple[str, ...]:
    """The layers of the paper's representation: every 3x3 convolution of every block, and the
    shortcuts of the second and third group (its table of layers, for WRN-28-10)."""
    names = []
    for g in range(3):
        for b in range((depth - 4) // 6):
            names += [f"layer.{g}.block.{b}.conv_0", f"layer.{g}.block.{b}.conv_1"]
            if b == 0 and g > 0:
                names.append(f"layer.{g}.block.{b}.shortcut")
    return tuple(names)
