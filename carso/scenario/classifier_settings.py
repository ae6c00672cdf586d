"""[classifier] of a scenario: which network is defended, and how it is trained if it is not
brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from carso.scenario.allowed_values import check
from carso.scenario.classifier_training_settings import ClassifierTrainingSettings

NETWORK_KEYS: Mapping[str, Mapping[str, Any]] = {
    "wide-resnet": {"depth": 28, "width": 10, "strides": (1, 2, 2), "mean": (), "std": ()},
    "resnet": {"depth": 20, "mean": (), "std": ()},
    "autoattack-resnet18": {},
    "convex-fashion": {},
}
"""Of each kind of network, what a scenario may say of it, and what holds if it does not."""

AUTO = ("auto",)
"""The `layers` of a scenario that leaves their choice to the classifier's own pass."""
EVERY_NETWORK_KEY = ("depth", "width", "strides", "mean", "std")
RESNET_DEPTHS = (20, 32, 44, 56)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierSettings:
    """[classifier]: the f that is defended."""

    kind: str = "wide-resnet"
    """A name of `carso.classifiers.registry.KINDS`."""
    depth: int | None = None
    """None, in this and the next two: what the kind has, if it has such a thing."""
    width: int | None = None
    strides: tuple[int, ...] | None = None
    mean: tuple[float, ...] = ()
    """What the network subtracts from images in [0, 1], a number per channel; empty: the mean of
    the data set."""
    std: tuple[float, ...] = ()
    """What it divides by after that; empty: the deviation of the data set."""
    layers: tuple[str, ...] = ()
    """The representation; empty: the layers that the kind has for it; "auto": the earliest of each
    resolution, whatever the network."""
    weights: tuple[str, ...] = ()
    """Published files of these weights, the paper's first (for those who fetch them)."""
    training: ClassifierTrainingSettings | None = None

    def __post_init__(self) -> None:
        check(self.kind in NETWORK_KEYS, "kind", f"one of {tuple(NETWORK_KEYS)}", self.kind)
        for key in EVERY_NETWORK_KEY:
            value = getattr(self, key)
            if key not in NETWORK_KEYS[self.kind]:
                unsaid = value is None or value == ()
                check(unsaid, key, f"left out where kind is {self.kind!r}", value)
            elif value is None:
                own = NETWORK_KEYS[self.kind][key]
                object.__setattr__(self, key, own)  # the only way in a frozen dataclass
        if self.kind == "wide-resnet":
            depth, width, strides = self.network("depth", "width", "strides")
            valid = depth >= 10 and (depth - 4) % 6 == 0
            check(valid, "depth", "6n + 4 (10, 16, 22, 28, ...)", depth)
            check(width >= 1, "width", "at least 1", width)
            valid = len(strides) == 3 and set(strides) <= {1, 2}
            check(valid, "strides", "three numbers of 1 or 2", strides)
        if self.kind == "resnet":
            check(self.depth in RESNET_DEPTHS, "depth", f"one of {RESNET_DEPTHS}", self.depth)
        if self.kind == "autoattack-resnet18":
            wanted = f"left out where kind is {self.kind!r}, whose weights come with it"
            check(self.training is None, "training", wanted, "a table")
        check(len(self.mean) == len(self.std), "std", "as long as mean", self.std)
        check(all(value > 0 for value in self.std), "std", "above 0", self.std)

    def network(self, *keys: str) -> list[Any]:
        """The values of settings that this kind has, so that they are not None."""
        return [getattr(self, key) for key in keys]
