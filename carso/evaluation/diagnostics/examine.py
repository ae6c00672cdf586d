"""Can the number be trusted? Each diagnosis says so in plain words, with its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from typing import Any, cast

from torch import Tensor

from carso.attacks.auto_attack import APGD, Square
from carso.attacks.margin import Margin, Noise
from carso.distributed.processes import ALONE, Processes
from carso.evaluation.attacked_model import Through
from carso.evaluation.diagnostics.candidates import diversity, precision
from carso.evaluation.diagnostics.diagnosis import Diagnosis, Examination, slack
from carso.evaluation.diagnostics.gradient_health import gradients
from carso.evaluation.protocol import Counted
from carso.evaluation.resume import FinishedParts, as_tensor, from_tensor
from carso.threats.linf import Linf

LARGEST_EPS = 0.95
FEW_QUERIES = 100
"""A black box with fewer can object, but that it breaks nothing is no evidence."""
MASKED = 0.05
"""A view that does better than the defence's own output by more than this exposes masking."""


def curve(exam: Examination) -> Diagnosis:
    """Accuracy against eps: it must fall, and end at chance or below."""
    base = exam.case.threat.eps
    radii = sorted({round(m * base, 6) for m in exam.plan.effort.eps if m * base < LARGEST_EPS})
    points = []
    attack = Margin(steps=exam.plan.effort.steps)
    for radius in [*radii, LARGEST_EPS]:
        if radius == 0:
            clean = exam.battle.clean.right[: exam.count]
            points.append((0.0, float(clean.double().mean()) / exam.case.draws))
            continue
        threat = Linf(eps=radius)
        points.append((radius, exam.under(attack, exam.mean, f"curve-{radius:g}", threat)))
    values = [value for _, value in points]
    rise = max((b - a for a, b in pairwise(values)), default=0.0)
    chance = 1 / exam.case.classes
    problems = []
    if rise > slack(exam.count):
        problems.append(f"it rises by {rise:.3f} where the attacker is given more room")
    if values[-1] > chance:
        problems.append(f"at eps = {LARGEST_EPS} it is {values[-1]:.3f}, above chance ({chance:g})")
    words = (
        f"Accuracy goes from {values[0]:.3f} without attack to {values[-1]:.3f} at eps = "
        f"{LARGEST_EPS}, where nothing can hold."
        if not problems
        else f"The curve of accuracy against eps is wrong: {'; '.join(problems)}."
    )
    return Diagnosis(
        name="curve",
        ok=not problems,
        verdict=words,
        figures={
            "points": points,
            "chance": chance,
            "steps": exam.plan.effort.steps,
            "images": exam.count,
        },
    )


def more_effort(exam: Examination) -> Diagnosis:
    """More steps than any margin attack of the suite, from two starts, on images that stand."""
    standing = (exam.battle.final.right > 0).nonzero().flatten()
    chosen = standing[: exam.count]
    if not len(chosen):
        return Diagnosis(
            name="more effort", ok=True, verdict="No image stands, so none is left to attack."
        )
    longest = max(
        (p.attack.steps for p in exam.plan.attacks if isinstance(p.attack, Margin)), default=0
    )
    attack = Margin(steps=max(4 * exam.plan.effort.steps, 2 * longest), restarts=2)
    labels = exam.case.labels[chosen]
    examples, _ = exam.case.attacked(
        attack, exam.mean, exam.case.images[chosen], labels, "diagnosis", "more"
    )
    judged = exam.case.judged(examples, labels, "diagnosis", "more")
    before = exam.battle.final.right[chosen].double().mean() / exam.case.draws
    lost = float(before - judged.right.double().mean() / exam.case.draws)
    change = lost * len(standing) / len(exam.case.images)
    words = (
        f"{attack.steps} steps from {attack.restarts} starts break "
        f"{int((judged.right == 0).sum())} more of {len(chosen)} standing images, which would "
        f"lower the accuracy by about {max(0.0, change):.3f}."
    )
    return Diagnosis(
        name="more effort",
        ok=change <= slack(len(exam.case.images)),
        verdict=words,
        figures={
            "attacked": len(chosen),
            "broken": int((judged.right == 0).sum()),
            "accuracy_lost": change,
            "steps": attack.steps,
            "restarts": attack.restarts,
        },
    )


