"""A scenario: everything that decides a run, in one short TOML file.

`carso/scenarios/*.toml` ship with the package. A file of the user's own has the same tables.
Each table below is a frozen dataclass that checks its own values; `read` turns a misspelt key or
a value out of range into one line that names the file, the line and the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from carso.scenario.purifier_settings import PurifierSettings
from carso.scenario.training_settings import (
    AGGREGATIONS,
    ClassifierTrainingSettings,
    HardeningSettings,
    check,
)
from carso.threats.linf import Linf


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """[data]: which images."""

    set: str
    """A name of `carso.data.DATA_SETS`, or a folder with a folder of images per class."""
    fallback: str = ""
    """The set to use where `set` is not found; empty: none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierSettings:
    """[classifier]: the f that is defended, a WideResNet in the published layout."""

    depth: int = 28
    width: int = 10
    strides: tuple[int, ...] = (1, 2, 2)
    layers: tuple[str, ...] = ()
    """The representation; empty: the paper's choice for this depth."""
    weights: tuple[str, ...] = ()
    """Published files of these weights, the paper's first (for those who fetch them)."""
    training: ClassifierTrainingSettings | None = None

    def __post_init__(self) -> None:
        valid = self.depth >= 10 and (self.depth - 4) % 6 == 0
        check(valid, "depth", "6n + 4 (10, 16, 22, 28, ...)", self.depth)
        check(self.width >= 1, "width", "at least 1", self.width)
        valid = len(self.strides) == 3 and set(self.strides) <= {1, 2}
        check(valid, "strides", "three numbers of 1 or 2", self.strides)


@dataclass(frozen=True, kw_only=True, slots=True)
class DefenceSettings:
    """[defence]: how candidates become a prediction."""

    samples: int = 8
    aggregation: str = "double-exponential"

    def __post_init__(self) -> None:
        check(self.samples >= 1, "samples", "at least 1", self.samples)
        known = self.aggregation in AGGREGATIONS
        check(known, "aggregation", f"one of {AGGREGATIONS}", self.aggregation)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """A whole run: data, threat, classifier, purifier, defence, and the seed of it all."""

    name: str
    summary: str
    seed: int = 0
    preset: str = ""
    data: DataSettings
    threat: Linf
    classifier: ClassifierSettings
    purifier: PurifierSettings
    hardening: HardeningSettings | None = None
    defence: DefenceSettings = field(default_factory=DefenceSettings)

    def __post_init__(self) -> None:
        trained = self.purifier.training is not None or self.hardening is not None
        check(trained, "purifier", "trained, by [purifier.training] or by [hardening]", "neither")

    @property
    def training_threat(self) -> Linf:
        """The ball of the paper's training attacks."""
        attacks = self.purifier.attacks
        return Linf(eps=attacks.eps) if attacks and attacks.eps else self.threat
