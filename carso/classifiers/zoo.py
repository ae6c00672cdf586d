"""The classifiers that scenarios name: builders and the layers of their representation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.data import ImageData
from carso.scenario import Classifier


def build(settings: Classifier, data: ImageData) -> WideResNet:
    """The scenario's WideResNet for the classes, channels and pixel statistics of `data`."""
    return wide_resnet(
        settings,
        classes=len(data.classes),
        channels=data.image_shape[0],
        mean=data.mean,
        std=data.std,
    )


def wide_resnet(
    settings: Classifier,
    *,
    classes: int,
    channels: int,
    mean: Sequence[float],
    std: Sequence[float],
) -> WideResNet:
    """The scenario's WideResNet for given images."""
    return WideResNet(
        settings.depth,
        settings.width,
        classes=classes,
        channels=channels,
        strides=settings.strides,
        mean=mean,
        std=std,
    )


def layers_of(settings: Classifier) -> tuple[str, ...]:
    """The layers whose activations are the representation."""
    return settings.layers or conditioning_layers(settings.depth)


Module = TypeVar("Module", bound=nn.Module)


def placed(classifier: Module, device: torch.device) -> Module:
    """The classifier on `device` with channels last, on which convolutions run faster."""
    classifier.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier
