"""Images of your own: bytes and labels become a data set, and everything else takes that.

    python docs/examples/my_images.py

Two classes of 8 by 8 pixels are drawn here, stripes that lie and stripes that stand. A classifier
learns to tell them apart, and is then attacked.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import carso
from carso import data


def stripes(count: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Bytes (count, 1, 8, 8) and labels (count,): 0 lies, 1 stands."""
    noise = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    lying = torch.arange(8).remainder(2).mul(150).view(1, 1, 8, 1).expand(count, 1, 8, 8)
    images = torch.where(labels.view(-1, 1, 1, 1) == 0, lying, lying.transpose(2, 3))
    images = images + torch.randint(0, 100, images.shape, generator=noise)
    return images.to(torch.uint8), labels


def trained(images: data.ImageData, *, steps: int = 100) -> nn.Module:
    """A small classifier of these images."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 2)
        )
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    x, y = images.train.batch(slice(None))  # floats in [0, 1], and labels
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    return network


def main() -> None:
    mine = data.from_tensors(*stripes(400), classes=("lying", "standing"))
    x, y = mine.test.batch(slice(None))
    record = carso.evaluate(trained(mine), x, y, eps=0.2, suite="quick")
    print(record["verdict"])


if __name__ == "__main__":
    main()
