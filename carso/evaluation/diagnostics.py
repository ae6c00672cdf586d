"""Can the number be trusted? Each diagnosis says so in plain words, with its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from carso.aggregation import view_released
from carso.attacks.auto_attack import APGD, Square
from carso.attacks.gradient import Attack
from carso.attacks.margin import Margin, Noise
from carso.attacks.probe import KINDS
from carso.evaluation.case import Case
from carso.evaluation.parts import Parts, as_tensor, from_tensor
from carso.evaluation.protocol import Battle, Counted
from carso.evaluation.statistics import percent
from carso.evaluation.subject import DefenceSubject, Through
from carso.evaluation.suites import Planned, Suite
from carso.threat import Linf

LARGEST_EPS = 0.95
BROKEN_SHARE = 0.01
"""More NaN or infinite gradients than this spoil an attack."""
ZERO_SHARE = 0.1
"""So do more gradients of exactly zero than this."""
SLACK = 0.02
"""Two points of accuracy, and one image: less is no finding."""
MASKED = 0.05
"""A view that does better than the defence's own output by more than this exposes masking."""


def slack(count: int) -> float:
    """The difference of accuracies on `count` images that is no finding."""
    return SLACK + 1 / count


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """One finding; `ok` is None where there is nothing to pass or fail."""

    name: str
    ok: bool | None
    verdict: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What the diagnostics look at: the case, the plan and the battle's outcome."""

    case: Case
    plan: Suite
    battle: Battle
    training_kl: float | None
    """The posterior's KL at the end of training, in nats, where the record of it is known."""

    @property
    def count(self) -> int:
        return min(self.plan.effort.images, len(self.case.images))

    @property
    def images(self) -> Tensor:
        return self.case.images[: self.count]

    @property
    def labels(self) -> Tensor:
        return self.case.labels[: self.count]

    @property
    def reached(self) -> float:
        """The accuracy that the attacks left of the examined images."""
        return float(self.battle.final.right[: self.count].double().mean()) / self.case.draws

    @property
    def mean(self) -> Through:
        return Through(samples=self.case.samples)

    def under(self, attack: Attack, through: Through, occasion: str, threat: Linf) -> float:
        """Accuracy of the examined images under one more attack."""
        examples, _ = self.case.attacked(
            attack, through, self.images, self.labels, "diagnosis", occasion, threat=threat
        )
        judged = self.case.judged(examples, self.labels, "diagnosis", occasion)
        return self.case.accuracy(judged)


def health(battle: Battle, number: int) -> dict[str, Any]:
    """Counts of the gradients of one attack, step by step, and of its outputs."""
    outcomes = battle.outcomes[number]
    steps = max((outcome.gradients.shape[1] for outcome in outcomes), default=0)
    total = torch.zeros(len(KINDS), steps, dtype=torch.int64)
    counts = torch.zeros(4, dtype=torch.int64)
    for outcome in outcomes:
        total[:, : outcome.gradients.shape[1]] += outcome.gradients
        counts += outcome.counts
    images = max(1, int(total[0].sum()))
    shares = {kind: int(total[i].sum()) / images for i, kind in enumerate(KINDS) if i}
    return {
        "shares": shares,
        "steps": {kind: coarse(total[i]) for i, kind in enumerate(KINDS)},
        "outputs_not_finite": int(counts[3]) / max(1, int(counts[2])),
        "passes": {"forward": int(counts[0]), "backward": int(counts[1])},
        "seconds": sum(float(outcome.seconds) for outcome in outcomes),
    }


def coarse(counts: Tensor, most: int = 101) -> list[int]:
    """Counts per step, added up in equal spans where there are more than `most` steps."""
    if len(counts) <= most:
        return [int(count) for count in counts]
    return [int(part.sum()) for part in counts.chunk(100)]


