"""A few images for steps on the pretended device, and a look at where tensors are."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

import carso
from carso import data
from carso.data import ImageData

COUNT = 10


def few() -> ImageData:
    images = data.load("fashion-embedded")
    return replace(
        images,
        train=images.train.balanced(COUNT),
        validation=images.validation.balanced(COUNT),
        test=images.test.balanced(COUNT),
    )


def batch() -> tuple[Tensor, Tensor]:
    return few().test.batch(slice(None))


def everything_is_on(device: torch.device, defence: carso.Carso) -> None:
    """Weights, statistics and answers."""
    tensors = [*defence.parameters(), *defence.buffers(), defence(batch()[0].to(device))]
    assert {one.device.type for one in tensors} == {device.type}
