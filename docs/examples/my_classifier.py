"""A classifier of one's own, for `--classifier my_classifier.py`.

Carso asks one thing of it: images in [0, 1] go in, logits come out. What the network wants to be
done to images before that, it does itself.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

WEIGHTS = Path(__file__).with_name("my_weights.pt")
"""Where your training script has put `network.state_dict()`."""


class Normalised(nn.Module):
    """A network that was trained on images with mean 0 and deviation 1."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: float, std: float) -> None:
        super().__init__()
        self.network = network
        # Buffers move with the model to a GPU; these are constants, so no weight file has them.
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.network((images - self.mean) / self.std)


def classifier() -> nn.Module:
    """What carso calls. It must give the same weights each time."""
    network = nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, 10),
    )
    network.load_state_dict(torch.load(WEIGHTS, weights_only=True, map_location="cpu"))
    return Normalised(network, mean=0.286, std=0.353)
