"""[purifier.attacks] and [purifier.training] of a scenario file: the paper's stage."""

from __future__ import annotations

from dataclasses import dataclass

from carso.scenario.allowed_values import check, check_least


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchAttackSettings:
    """[purifier.attacks]: the adversarially balanced batches of section 4.4."""

    eps: float = 0.0
    """Radius of the training attacks in the norm of [threat]; 0: the radius there."""
    fraction: float
    """Share of every batch that is attacked."""
    steps: int = 40
    step_size: float = 0.01
    bank: str = "memory"
    """Where attacked images are kept: "memory", "disk", or "off" (made anew each time)."""
    bank_refresh: int = 0
    """Make the bank anew every so many epochs; 0: never."""
    device_batch: int = 0
    """The released code rounds the shares down in each device's part of the batch, to nothing
    if the part is small; 0: no part of this size, and shares are carried over instead."""

    def __post_init__(self) -> None:
        check(self.eps >= 0, "eps", "at least 0, on the [0, 1] pixel scale", self.eps)
        check(0 <= self.fraction <= 1, "fraction", "a share in [0, 1]", self.fraction)
        check_least(self, 1, "steps")
        check(self.step_size > 0, "step_size", "above 0, per step", self.step_size)
        banks = ("memory", "disk", "off")
        check(self.bank in banks, "bank", f"one of {banks}", self.bank)
        check(self.bank_refresh >= 0, "bank_refresh", "at least 0 epochs", self.bank_refresh)
        check_least(self, 0, "device_batch")


@dataclass(frozen=True, kw_only=True, slots=True)
class PurifierTrainingSettings:
    """[purifier.training]: the paper's table of hyperparameters."""

    epochs: int
    batch_size: int
    initial_rate: float = 5e-9
    plateau_rate: float
    final_rate: float
    warmup_epochs: int
    plateau_epochs: int
    beta_start: int
    """Epoch up to which the KL term has no weight."""
    beta_end: int
    """Epoch from which it has its full weight."""
    beta: float = 1.0
    """That full weight; the paper's is 1."""
    free_bits: float = 0.0
    """Nats of KL that each latent feature has for free; the paper's is 0."""
    radam_beta1: float = 0.9
    radam_beta2: float = 0.999
    radam_eps: float = 1e-8
    weight_decay: float = 0.0
    lookahead_steps: int = 6
    lookahead_decay: float = 0.8

    def __post_init__(self) -> None:
        check_least(self, 1, "epochs", "lookahead_steps")
        check_least(self, 2, "batch_size")
        check_least(self, 0, "warmup_epochs", "plateau_epochs", "beta_start", "weight_decay")
        check_least(self, 0, "radam_eps", "beta", "free_bits")
        for key in ("initial_rate", "plateau_rate", "final_rate"):
            check(getattr(self, key) > 0, key, "above 0", getattr(self, key))
        for key in ("radam_beta1", "radam_beta2"):
            check(0 <= getattr(self, key) < 1, key, "in [0, 1)", getattr(self, key))
        check(
            self.warmup_epochs + self.plateau_epochs <= self.epochs,
            "warmup_epochs + plateau_epochs",
            f"at most epochs = {self.epochs}",
            self.warmup_epochs + self.plateau_epochs,
        )
        check(self.beta_end >= self.beta_start, "beta_end", "at least beta_start", self.beta_end)
        check(0 < self.lookahead_decay <= 1, "lookahead_decay", "in (0, 1]", self.lookahead_decay)