def noise(exam: Examination) -> Diagnosis:
    """Random points of the ball must not do better than the gradient."""
    attack = Noise(tries=20)
    found = exam.under(attack, exam.mean, "noise", exam.case.threat)
    ok = found >= exam.reached - slack(exam.count)
    words = (
        f"The worst of {attack.tries} random points in the ball leaves {found:.3f}; the attacks "
        f"leave {exam.reached:.3f} of the same {exam.count} images."
    )
    if not ok:
        words += " Random noise beats the gradient, so the gradient is worth nothing."
    return Diagnosis(
        name="noise", ok=ok, verdict=words, figures={"noise": found, "attacks": exam.reached}
    )


def black_box(exam: Examination) -> Diagnosis:
    """An attack without gradients must not break what the others could not."""
    own = [number for number, planned in enumerate(exam.plan.attacks) if planned.black_box]
    if own and own[-1] > 0 and not exam.plan.independent:
        outcomes, what = exam.battle.outcomes[own[-1]], exam.plan.attacks[own[-1]].what
        broken = sum(int(outcome.sure.sum()) for outcome in outcomes)
        tried = sum(len(outcome.right) for outcome in outcomes)
        share, count = broken / len(exam.case.images), len(exam.case.images)
        few = False
    else:
        attack = Square(queries=exam.plan.effort.queries)
        examples, _ = exam.case.attacked(
            attack, Through(view="log-prob"), exam.images, exam.labels, "diagnosis", "square"
        )
        judged = exam.case.judged(examples, exam.labels, "diagnosis", "square")
        stood = exam.battle.final.right[: exam.count] > 0
        broken, tried = int(((judged.right == 0) & stood).sum()), int(stood.sum())
        share, what, count = broken / exam.count, f"Square, {attack.queries} queries", exam.count
        few = attack.queries < FEW_QUERIES
    words = f"{what}, breaks {broken} of {tried} images that the attacks before it left standing."
    if share > slack(count):
        words += " The black box beats the white box: the gradients mislead."
    elif few:
        words += " So few queries would hardly break any."
    return Diagnosis(
        name="black box",
        ok=None if few and share <= slack(count) else share <= slack(count),
        verdict=words,
        figures={"broken": broken, "tried": tried, "share_of_all": share},
    )


def masking(exam: Examination) -> Diagnosis:
    """The defence's own output against its mean logits, at equal effort."""
    steps = exam.plan.effort.steps
    own = exam.under(
        APGD(loss="ce", steps=steps), Through(view="log-prob"), "own", exam.case.threat
    )
    through = exam.under(Margin(steps=steps), exam.mean, "view", exam.case.threat)
    masked = own - through > MASKED
    beaten = exam.reached - through > slack(exam.count)
    words = (
        f"{steps} steps on the cross-entropy of the own output leave {own:.3f}, {steps} steps "
        f"through the mean logits {through:.3f} of the same {exam.count} images."
    )
    if masked:
        words += " The own output is masked: figures found by attacking it mean nothing."
        if not beaten:
            words += " This record does not rest on such."
    if beaten:
        words += (
            f" This record's attacks leave {exam.reached:.3f}, so a short attack through the mean "
            "logits goes below its figure."
        )
    return Diagnosis(
        name="masking",
        ok=not beaten,
        verdict=words,
        figures={"own": own, "mean_logits": through, "record": exam.reached, "masked": masked},
    )


Diagnostic = Callable[[Examination], Diagnosis]

DIAGNOSTICS: tuple[Diagnostic, ...] = (
    gradients,
    curve,
    more_effort,
    noise,
    black_box,
    masking,
    diversity,
    precision,
)


def examine(
    exam: Examination, parts: FinishedParts, counted: Counted, processes: Processes = ALONE
) -> list[dict[str, Any]]:
    """Every diagnosis in turn, shared among the processes; finished ones are not made again."""
    mine = DIAGNOSTICS[processes.rank :: processes.world_size]
    advance = counted(f"{exam.case.subject.name}: diagnostics", len(mine))
    for diagnose in mine:
        diagnosed(exam, parts, diagnose)
        advance(1)
    processes.barrier()
    return [diagnosed(exam, parts, diagnose) for diagnose in DIAGNOSTICS]


def diagnosed(exam: Examination, parts: FinishedParts, diagnose: Diagnostic) -> dict[str, Any]:
    """A diagnosis that is kept."""

    def make() -> dict[str, Tensor]:
        return {"diagnosis": as_tensor(asdict(diagnose(exam)))}

    found = parts.piece(f"diagnosis-{diagnose.__name__}", make)
    return cast(dict[str, Any], from_tensor(found["diagnosis"]))
