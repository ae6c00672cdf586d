"""What more than one table of a scenario file may say, and how a wrong value is refused."""

from __future__ import annotations

from carso.errors import CarsoError

AGGREGATIONS = (
    "double-exponential",
    "mean-logits",
    "mean-probabilities",
    "majority-vote",
    "anchored",
)
"""Names of `carso.defence.aggregation`, which this room must not import."""
AUGMENTATIONS = ("none", "nudge", "warp", "flip", "flip-shift")


def check(condition: bool, key: str, wanted: str, got: object) -> None:
    """One line that names the key, what it must be and what it was."""
    if not condition:
        raise CarsoError(f"{key} must be {wanted}, got {got!r}")


def check_least(settings: object, least: int, *keys: str) -> None:
    """Each of these settings is at least so large."""
    for key in keys:
        value = getattr(settings, key)
        check(value >= least, key, f"at least {least}", value)


def check_step_size(value: float, *, needed: bool) -> None:
    """How large it may be depends on the norm: `Scenario` sees to that. Where nothing attacks, it
    may be left out."""
    valid = value > 0 or (value == 0 and not needed)
    check(valid, "attack_step_size", "above 0, on the [0, 1] pixel scale", value)


def check_sigma(value: float, *, where: str, needed: bool) -> None:
    """The deviation of Gaussian noise: there where it is needed, and nowhere else."""
    if needed:
        check(value > 0, "sigma", f"above 0, on the [0, 1] pixel scale, where {where}", value)
    else:
        check(value == 0, "sigma", f"left out but where {where}", value)
