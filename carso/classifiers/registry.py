"""The kinds of classifiers that scenarios name: how each is built, and what belongs to it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from carso.classifiers.resnet import SmallResNet
from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.data import ImageData, ImageFacts
from carso.scenario.classifier_settings import ClassifierSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierKind:
    """One row of the table."""

    build: Callable[[ClassifierSettings, ImageData | ImageFacts], nn.Module]
    """The untrained network for these images; it takes them in [0, 1], whatever it does to them
    inside."""
    layers: Callable[[ClassifierSettings], tuple[str, ...]]
    """The layers worth reading: the representation, where a scenario names none."""


def wide_resnet(settings: ClassifierSettings, images: ImageData | ImageFacts) -> nn.Module:
    depth, width, strides = settings.network("depth", "width", "strides")
    return WideResNet(
        depth,
        width,
        classes=len(images.classes),
        channels=images.image_shape[0],
        strides=strides,
        mean=settings.mean or images.mean,
        std=settings.std or images.std,
    )


def small_resnet(settings: ClassifierSettings, images: ImageData | ImageFacts) -> nn.Module:
    (depth,) = settings.network("depth")
    return SmallResNet(
        depth,
        classes=len(images.classes),
        channels=images.image_shape[0],
        mean=settings.mean or images.mean,
        std=settings.std or images.std,
    )


def autoattack_resnet18(settings: ClassifierSettings, images: ImageData | ImageFacts) -> nn.Module:
    """The network of AutoAttack's own example, CIFAR-10 only; it does not normalise."""
    code = importlib.import_module("pyautoattack.examples.resnet")
    return code.ResNet18()  # type: ignore[no-any-return]


def convex_fashion(settings: ClassifierSettings, images: ImageData | ImageFacts) -> nn.Module:
    """The network that Wong and Kolter (2018) trained to be provably robust on Fashion-MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),  # (B, 1568)
        nn.Linear(1568, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )


def early_layers(settings: ClassifierSettings) -> tuple[str, ...]:
    """An attack owns the late activations of a classifier that is not robust; the early ones still
    show the image."""
    return ("conv1", "layer1", "layer2")


KINDS: dict[str, ClassifierKind] = {
    "wide-resnet": ClassifierKind(
        build=wide_resnet, layers=lambda settings: conditioning_layers(*settings.network("depth"))
    ),
    "resnet": ClassifierKind(build=small_resnet, layers=early_layers),
    "autoattack-resnet18": ClassifierKind(build=autoattack_resnet18, layers=early_layers),
    "convex-fashion": ClassifierKind(build=convex_fashion, layers=lambda settings: ("0", "2")),
}
"""What each may be told is in `carso.scenario.classifier_settings.NETWORK_KEYS`."""


def build(settings: ClassifierSettings, images: ImageData | ImageFacts) -> nn.Module:
    """The scenario's network, untrained, for the classes, channels and statistics of `images`."""
    return KINDS[settings.kind].build(settings, images)


def layers_of(settings: ClassifierSettings) -> tuple[str, ...]:
    """The layers whose activations are the representation."""
    return settings.layers or KINDS[settings.kind].layers(settings)


Module = TypeVar("Module", bound=nn.Module)


def placed(classifier: Module, device: torch.device) -> Module:
    """The classifier on `device`, its weights with channels last: convolutions are faster so."""
    classifier.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier
