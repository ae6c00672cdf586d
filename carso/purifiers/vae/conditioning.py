"""Activations to condition c: layerwise encoders, then one fully connected layer (section 4.3).

Module names follow the authors' published files: `layerwise.LAYER.STAGE.{0: conv, 1: norm}` and
`fully_connected.1.{0: linear, 1: norm}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from carso.errors import CarsoError

SLOPE = 0.2
"""Of every leaky ReLU in the paper's tables."""
HALF = 0.5
"""The channels that each stage of a layerwise encoder keeps, in the paper."""


class Conditioning(nn.Module):
    """The representation, compressed to `features` numbers per image."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        *,
        features: int,
        stages: int = 3,
        ratio: float = HALF,
    ) -> None:
        super().__init__()
        encoders, total = [], 0
        for shape in shapes:
            encoder, encoded = layer_encoder(shape, stages=stages, ratio=ratio)
            encoders.append(encoder)
            total += encoded
        self.layerwise = nn.ModuleList(encoders)
        self.fully_connected = nn.Sequential(
            Concatenate(),
            nn.Sequential(
                nn.Linear(total, features, bias=False),
                nn.BatchNorm1d(features),
                nn.LeakyReLU(SLOPE),
            ),
        )

    def forward(self, activations: Sequence[Tensor]) -> Tensor:
        if len(activations) != len(self.layerwise):
            raise CarsoError(
                f"this purifier reads {len(self.layerwise)} layers, got {len(activations)}"
            )
        encoded = [
            encoder(channels_second(activation))
            for encoder, activation in zip(self.layerwise, activations, strict=True)
        ]
        return self.fully_connected(encoded)  # type: ignore[no-any-return]  # (B, features)


class Concatenate(nn.Module):
    """Flattens each tensor and joins them to one vector per image."""

    def forward(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)


def layer_encoder(
    shape: tuple[int, ...], *, stages: int, ratio: float = HALF
) -> tuple[nn.Sequential, int]:
    """The encoder of one activation (without batch), and how many features it gives.

    Each stage is a 3x3 convolution without padding that keeps a share `ratio` of the channels, in
    the paper a half. Tokens
    (T, C) get the same along T, vectors (F,) a linear layer. A side shorter than the kernel is
    padded, so that a small layer keeps its size instead of vanishing.
    """
    channels, *sides = shape if len(shape) != 2 else (shape[1], shape[0])
    stack: list[nn.Module] = []
    for _ in range(stages):
        kept = math.ceil(channels * ratio)
        padding = tuple(0 if side >= 3 else 1 for side in sides)
        stack.append(stage(channels, kept, padding=padding))
        sides = [side - 2 if side >= 3 else side for side in sides]
        channels = kept
    return nn.Sequential(*stack), channels * math.prod(sides)


def stage(channels_in: int, channels_out: int, *, padding: tuple[int, ...]) -> nn.Sequential:
    """Convolution over as many sides as `padding` has, batch norm, leaky ReLU."""
    layers: tuple[nn.Module, nn.Module]
    if len(padding) == 2:
        conv = nn.Conv2d(channels_in, channels_out, 3, padding=padding, bias=False)
        layers = conv, nn.BatchNorm2d(channels_out)
    elif len(padding) == 1:
        along = nn.Conv1d(channels_in, channels_out, 3, padding=padding[0], bias=False)
        layers = along, nn.BatchNorm1d(channels_out)
    else:
        linear = nn.Linear(channels_in, channels_out, bias=False)
        layers = linear, nn.BatchNorm1d(channels_out)
    return nn.Sequential(*layers, nn.LeakyReLU(SLOPE))


def channels_second(activation: Tensor) -> Tensor:
    """Tokens (B, T, C) as (B, C, T); images and vectors as they are."""
    return activation.transpose(1, 2) if activation.ndim == 3 else activation
