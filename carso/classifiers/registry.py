"""The classifiers that scenarios name: builders and the layers of their representation."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.data import ImageData, ImageFacts
from carso.errors import CarsoError
from carso.scenario.schema import ClassifierSettings
from carso.storage.tensor_files import load_weights


def build(settings: ClassifierSettings, data: ImageData | ImageFacts) -> WideResNet:
    """The scenario's WideResNet for the classes, channels and pixel statistics of `data`."""
    return wide_resnet(
        settings,
        classes=len(data.classes),
        channels=data.image_shape[0],
        mean=data.mean,
        std=data.std,
    )


def wide_resnet(
    settings: ClassifierSettings,
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


def layers_of(settings: ClassifierSettings) -> tuple[str, ...]:
    """The layers whose activations are the representation."""
    return settings.layers or conditioning_layers(settings.depth)


def of_user(path: Path) -> nn.Module:
    """The classifier that a Python file of the user's own makes, in its function `classifier()`.

    The file is run: it is code that the user trusts, as an import is. Weights are its own affair.
    """
    if path.suffix != ".py":
        raise CarsoError(f"{path} is no Python file; one with a function classifier() is wanted")
    sys.path.insert(0, str(path.resolve().parent))  # for the modules beside it
    try:
        make = runpy.run_path(str(path)).get("classifier")
        made = make() if callable(make) else None
    except (Exception, SystemExit) as error:
        first = next(iter(str(error).splitlines()), "")
        raise CarsoError(f"{path} failed: {type(error).__name__}: {first}") from None
    finally:
        sys.path.pop(0)
    if make is None:
        raise CarsoError(f"{path} defines no function classifier()")
    if not isinstance(made, nn.Module):
        raise CarsoError(f"classifier() of {path} gives {type(made).__name__}, not a torch module")
    return made


def given(path: Path, settings: ClassifierSettings, data: ImageData) -> nn.Module:
    """The classifier in a file: a Python file makes one, any other holds the network's weights."""
    if path.suffix == ".py":
        return of_user(path)
    classifier = build(settings, data)
    load_weights(classifier, path)
    return classifier


Module = TypeVar("Module", bound=nn.Module)


def placed(classifier: Module, device: torch.device) -> Module:
    """The classifier on `device`, its weights with channels last: convolutions are faster so."""
    classifier.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier
