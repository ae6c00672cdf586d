"""Builds the classifier that a scenario names."""

from __future__ import annotations

from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.data import ImageData
from carso.scenario import Classifier


def build(settings: Classifier, data: ImageData) -> WideResNet:
    """The scenario's WideResNet for the classes, channels and pixel statistics of `data`."""
    return WideResNet(
        settings.depth,
        settings.width,
        classes=len(data.classes),
        channels=data.image_shape[0],
        strides=settings.strides,
        mean=data.mean,
        std=data.std,
    )


def layers_of(settings: Classifier) -> tuple[str, ...]:
    """The layers whose activations are the representation."""
    return settings.layers or conditioning_layers(settings.depth)
