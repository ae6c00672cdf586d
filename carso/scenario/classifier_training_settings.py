"""[classifier.training] of a scenario file."""

from __future__ import annotations

from dataclasses import dataclass

from carso.scenario.allowed_values import (
    AUGMENTATIONS,
    check,
    check_least,
    check_sigma,
    check_step_size,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassifierTrainingSettings:
    """[classifier.training]: for those who bring no classifier."""

    method: str = "pgd"
    """"pgd" (Madry et al.), "trades" (Zhang et al.), "clean", or "noise" (Cohen et al.)."""
    sigma: float = 0.0
    """Deviation of the Gaussian noise of "noise", on the [0, 1] pixel scale; nothing is clipped."""
    epochs: int
    batch_size: int = 128
    learning_rate: float = 0.1
    """The peak of the one-cycle rate (SGD with Nesterov momentum)."""
    warmup: float = 0.25
    """Share of the run in which the rate rises."""
    momentum: float = 0.9
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    attack_steps: int = 10
    attack_step_size: float = 0.0
    """Of the training PGD, in the unit of the threat's eps."""
    trades_weight: float = 6.0
    average: float = 0.999
    """Decay of the averaged weights, which are the ones that are kept."""
    augment: str = "none"
    """"none", "nudge" (by a pixel), "warp" (turned, stretched and bent a little), "flip", or
    "flip-shift" (by up to an eighth of the side)."""

    def __post_init__(self) -> None:
        methods, augmentations = ("pgd", "trades", "clean", "noise"), AUGMENTATIONS
        check(self.method in methods, "method", f"one of {methods}", self.method)
        check_sigma(self.sigma, where='method is "noise"', needed=self.method == "noise")
        check_least(self, 1, "epochs", "attack_steps")
        check_least(self, 2, "batch_size")
        check_least(self, 0, "weight_decay", "trades_weight")
        check(self.learning_rate > 0, "learning_rate", "above 0", self.learning_rate)
        check(0 < self.warmup < 1, "warmup", "a share in (0, 1)", self.warmup)
        check(0 <= self.momentum < 1, "momentum", "in [0, 1)", self.momentum)
        check(0 <= self.label_smoothing < 1, "label_smoothing", "in [0, 1)", self.label_smoothing)
        check_step_size(self.attack_step_size, needed=self.method in ("pgd", "trades"))
        check(0 <= self.average < 1, "average", "in [0, 1)", self.average)
        check(self.augment in augmentations, "augment", f"one of {augmentations}", self.augment)
