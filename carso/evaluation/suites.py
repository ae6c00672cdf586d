"""Which attacks, in which order, and how much effort the diagnostics may take.

A suite lists its attacks from the cheapest to the dearest; an image that one of them breaks is
not attacked again. `paper` is the exception: there, as in the paper, every attack is a
measurement of its own on all images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from carso.attacks.auto_attack import APGD, CLASSES_NEEDED, FAB, AutoAttack, Square
from carso.attacks.gradient import PGD, Attack
from carso.attacks.margin import Margin
from carso.attacks.saved import saved
from carso.errors import CarsoError
from carso.evaluation.subject import Through


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """One attack of a suite."""

    name: str
    what: str
    """In plain words, for reports."""
    attack: Attack
    through: Through | None
    """The view that it differentiates; None: the classifier alone, so a transfer attack."""

    @property
    def own(self) -> bool:
        """Whether it attacks the defence's own output, as published protocols do."""
        return self.through is not None and self.through.view in ("log-prob", "released")

    @property
    def black_box(self) -> bool:
        return isinstance(self.attack, Square)


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
    """Points of the curve as multiples of the threat's eps, below the last point, 0.95."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """A list of attacks and the effort of the diagnostics."""

    name: str
    attacks: tuple[Planned, ...]
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


def transfer(seed: int, samples: int) -> Planned:
    return Planned(
        name="transfer",
        what="AutoAttack standard on the classifier alone; the examples are given to the defence",
        attack=AutoAttack(version="standard", seed=seed),
        through=None,
    )


def standard(seed: int, samples: int) -> Planned:
    return Planned(
        name="autoattack",
        what="AutoAttack standard: APGD-CE, targeted APGD-DLR, targeted FAB, Square",
        attack=AutoAttack(version="standard", seed=seed),
        through=Through(),
    )


def randaa(seed: int, samples: int) -> Planned:
    return Planned(
        name="randaa",
        what="AutoAttack rand: APGD-CE and APGD-DLR, 100 steps, 20 EoT, on the log-probabilities",
        attack=AutoAttack(version="rand", seed=seed),
        through=Through(view="log-prob"),
    )


def randaa_released(seed: int, samples: int) -> Planned:
    return replace(
        randaa(seed, samples),
        name="randaa-released",
        what="AutoAttack rand, 100 steps, 20 EoT, on the log-odds as the released code computes "
        "them",
        through=Through(view="released"),
    )


def pgd_eot(seed: int, samples: int) -> Planned:
    return Planned(
        name="pgd-eot",
        what="PGD, 200 steps of 0.007, 20 EoT, last iterate, on the log-probabilities",
        attack=PGD(steps=200, step_size=0.007, random_start=False, eot=20),
        through=Through(view="log-prob"),
    )


def square(seed: int, samples: int) -> Planned:
    return black_box(5000)


def black_box(queries: int) -> Planned:
    return Planned(
        name="square",
        what=f"Square, {queries} queries of the defence itself, no gradients",
        attack=Square(queries=queries),
        through=Through(view="log-prob"),
    )


SINGLE: dict[str, Callable[[int, int], Planned]] = {
    "transfer": transfer,
    "randaa": randaa,
    "randaa-released": randaa_released,
    "pgd-eot": pgd_eot,
    "square": square,
    "autoattack": standard,
}
"""The attacks that can be asked for by name, besides those of the suites."""


def margin(steps: int, restarts: int, through: Through) -> Planned:
    many = f", {restarts} random starts" if restarts > 1 else ""
    return Planned(
        name=f"margin@{through.view}" + (f"x{restarts}" if restarts > 1 else ""),
        what=f"margin descent with momentum, {steps} steps{many}, through {through}",
        attack=Margin(steps=steps, restarts=restarts),
        through=through,
    )


Loss = Literal["ce", "dlr", "dlr-targeted"]
PLAIN: tuple[Loss, ...] = ("ce", "dlr")


def apgd(
    loss: Loss, steps: int, through: Through, *, targets: int = 9, restarts: int = 1
) -> Planned:
    kinds = {"ce": "APGD-CE", "dlr": "APGD-DLR", "dlr-targeted": "targeted APGD-DLR"}
    aimed = f", {targets} targets" if loss == "dlr-targeted" else ""
    short = {"ce": "apgd-ce", "dlr": "apgd-dlr", "dlr-targeted": "apgd-t"}[loss]
    return Planned(
        name=f"{short}@{through.view}" + ("-fixed" if through.fixed else ""),
        what=f"{kinds[loss]}, {steps} steps{aimed}, through {through}",
        attack=APGD(loss=loss, steps=steps, targets=targets, restarts=restarts),
        through=through,
    )


def fab(steps: int, targets: int, through: Through) -> Planned:
    return Planned(
        name="fab-t@fixed",
        what=f"targeted FAB, {steps} steps, {targets} targets, through {through}",
        attack=FAB(steps=steps, targets=targets),
        through=through,
    )


def quick(seed: int, samples: int) -> Suite:
    """A minute or two for 200 images of `fashion`."""
    through = Through(samples=samples)
    return Suite(
        name="quick",
        attacks=(
            margin(20, 1, through),
            apgd("ce", 20, through),
            apgd("dlr-targeted", 10, through, targets=3),
        ),
        effort=Effort(images=50, steps=15, queries=30, eps=(0.0, 0.5, 1.0, 2.0)),
    )


def paper(seed: int, samples: int) -> Suite:
    """What the paper ran, on the outputs that it ran it on."""
    return Suite(
        name="paper",
        attacks=tuple(
            SINGLE[name](seed, samples)
            for name in ("transfer", "randaa-released", "randaa", "pgd-eot")
        ),
        effort=Effort(images=100, steps=20, queries=100),
        independent=True,
    )


def adaptive(seed: int, samples: int) -> Suite:
    """An attacker who knows the code: every loss, every view, fixed and fresh noise.

    The effort goes where images break, which is on the mean logits: on validation images the
    other views broke hardly any image that the mean logits had left standing.
    """
    mean = Through(samples=samples)
    fixed = Through(samples=samples, fixed=True)
    several = max(2, samples)  # of one candidate, log s is the logit itself
    others = (
        Through(view="logsumexp", samples=several),
        Through(view="score", samples=several),
    )
    return Suite(
        name="adaptive",
        attacks=(
            margin(40, 1, mean),
            apgd("ce", 40, mean),
            apgd("dlr", 40, mean),
            apgd("ce", 40, fixed),
            apgd("dlr-targeted", 30, mean, targets=9),
            *(apgd(loss, 20, through) for through in others for loss in PLAIN),
            *(apgd("dlr-targeted", 20, through, targets=3) for through in others),
            fab(30, 3, fixed),
            margin(80, 3, mean),
            black_box(100),
        ),
        effort=Effort(images=100, steps=30, queries=100),
    )


def full(seed: int, samples: int) -> Suite:
    """The adaptive suite with longer attacks and 20 draws, and the published ones before it."""
    draws = 20
    mean = Through(draws=draws, samples=samples)
    fixed = Through(draws=draws, samples=samples, fixed=True)
    others = tuple(Through(view=name, draws=draws, samples=2) for name in ("logsumexp", "score"))
    longer: tuple[Planned, ...] = (
        apgd("ce", 100, mean, restarts=3),
        apgd("dlr", 100, mean, restarts=3),
        apgd("ce", 100, fixed),
        apgd("dlr-targeted", 100, mean, targets=9),
        *(apgd(loss, 100, through) for through in others for loss in PLAIN),
        *(apgd("dlr-targeted", 100, through, targets=9) for through in others),
        fab(100, 9, fixed),
        margin(200, 5, mean),
        black_box(5000),
        *(SINGLE[name](seed, samples) for name in ("pgd-eot", "randaa")),
    )
    before = (transfer(seed, samples), margin(40, 1, Through(samples=samples)))
    return Suite(
        name="full",
        attacks=(*before, *longer),
        effort=Effort(images=100, steps=50, queries=500),
    )


def bare(seed: int, samples: int) -> Suite:
    """AutoAttack standard, which everyone reports for a classifier."""
    return Suite(
        name="standard",
        attacks=(standard(seed, samples),),
        effort=Effort(images=100, steps=30, queries=100),
    )


SUITES: dict[str, Callable[[int, int], Suite]] = {
    "quick": quick,
    "paper": paper,
    "adaptive": adaptive,
    "full": full,
    "standard": bare,
}


def suite(name: str, *, seed: int, samples: int, attacks: tuple[str, ...] = ()) -> Suite:
    """The suite called `name`, or, with the effort of its diagnostics, just these `attacks`.

    `samples` is how many candidates give the attack a good gradient.
    """
    if name not in SUITES:
        raise CarsoError(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    found = SUITES[name](seed, samples)
    if not attacks:
        return found
    known = {planned.name: planned for planned in found.attacks}
    chosen = []
    for wanted in dict.fromkeys(attacks):
        if wanted in known:
            chosen.append(known[wanted])
        elif wanted in SINGLE:
            chosen.append(SINGLE[wanted](seed, samples))
        else:
            every = ", ".join(dict.fromkeys([*SINGLE, *known]))
            raise CarsoError(f"suite {name} has no attack {wanted!r}; there are {every}")
    return replace(found, name=", ".join(attacks), attacks=tuple(chosen))


def saved_examples(path: Path) -> Planned:
    """Adversarial images that were made elsewhere."""
    return Planned(
        name="saved-examples",
        what=f"adversarial images from {path.name}, made elsewhere",
        attack=saved(path),
        through=None,
    )


def of_examples(path: Path) -> Suite:
    """An evaluation of adversarial images that were made elsewhere."""
    return Suite(
        name="examples",
        attacks=(saved_examples(path),),
        effort=Effort(images=50, steps=15, queries=30, eps=(0.0, 1.0)),
    )


def for_classes(plan: Suite, classes: int) -> Suite:
    """The suite without the DLR losses that compare more classes than there are."""
    kept = tuple(
        planned
        for planned in plan.attacks
        if not isinstance(planned.attack, APGD) or classes >= CLASSES_NEEDED[planned.attack.loss]
    )
    return replace(plan, attacks=kept)


def for_classifier(plan: Suite) -> Suite:
    """The suite without what a plain classifier makes superfluous: it has one view, no noise."""
    attacks: dict[str, Planned] = {}
    for planned in plan.attacks:
        attacks.setdefault(repr(planned.attack), planned)
    return replace(plan, attacks=tuple(attacks.values()))
