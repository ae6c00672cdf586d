"""Weights that others have trained, known by the SHA-256 of their file.

What a network needs besides its weights stands here: its layout, how it normalises, and the
scenario whose images and threat it was trained for. One of these files comes with an installed
package; the others are for whoever has fetched them.
"""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass, replace
from pathlib import Path

from carso.errors import CarsoError
from carso.scenario.classifier_settings import ClassifierSettings
from carso.storage import files


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFile:
    """One row of the table."""

    title: str
    sha256: str
    settings: ClassifierSettings
    scenario: str
    """The shipped scenario whose images and threat are those of this network."""
    published: str = ""
    """Where it is published: the file, and the repository that has it."""
    inside: tuple[str, str] = ("", "")
    """The installed package that has the file, and its path in there."""


IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

KNOWN: dict[str, KnownFile] = {
    "autoattack-resnet18": KnownFile(
        title="ResNet-18 of AutoAttack's example, trained on clean CIFAR-10 (MIT)",
        sha256="399f52da9f914c323fa5a6096d60f460a3449a59b64a6405200c1e629f8425a7",
        settings=ClassifierSettings(kind="autoattack-resnet18"),
        scenario="cifar10",
        inside=("pyautoattack", "examples/model_test.pt"),
    ),
    "akamaster-resnet20": KnownFile(
        title="ResNet-20 by Yerlan Idelbayev, trained on clean CIFAR-10 (BSD-2)",
        sha256="12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
        settings=ClassifierSettings(kind="resnet", depth=20, mean=IMAGENET_MEAN, std=IMAGENET_STD),
        scenario="cifar10",
        published="pretrained_models/resnet20-12fca82f.th of akamaster/pytorch_resnet_cifar10",
    ),
    "convex-fashion": KnownFile(
        title="Fashion-MNIST by Wong and Kolter, provably trained for eps = 0.1 (MIT)",
        sha256="b90cca41cc42b427d5ba1d1c10d90a5a8b6b5219538a3a4d1c6f825d3f612bc5",
        settings=ClassifierSettings(kind="convex-fashion"),
        scenario="fashion",
        published="models/fashion_mnist.pth of locuslab/convex_adversarial",
    ),
}


def installed() -> list[str]:
    """The names whose weights need no file of the user's."""
    return [name for name, row in KNOWN.items() if row.inside[0]]


def installed_file(name: str) -> Path:
    """The weights of an installed network, after a check that they are those that are known."""
    package, inside = KNOWN[name].inside
    try:
        path = Path(str(importlib.resources.files(package))) / inside
    except ModuleNotFoundError:
        raise CarsoError(f"{name} lies in the package {package}: install it with pip") from None
    if not path.is_file() or files.sha256(path) != KNOWN[name].sha256:
        raise CarsoError(f"{path} is missing or not the file that {name} is: reinstall {package}")
    return path


def weight_file(classifier: Path) -> Path:
    """`classifier` itself, or the file of the installed network of this name."""
    return installed_file(str(classifier)) if str(classifier) in installed() else classifier


def recognised(path: Path) -> KnownFile | None:
    """The row of a weight file, told by its content; None if it is not a known one."""
    if path.suffix == ".py" or not path.is_file():
        return None
    found = files.sha256(path)
    return next((row for row in KNOWN.values() if row.sha256 == found), None)


def settled(settings: ClassifierSettings, weights: Path | None) -> ClassifierSettings:
    """`settings` as `weights` want them, where that is a known file: its own network and how it
    normalises. Layers that were chosen for another network do not go along."""
    known = recognised(weights) if weights is not None else None
    if known is None:
        return settings
    layers = settings.layers if settings.kind == known.settings.kind else ()
    return replace(known.settings, layers=layers)
