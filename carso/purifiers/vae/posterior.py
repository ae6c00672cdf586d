"""(image, c) to mean and log-variance of the latent code; needed in training only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from carso.purifiers.vae.conditioning import SLOPE, Concatenate


class Posterior(nn.Module):
    """The disjoint input encoder and the joint encoder (the paper's tables of these names)."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        *,
        latent: int,
        condition: int,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        channels, height, width = image_shape
        self.input_encoder = nn.Sequential(
            halving(channels, 2 * channels), halving(2 * channels, 4 * channels)
        )
        encoded = 4 * channels * quarter(height) * quarter(width)
        self.joint_encoder = nn.Sequential(
            Concatenate(),
            nn.Linear(encoded + condition, latent, bias=False),
            nn.BatchNorm1d(latent),
            nn.LeakyReLU(SLOPE),
        )
        self.to_mean = nn.Linear(latent, latent)
        self.to_logvar = nn.Linear(latent, latent)
        # Images are standardised with the statistics of the training set.
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        encoded = self.input_encoder((images - self.mean) / self.std)
        joint = self.joint_encoder([encoded, condition])  # (B, latent)
        return self.to_mean(joint), self.to_logvar(joint)


def halving(channels_in: int, channels_out: int) -> nn.Sequential:
    """A convolution of stride 2, batch norm, leaky ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.LeakyReLU(SLOPE),
    )


def quarter(size: int) -> int:
    """A side after two halvings that round up."""
    return ((size + 1) // 2 + 1) // 2
