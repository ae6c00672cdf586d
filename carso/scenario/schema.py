"""A scenario: everything that decides a run, in one short TOML file.

Those in `carso/scenario/scenarios` ship with the package; a file of the user's own has the same
tables. Each table is a frozen dataclass that checks its own values; `parser.read` turns a misspelt
key or a value out of range into one line that names the file, the line and the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from carso.scenario.allowed_values import AGGREGATIONS, check
from carso.scenario.classifier_settings import ClassifierSettings
from carso.scenario.hardening_settings import HardeningSettings
from carso.scenario.purifier_settings import PurifierSettings
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """[data]: which images."""

    set: str
    """A name of `carso.data.DATA_SETS`, or a folder with a folder of images per class."""
    fallback: str = ""
    """The set to use where `set` is not found; empty: none."""


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
    threat: Threat
    classifier: ClassifierSettings
    purifier: PurifierSettings
    hardening: HardeningSettings | None = None
    defence: DefenceSettings = field(default_factory=DefenceSettings)

    def __post_init__(self) -> None:
        trained = self.purifier.training is not None or self.hardening is not None
        check(trained, "purifier", "trained, by [purifier.training] or by [hardening]", "neither")
        if self.threat.norm == "Linf":  # in other norms a length may exceed the range of a pixel
            for key, value in self.lengths().items():
                check(value <= 1, key, "on the [0, 1] pixel scale (8/255 = 0.0314)", value)

    def lengths(self) -> dict[str, float]:
        """Radii and steps of the training attacks, by their place in the file."""
        found = {}
        if training := self.classifier.training:
            found["classifier.training.attack_step_size"] = training.attack_step_size
        if attacks := self.purifier.attacks:
            found["purifier.attacks.eps"] = attacks.eps
            found["purifier.attacks.step_size"] = attacks.step_size
        if self.hardening:
            found["hardening.eps"] = self.hardening.eps
            found["hardening.attack_step_size"] = self.hardening.attack_step_size
        return found

    @property
    def training_threat(self) -> Threat:
        """The ball of the paper's training attacks."""
        attacks = self.purifier.attacks
        return self.threat.with_eps(attacks.eps) if attacks and attacks.eps else self.threat