def reasons_against(planned: Planned, found: dict[str, Any]) -> list[str]:
    """Why the figure of one attack means nothing, if it does."""
    shares, reasons = found["shares"], []
    if planned.black_box or not found["passes"]["backward"]:
        return []
    bad = shares["nan"] + shares["infinite"]
    if bad > BROKEN_SHARE:
        how = "nearly all" if bad > 0.9 else "many" if bad > 0.1 else "some"
        reasons.append(f"{how} gradients were NaN or infinite ({percent(bad)})")
    if shares["zero"] > ZERO_SHARE:
        how = "nearly all" if shares["zero"] > 0.9 else "many"
        reasons.append(f"{how} gradients were exactly zero ({percent(shares['zero'])})")
    if found["outputs_not_finite"] > BROKEN_SHARE:
        reasons.append(f"{percent(found['outputs_not_finite'])} of the outputs were not finite")
    return reasons


def gradients(exam: Examination) -> Diagnosis:
    """NaN, infinite and zero gradients; outputs that are not finite."""
    spoiled, sound = {}, []
    for number, planned in enumerate(exam.plan.attacks):
        if not exam.battle.outcomes[number] or planned.black_box:
            continue
        reasons = reasons_against(planned, health(exam.battle, number))
        if reasons:
            spoiled[planned.name] = "; ".join(reasons)
        elif planned.through is not None:
            sound.append(planned.name)
    if not spoiled:
        words = "The gradients that the attacks followed were finite and not zero."
    elif sound:
        named = ", ".join(f"{name}: {why}" for name, why in spoiled.items())
        words = (
            f"Useless gradients in {named}. The worst case rests on the {len(sound)} attacks with "
            "healthy ones."
        )
    else:
        named = ", ".join(f"{name}: {why}" for name, why in spoiled.items())
        words = f"No attack had gradients to follow: {named}."
    return Diagnosis(
        name="gradients",
        ok=bool(sound) or not spoiled,
        verdict=words,
        figures={"spoiled": spoiled, "sound": sound},
    )


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
        f"Accuracy falls from {values[0]:.3f} without attack to {values[-1]:.3f} at eps = "
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
    """Four times the steps and two more starts, on images that still stand."""
    standing = (exam.battle.final.right > 0).nonzero().flatten()
    chosen = standing[: exam.count]
    if not len(chosen):
        return Diagnosis(
            name="more effort", ok=True, verdict="No image stands, so none is left to attack."
        )
    attack = Margin(steps=4 * exam.plan.effort.steps, restarts=2)
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
    last = exam.plan.attacks[-1]
    if last.black_box and len(exam.plan.attacks) > 1 and not exam.plan.independent:
        outcomes = exam.battle.outcomes[-1]
        broken = sum(int((outcome.right == 0).sum()) for outcome in outcomes)
        tried = sum(len(outcome.right) for outcome in outcomes)
        share, what, count = broken / len(exam.case.images), last.what, len(exam.case.images)
    else:
        attack = Square(queries=exam.plan.effort.queries)
        examples, _ = exam.case.attacked(
            attack, Through(view="log-prob"), exam.images, exam.labels, "diagnosis", "square"
        )
        judged = exam.case.judged(examples, exam.labels, "diagnosis", "square")
        stood = exam.battle.final.right[: exam.count] > 0
        broken, tried = int(((judged.right == 0) & stood).sum()), int(stood.sum())
        share, what, count = broken / exam.count, f"Square, {attack.queries} queries", exam.count
    words = f"{what}, breaks {broken} of {tried} images that the other attacks left standing."
    if share > slack(count):
        words += " The black box beats the white box: the gradients mislead."
    return Diagnosis(
        name="black box",
        ok=share <= slack(count),
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


def diversity(exam: Examination) -> Diagnosis:
    """Are N samples worth more than one?"""
    subject = exam.case.subject
    if not isinstance(subject, DefenceSubject):
        return Diagnosis(name="diversity", ok=None, verdict="A plain classifier has no candidates.")
    defence, samples = subject.defence, subject.defence.samples
    worst = exam.battle.worst.examples[: exam.count].to(exam.case.device)
    labels = exam.labels.to(exam.case.device)
    defence.seed(exam.case.seed)
    candidates = defence.purify(worst)  # (N, B, C, H, W)
    with torch.no_grad():
        logits = defence.final_classifier(candidates.flatten(0, 1)).unflatten(
            0, candidates.shape[:2]
        )
    votes = logits.argmax(dim=2)  # (N, B)
    deviation = float(candidates.std(dim=0).mean()) if samples > 1 else 0.0
    disagreeing = float((votes != votes[0]).any(dim=0).double().mean())
    together = float((defence.aggregate(logits).argmax(dim=1) == labels).double().mean())
    alone = float((votes == labels).double().mean())
    gain = together - alone
    worth = "worth more than one" if gain > slack(exam.count) else "worth no more than one"
    kl = exam.training_kl
    posterior = "not recorded" if kl is None else f"{kl:.3f} nats"
    words = (
        f"On the worst examples {samples} samples are {worth}: together they label {together:.3f} "
        f"right, one alone {alone:.3f}. Candidates differ by {deviation:.4f} per pixel; their "
        f"labels differ on {percent(disagreeing)} of the images; KL of the posterior after "
        f"training: {posterior}."
    )
    return Diagnosis(
        name="diversity",
        ok=None,
        verdict=words,
        figures={
            "samples": samples,
            "pixel_deviation": deviation,
            "disagreeing": disagreeing,
            "together": together,
            "alone": alone,
            "posterior_kl": kl,
        },
    )


def precision(exam: Examination) -> Diagnosis:
    """What float32 loses against float64 in the aggregation used."""
    subject = exam.case.subject
    if not isinstance(subject, DefenceSubject):
        return Diagnosis(
            name="precision", ok=None, verdict="A plain classifier has no aggregation."
        )
    defence = subject.defence
    collected = []

    def keep(logits: Tensor) -> Tensor:
        collected.append(logits.detach())
        return logits.mean(dim=0)

    defence.seed(exam.case.seed)
    with torch.no_grad():
        defence.scores(exam.images.to(exam.case.device), keep)
    logits = torch.cat(collected, dim=1).float()
    narrow, wide = defence.aggregate(logits), defence.aggregate(logits.double())
    changed = float((narrow.argmax(dim=1) != wide.argmax(dim=1)).double().mean())
    error = float((narrow.double().exp() - wide.exp()).abs().max())
    released = float((~view_released(logits).isfinite()).any(dim=1).double().mean())
    words = (
        f"In float32 the {defence.aggregation} aggregation differs from float64 by at most "
        f"{error:.1e} in a probability and changes {percent(changed)} of the labels. The released "
        f"float32 log-odds of the same logits are infinite on {percent(released)} of the images."
    )
    return Diagnosis(
        name="precision",
        ok=changed == 0 and error < 1e-4,
        verdict=words,
        figures={"largest_error": error, "labels_changed": changed, "released_infinite": released},
    )


DIAGNOSTICS: tuple[Callable[[Examination], Diagnosis], ...] = (
    gradients,
    curve,
    more_effort,
    noise,
    black_box,
    masking,
    diversity,
    precision,
)


def examine(exam: Examination, parts: Parts, counted: Counted) -> list[dict[str, Any]]:
    """Every diagnosis in turn; finished ones are not made again."""
    advance = counted(f"{exam.case.subject.name}: diagnostics", len(DIAGNOSTICS))
    found = []
    for diagnose in DIAGNOSTICS:

        def make(diagnose: Callable[[Examination], Diagnosis] = diagnose) -> dict[str, Tensor]:
            return {"diagnosis": as_tensor(asdict(diagnose(exam)))}

        found.append(from_tensor(parts.piece(f"diagnosis-{diagnose.__name__}", make)["diagnosis"]))
        advance(1)
    return found
