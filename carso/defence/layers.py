"""Which layers of a classifier a purifier reads, where the user leaves that open.

The early activations of a classifier still show the image; the late ones of a classifier that is
not robust belong to the attacker. So of each resolution the earliest is taken, and none that is
coarser than an eighth of the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from carso.classifiers.frozen import freeze
from carso.classifiers.registry import layers_of
from carso.errors import CarsoError
from carso.scenario.classifier_settings import AUTO, ClassifierSettings

COARSEST = 8
"""How often the resolution of a layer that is taken may be halved: the image's side over it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer as a pass through the classifier shows it."""

    name: str
    shape: tuple[int, ...]
    """Of its activation, without the batch."""
    learned: bool
    """Whether it has weights, itself or inside: a mere normalisation shows the image as it is."""
    once: bool
    """Whether it runs once in a pass."""

    @property
    def resolution(self) -> tuple[int, int] | None:
        """Height and width of a map, or of tokens that are a square (with a class token or not)."""
        if len(self.shape) == 3:
            return self.shape[1], self.shape[2]
        if len(self.shape) == 2:
            for count in (self.shape[0], self.shape[0] - 1):
                side = math.isqrt(max(count, 0))
                if side > 1 and side * side == count:
                    return side, side
        return None


@torch.no_grad()
def layers_in(classifier: nn.Module, image_shape: Sequence[int]) -> list[Layer]:
    """Every layer whose activation a purifier could read, in the order in which they finish."""
    network = freeze(classifier).classifier
    reference = next(network.parameters(), torch.empty(0))
    probe = torch.zeros(1, *image_shape, device=reference.device, dtype=reference.dtype)
    found: dict[str, tuple[int, ...]] = {}
    calls: dict[str, int] = {}
    hooks = []
    for name, module in network.named_modules():
        if not name:
            continue

        def note(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            calls[name] = calls.get(name, 0) + 1
            if isinstance(output, Tensor) and output.ndim in (2, 3, 4) and len(output) == 1:
                found.setdefault(name, tuple(output.shape[1:]))

        hooks.append(module.register_forward_hook(note))
    try:
        network(probe)
    finally:
        for hook in hooks:
            hook.remove()
    modules = dict(network.named_modules())
    return [
        Layer(
            name=name,
            shape=shape,
            learned=next(modules[name].parameters(), None) is not None,
            once=calls[name] == 1,
        )
        for name, shape in found.items()
    ]


def earliest(layers: Sequence[Layer], image_shape: Sequence[int]) -> tuple[str, ...]:
    """The names of the first layer of each resolution, from fine to coarse."""
    taken: dict[tuple[int, int], str] = {}
    smallest = min(image_shape[1:]) / COARSEST
    for layer in layers:
        size = layer.resolution
        if layer.learned and layer.once and size is not None and min(size) >= smallest:
            taken.setdefault(size, layer.name)
    if not taken:
        raise CarsoError("no layer of this classifier shows a map of the image: name its layers")
    return tuple(taken[size] for size in sorted(taken, key=math.prod, reverse=True))


def chosen_layers(
    classifier: nn.Module, image_shape: Sequence[int], layers: str | Sequence[str]
) -> tuple[str, ...]:
    """The `layers` that are named, or for "auto" the earliest of each resolution."""
    names = (layers,) if isinstance(layers, str) else tuple(layers)
    if names != AUTO:
        return names
    return earliest(layers_in(classifier, image_shape), image_shape)


def layers_for(
    settings: ClassifierSettings, classifier: nn.Module, image_shape: Sequence[int]
) -> tuple[str, ...]:
    """The layers that a scenario reads of this classifier."""
    return chosen_layers(classifier, image_shape, layers_of(settings))
