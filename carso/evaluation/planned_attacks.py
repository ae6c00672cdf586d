"""An attack of a suite, a suite, and the attacks that suites are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast

from carso.attacks.apgd import APGD
from carso.attacks.attack import Attack
from carso.attacks.autoattack import AutoAttack
from carso.attacks.fab import FAB
from carso.attacks.margin import Margin, Noise
from carso.attacks.pgd import PGD
from carso.attacks.refine import Refine
from carso.attacks.saved import saved
from carso.attacks.square import Square
from carso.errors import CarsoError
from carso.evaluation.attacked_model import AttackedView


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedAttack:
    """One attack of a suite."""

    name: str
    what: str
    """In plain words, for reports."""
    attack: Attack
    through: AttackedView | None
    """The view that it differentiates; None: the classifier alone, so a transfer attack."""
    weakest: float = 1.0
    """The share of the standing images that it attacks: those with the smallest margins so far."""

    def __post_init__(self) -> None:
        if not 0 < self.weakest <= 1:
            raise CarsoError(f"a share of the images is above 0 and at most 1, got {self.weakest}")

    @property
    def own(self) -> bool:
        """Whether it attacks the defence's own output, as published protocols do."""
        return self.through is not None and self.through.name in ("log-prob", "released")

    @property
    def released(self) -> bool:
        """Whether it attacks the log-odds as the released code computes them."""
        return self.through is not None and self.through.name == "released"

    @property
    def inside(self) -> bool:
        """Whether it follows a classifier inside the model instead of the model."""
        return self.through is not None and self.through.inside

    @property
    def black_box(self) -> bool:
        return self.attack.facts.black_box


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much the diagnostics spend."""

    images: int
    """The first so many images take part."""
    steps: int
    """Of the short margin attack behind the curve and the comparison of views."""
    queries: int
    """Of the black-box attack."""
    eps: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Points of the curve as multiples of the threat's eps, below the last point, at which nothing
    can hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """A list of attacks and the effort of the diagnostics."""

    name: str
    attacks: tuple[PlannedAttack, ...]
    effort: Effort
    independent: bool = False
    """Every attack on all images, as in the paper, instead of on those still standing."""

    def __post_init__(self) -> None:
        names = [planned.name for planned in self.attacks]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise CarsoError(
                f"a suite names each attack once, got {', '.join(sorted(twice))} more often"
            )


def transfer(seed: int, samples: int) -> PlannedAttack:
    return PlannedAttack(
        name="transfer",
        what="AutoAttack standard on the classifier alone; the examples are given to the defence",
        attack=AutoAttack(version="standard", seed=seed),
        through=None,
    )


def standard(seed: int, samples: int) -> PlannedAttack:
    return PlannedAttack(
        name="autoattack",
        what="AutoAttack standard: APGD-CE, targeted APGD-DLR, targeted FAB, Square",
        attack=AutoAttack(version="standard", seed=seed),
        through=AttackedView(),
    )


def autoattack_rand(planned: PlannedAttack) -> PlannedAttack:
    """AutoAttack as its authors run it on a model that draws."""
    return replace(
        planned,
        what="AutoAttack rand: APGD-CE and APGD-DLR, 100 steps, 20 EoT",
        attack=replace(cast(AutoAttack, planned.attack), version="rand"),
    )


def randaa(seed: int, samples: int) -> PlannedAttack:
    return PlannedAttack(
        name="randaa",
        what="AutoAttack rand: APGD-CE and APGD-DLR, 100 steps, 20 EoT, on the log-probabilities",
        attack=AutoAttack(version="rand", seed=seed),
        through=AttackedView(name="log-prob"),
    )


def randaa_released(seed: int, samples: int) -> PlannedAttack:
    return replace(
        randaa(seed, samples),
        name="randaa-released",
        what="AutoAttack rand, 100 steps, 20 EoT, on the log-odds as the released code computes "
        "them",
        through=AttackedView(name="released"),
    )


def pgd_eot(seed: int, samples: int) -> PlannedAttack:
    return PlannedAttack(
        name="pgd-eot",
        what="PGD, 200 steps of 0.007, 20 EoT, last iterate, on the log-probabilities",
        attack=PGD(steps=200, step_size=0.007, random_start=False, eot=20),
        through=AttackedView(name="log-prob"),
    )


def square(seed: int, samples: int) -> PlannedAttack:
    return black_box(5000)


def black_box(queries: int) -> PlannedAttack:
    return PlannedAttack(
        name="square",
        what=f"Square, {queries} queries of the defence itself, no gradients",
        attack=Square(queries=queries),
        through=AttackedView(name="log-prob"),
    )


def random_points(tries: int) -> PlannedAttack:
    return PlannedAttack(
        name="random-points",
        what=f"the worst of {tries} random points in the ball, no gradients",
        attack=Noise(tries=tries),
        through=AttackedView(name="log-prob"),
    )


SINGLE: dict[str, Callable[[int, int], PlannedAttack]] = {
    "transfer": transfer,
    "randaa": randaa,
    "randaa-released": randaa_released,
    "pgd-eot": pgd_eot,
    "square": square,
    "autoattack": standard,
}
"""The attacks that can be asked for by name, besides those of the suites."""


def margin(steps: int, restarts: int, through: AttackedView | None) -> PlannedAttack:
    """AttackedView a view of the defence, or with None through its classifier alone."""
    many = f", {restarts} random starts" if restarts > 1 else ""
    target = "classifier" if through is None else through.name
    return PlannedAttack(
        name=f"margin@{target}" + (f"x{restarts}" if restarts > 1 else ""),
        what=f"margin descent with momentum, {steps} steps{many}, through {through or target}",
        attack=Margin(steps=steps, restarts=restarts),
        through=through,
    )


Loss = Literal["ce", "dlr", "dlr-targeted"]
PLAIN: tuple[Loss, ...] = ("ce", "dlr")


def apgd(
    loss: Loss, steps: int, through: AttackedView, *, targets: int = 9, restarts: int = 1
) -> PlannedAttack:
    kinds = {"ce": "APGD-CE", "dlr": "APGD-DLR", "dlr-targeted": "targeted APGD-DLR"}
    aimed = f", {targets} targets" if loss == "dlr-targeted" else ""
    short = {"ce": "apgd-ce", "dlr": "apgd-dlr", "dlr-targeted": "apgd-t"}[loss]
    return PlannedAttack(
        name=f"{short}@{through.name}" + ("-fixed" if through.fixed else ""),
        what=f"{kinds[loss]}, {steps} steps{aimed}, through {through}",
        attack=APGD(loss=loss, steps=steps, targets=targets, restarts=restarts),
        through=through,
    )


def refine(steps: int, targets: int, restarts: int, through: AttackedView) -> PlannedAttack:
    shaken = f" and {restarts} shaken starts" if restarts else ""
    return PlannedAttack(
        name=f"refine@{through.name}",
        what=f"margin descent from the worst example so far{shaken}, {steps} steps, untargeted and "
        f"at {targets} targets, through {through}",
        attack=Refine(steps=steps, targets=targets, restarts=restarts),
        through=through,
    )


def on_weakest(share: Fraction, planned: PlannedAttack, *, named: bool = False) -> PlannedAttack:
    """The same on a share of the images that stand, the weakest; `named` apart from the attack on
    all of them."""
    return replace(
        planned,
        name=planned.name + ("-weakest" if named else ""),
        what=f"{planned.what}; on the weakest {share} of what stands",
        weakest=float(share),
    )


def fab(steps: int, targets: int, through: AttackedView) -> PlannedAttack:
    return PlannedAttack(
        name="fab-t@fixed",
        what=f"targeted FAB, {steps} steps, {targets} targets, through {through}",
        attack=FAB(steps=steps, targets=targets),
        through=through,
    )


def saved_examples(path: Path) -> PlannedAttack:
    """Adversarial images that were made elsewhere."""
    return PlannedAttack(
        name="saved-examples",
        what=f"adversarial images from {path.name}, made elsewhere",
        attack=saved(path),
        through=None,
    )
