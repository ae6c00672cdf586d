"""Were the attacks strong enough? Against more room, more effort, chance, and no gradients."""

from __future__ import annotations

from itertools import pairwise

from carso.attacks.apgd import APGD
from carso.attacks.attack import Attack, runs_in
from carso.attacks.margin import Margin, Noise
from carso.attacks.pgd import PGD
from carso.attacks.square import Square
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext, slack

FEW_QUERIES = 100
"""A black box with fewer can object, but that it breaks nothing is no evidence."""
MASKED = 0.05
"""A view that does better than the defence's own output by more than this exposes masking."""


def curve(context: DiagnosticContext) -> Diagnosis:
    """Accuracy against eps: it must fall, and end at chance or below."""
    base = context.evaluation.threat.eps
    shape = tuple(context.images.shape[1:])
    largest = round(context.evaluation.threat.overwhelming(shape), 6)
    radii = sorted({round(m * base, 6) for m in context.plan.effort.eps if m * base < largest})
    points = []
    for radius in [*radii, largest]:
        if radius == 0:
            clean = context.results.clean.right[: context.count]
            points.append((0.0, float(clean.double().mean()) / context.evaluation.draws))
            continue
        threat = context.evaluation.threat.with_eps(radius)
        points.append((radius, context.after_descent(threat)))
    values = [value for _, value in points]
    rise = max((b - a for a, b in pairwise(values)), default=0.0)
    chance = 1 / context.evaluation.classes
    problems = []
    if rise > slack(context.count):
        problems.append(f"it rises by {rise:.3f} where the attacker is given more room")
    if values[-1] > chance:
        problems.append(f"at eps = {largest:g} it is {values[-1]:.3f}, above chance ({chance:g})")
    words = (
        f"Accuracy goes from {values[0]:.3f} without attack to {values[-1]:.3f} at eps = "
        f"{largest:g}, where nothing can hold."
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
            "steps": context.plan.effort.steps,
            "images": context.count,
        },
    )


def more_effort(context: DiagnosticContext) -> Diagnosis:
    """More steps than any direct attack of the suite, from two starts, on images that stand."""
    pool = min(2 * context.count, len(context.evaluation.images))
    chosen = context.weaker_half(pool)
    if not len(chosen):
        return Diagnosis(
            name="more effort", ok=True, verdict="No image stands, so none is left to attack."
        )
    longest = max((p.attack.facts.direct_steps for p in context.plan.attacks), default=0)
    attack = Margin(steps=max(4 * context.plan.effort.steps, 2 * longest), restarts=2)
    labels = context.evaluation.labels[chosen]
    examples, _ = context.evaluation.run_attack(
        attack, context.mean_logits, context.evaluation.images[chosen], labels, "diagnosis", "more"
    )
    judged = context.evaluation.judge(examples, labels, "diagnosis", "more")
    before = context.results.final.right[chosen].double().mean() / context.evaluation.draws
    lost = float(before - judged.right.double().mean() / context.evaluation.draws)
    change = lost * len(chosen) / pool
    words = (
        f"{attack.steps} steps from {attack.restarts} starts break "
        f"{int((judged.right == 0).sum())} of the {len(chosen)} that stand by least, which would "
        f"lower the accuracy by {max(0.0, change):.3f}."
    )
    return Diagnosis(
        name="more effort",
        ok=change <= slack(pool),
        verdict=words,
        figures={
            "attacked": len(chosen),
            "broken": int((judged.right == 0).sum()),
            "accuracy_lost": change,
            "steps": attack.steps,
            "restarts": attack.restarts,
        },
    )


def noise(context: DiagnosticContext) -> Diagnosis:
    """Random points of the ball must not do better than the gradient."""
    attack = Noise(tries=20)
    found = context.accuracy_under(attack, context.mean_logits, "noise", context.evaluation.threat)
    ok = found >= context.accuracy - slack(context.count)
    words = (
        f"The worst of {attack.tries} random points in the ball leaves {found:.3f}; the attacks "
        f"leave {context.accuracy:.3f} of the same {context.count} images."
    )
    if not ok:
        words += " Random noise beats the gradient, so the gradient is worth nothing."
    return Diagnosis(
        name="noise", ok=ok, verdict=words, figures={"noise": found, "attacks": context.accuracy}
    )


def black_box(context: DiagnosticContext) -> Diagnosis:
    """An attack without gradients must not break what the others could not."""
    own = [number for number, planned in enumerate(context.plan.attacks) if planned.black_box]
    if own and own[-1] > 0 and not context.plan.independent:
        own = [number for number in own if number > 0]
        what = " and ".join(context.plan.attacks[number].what for number in own)
        broken, tried = context.broken_by(own)
        share, count = broken / len(context.evaluation.images), len(context.evaluation.images)
        few = False
    else:
        attack = Square(queries=context.plan.effort.queries)
        if not runs_in(attack, context.evaluation.threat):
            words = f"Square does not run in {context.evaluation.threat.norm}: no black box tried."
            return Diagnosis(name="black box", ok=None, verdict=words)
        examples, _ = context.evaluation.run_attack(
            attack,
            AttackedView(name="log-prob"),
            context.images,
            context.labels,
            "diagnosis",
            "square",
        )
        judged = context.evaluation.judge(examples, context.labels, "diagnosis", "square")
        stood = context.results.final.right[: context.count] > 0
        broken, tried = int(((judged.right == 0) & stood).sum()), int(stood.sum())
        share, what, count = (
            broken / context.count,
            f"Square, {attack.queries} queries",
            context.count,
        )
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


def masking(context: DiagnosticContext) -> Diagnosis:
    """The defence's own output against its mean logits, at equal effort."""
    steps = context.plan.effort.steps
    threat = context.evaluation.threat
    attack: Attack = APGD(loss="ce", steps=steps)
    if not runs_in(attack, threat):
        attack = PGD(steps=steps, step_size=2.5 * threat.eps / steps)
    own = context.accuracy_under(attack, AttackedView(name="log-prob"), "own", threat)
    through = context.after_descent(threat)
    masked = own - through > MASKED
    beaten = context.accuracy - through > slack(context.count)
    words = (
        f"{steps} steps on the cross-entropy of the own output leave {own:.3f}, {steps} steps "
        f"through the mean logits {through:.3f} of the same {context.count} images."
    )
    if masked:
        words += " The own output is masked: figures found by attacking it mean nothing."
        if not beaten:
            words += " This record does not rest on such."
    if beaten:
        words += (
            f" This record's attacks leave {context.accuracy:.3f}, so a short attack through the "
            "mean logits goes below its figure."
        )
    return Diagnosis(
        name="masking",
        ok=not beaten,
        verdict=words,
        figures={"own": own, "mean_logits": through, "record": context.accuracy, "masked": masked},
    )
