"""A small defence whose purifier adds noise to the image, and a classifier that counts passes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from carso.defence.aggregation import VIEWS
from carso.defence.defence import Carso
from carso.randomness import normal

SHAPE = (1, 8, 8)
CLASSES = 4
SAMPLES = 4
NAMES = (*VIEWS, "log-prob")


def images(count: int = 6, seed: int = 1) -> Tensor:
    return torch.rand(count, *SHAPE, generator=Generator().manual_seed(seed))


class Gaussian:
    """A purifier that adds noise to the image itself, which the classifier's first layer shows."""

    layers = ("see",)
    image_shape = None

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        (images,) = activations
        noise = normal((len(images), samples, *SHAPE), images, generator).transpose(0, 1)
        return torch.sigmoid(20 * (images + 0.02 * noise) - 6)


class Counting(nn.Module):
    """Counts the images that pass, batch by batch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.batches.append(len(x))
        return x


def classifier(scale: float = 1.0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = OrderedDict(
            see=Counting(),
            flat=nn.Flatten(),
            hidden=nn.Linear(64, 16),
            smooth=nn.SiLU(),
            out=nn.Linear(16, CLASSES),
        )
        network = nn.Sequential(layers)
    with torch.no_grad():
        network.out.weight *= scale
    return network.eval()


def defence(scale: float = 1.0, **settings: object) -> Carso:
    return Carso(classifier(scale), Gaussian(), samples=SAMPLES, **settings)  # type: ignore[arg-type]
