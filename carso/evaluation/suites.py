"""Which attacks, in which order, and how much effort the diagnostics may take.

A suite lists first the attacks that break most for what they cost; an image that one of them breaks
is not attacked again. `paper` is the exception: there, as in the paper, every attack is a
measurement of its own on all images.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from carso.attacks.attack import refuse_norm, runs_in
from carso.errors import CarsoError
from carso.evaluation.attack_names import refuse_attack
from carso.evaluation.attacked_model import INSIDE, AttackedView
from carso.evaluation.inner_classifier import InnerClassifier
from carso.evaluation.planned_attacks import (
    PLAIN,
    SINGLE,
    Effort,
    PlannedAttack,
    Suite,
    apgd,
    autoattack_rand,
    black_box,
    fab,
    margin,
    on_weakest,
    random_points,
    refine,
    saved_examples,
    standard,
    transfer,
)
from carso.threats.threat import Threat


def quick(seed: int, samples: int) -> Suite:
    """A minute or two for 200 images of `fashion`."""
    through = AttackedView(samples=samples)
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

    The effort goes where images break, which is on the mean logits, and after the first attacks
    only among the images that stand by least: in the records of six models, all that later attacks
    broke were among the weakest two fifths, nearly all among the weakest fifth. Examples made for
    the classifier alone cost little, and an anchored aggregation invites them. The last passes, on
    the weakest eighth, are as long as AutoAttack's, and start from the worst that is known.
    """
    mean = AttackedView(samples=samples)
    fixed = AttackedView(samples=samples, fixed=True)
    several = max(2, samples)  # of one candidate, log s is the logit itself
    many = max(samples, min(2 * samples, 16))
    others = (
        AttackedView(name="logsumexp", samples=several),
        AttackedView(name="score", samples=several),
    )
    half, quarter, eighth = Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)
    middle = (
        on_weakest(half, apgd("dlr-targeted", 30, mean, targets=9)),
        *(
            on_weakest(quarter, planned)
            for planned in (
                margin(80, 3, mean),
                *(apgd("dlr-targeted", 20, through, targets=3) for through in others),
                *(apgd(loss, 20, through) for through in others for loss in PLAIN),
                fab(30, 3, fixed),
            )
        ),
    )
    last = (
        apgd("dlr-targeted", 100, fixed, targets=9),
        refine(40, 2, 12, AttackedView(samples=many)),
        black_box(1000),
    )
    return Suite(
        name="adaptive",
        attacks=(
            margin(40, 1, mean),
            apgd("ce", 40, mean),
            apgd("ce", 40, fixed),
            apgd("dlr", 40, mean),
            margin(40, 1, None),
            *middle,
            black_box(100),
            *(on_weakest(eighth, planned, named=True) for planned in last),
            *past_wrappers(samples),
        ),
        effort=Effort(images=100, steps=30, queries=100),
    )


def past_wrappers(samples: int) -> tuple[PlannedAttack, ...]:
    """Along the gradient of a classifier inside the model, past what is around it: last, so that
    it shows what the model's own gradients left."""
    inside = AttackedView(name=INSIDE, samples=samples)
    weakest = on_weakest(Fraction(1, 4), refine(40, 2, 2, inside), named=True)
    return margin(40, 3, inside), weakest


def full(seed: int, samples: int) -> Suite:
    """The adaptive suite with longer attacks and 20 draws, between the published ones."""
    draws = 20
    mean = AttackedView(draws=draws, samples=samples)
    fixed = AttackedView(draws=draws, samples=samples, fixed=True)
    others = tuple(
        AttackedView(name=name, draws=draws, samples=2) for name in ("logsumexp", "score")
    )
    longer: tuple[PlannedAttack, ...] = (
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
        refine(100, 9, 2, mean),
        *past_wrappers(samples),
    )
    before = (transfer(seed, samples), margin(40, 1, AttackedView(samples=samples)))
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
            refuse_attack(name, wanted, known)
    return replace(found, name=", ".join(attacks), attacks=tuple(chosen))


def lacking(record: dict[str, Any]) -> list[str]:
    """The attacks that the record's suite has by now and had not when it was made: of a suite by
    name, whose attacks nobody picked, on a model that has gradients."""
    asked = record["suite"]
    if asked["name"] not in SUITES:
        return []
    plan = SUITES[asked["name"]](record["seed"], asked.get("samples") or 1)
    if record["subject"]["kind"] == "classifier":
        plan = for_classifier(plan)
    made = {attack["name"] for attack in record["attacks"]}
    return [one.name for one in plan.attacks if not one.inside and one.name not in made]


def of_examples(path: Path) -> Suite:
    """An evaluation of adversarial images that were made elsewhere."""
    return Suite(
        name="examples",
        attacks=(saved_examples(path),),
        effort=Effort(images=50, steps=15, queries=30, eps=(0.0, 1.0)),
    )


def for_classes(plan: Suite, classes: int) -> Suite:
    """The suite without the attacks whose loss compares more classes than there are."""
    kept = tuple(planned for planned in plan.attacks if classes >= planned.attack.facts.classes)
    return replace(plan, attacks=kept)


def for_threat(plan: Suite, threat: Threat, *, picked: bool) -> Suite:
    """The suite without the attacks that do not run in the threat's norm; where a user picked
    them one by one, a word on it instead."""
    if picked:
        for planned in plan.attacks:
            refuse_norm(planned.attack, threat)
    kept = tuple(planned for planned in plan.attacks if runs_in(planned.attack, threat))
    return replace(plan, attacks=kept)


def by_queries(plan: Suite, threat: Threat, *, picked: bool) -> Suite:
    """The attacks of a suite that need no gradients, or others that need none; where a user picked
    attacks that do, a word on it instead."""
    following = [p.name for p in plan.attacks if not (p.black_box or p.inside)]
    if picked and following:
        raise CarsoError(
            f"the scores of this model have no gradient, which {', '.join(following)} would "
            "follow: leave attacks away, or take square"
        )
    asked = tuple(planned for planned in plan.attacks if planned.black_box)
    past = tuple(planned for planned in plan.attacks if planned.inside)
    # Where nothing else attacks, queries are not what a suite of gradients has left for them.
    more = (random_points(1000), black_box(1000 if plan.name == "quick" else 5000))
    kept = tuple(planned for planned in asked if planned.weakest == 1) if picked else more
    kept = tuple(planned for planned in kept if runs_in(planned.attack, threat))
    return replace(plan, attacks=(*kept, *past))


def for_wrapper(plan: Suite, inner: InnerClassifier | None) -> Suite:
    """The suite without attacks on a classifier inside the model where there is none."""
    kept = tuple(planned for planned in plan.attacks if inner is not None or not planned.inside)
    return replace(plan, attacks=kept)


def for_classifier(plan: Suite, *, stochastic: bool = False) -> Suite:
    """The suite without what a plain classifier makes superfluous: it has one view, and if it has
    no noise either, fixing that changes nothing. A noisy one gets AutoAttack's own answer to noise.
    """
    attacks: dict[tuple[str, bool, bool], PlannedAttack] = {}
    for planned in plan.attacks:
        fixed = stochastic and planned.through is not None and planned.through.fixed
        identity = json.dumps(planned.attack.identity(), sort_keys=True)
        attacks.setdefault((identity, fixed, planned.inside), planned)
    chosen = tuple(
        autoattack_rand(planned) if stochastic and planned.name == "autoattack" else planned
        for planned in attacks.values()
    )
    return replace(plan, attacks=chosen)
