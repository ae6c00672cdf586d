"""Who wins, image by image: attacks in turn, verdicts on fresh draws, resumable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from carso.attacks.margin import margins
from carso.evaluation.case import Case, Outcome, Worst
from carso.evaluation.parts import Parts
from carso.evaluation.plan import Suite
from carso.evaluation.statistics import cosine
from carso.evaluation.subject import DefenceSubject, Subject, Through, Verdict
from carso.randomness import generator, seeded

Counted = Callable[[str, int], Callable[[int], None]]
"""Shows progress: called with what and how much, it gives a function to call as it is done."""

PILOT_IMAGES = 50
GOOD_COSINE = 0.95


@dataclass(frozen=True, kw_only=True)
class Battle:
    """All that the attacks did."""

    clean: Verdict
    worst: Worst
    outcomes: tuple[tuple[Outcome, ...], ...]
    """Of each attack, of each chunk."""
    after: tuple[Tensor, ...]
    """Draws right of each image's worst example, after each attack."""
    final: Verdict
    """The worst examples on draws that no choice was made by."""
    chunk: int


def chunks_of(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def fight(case: Case, plan: Suite, parts: Parts, *, chunk: int, counted: Counted) -> Battle:
    """Run every attack on every chunk of images; what `parts` has already is not run again."""
    spans = chunks_of(len(case.images), chunk)
    advance = counted(f"{case.subject.name}: {plan.name}", len(spans) * (len(plan.attacks) + 2))
    outcomes: list[list[Outcome]] = [[] for _ in plan.attacks]
    after: list[list[Tensor]] = [[] for _ in plan.attacks]
    clean, worst, final = [], [], []
    for number, span in enumerate(spans):
        images, labels = case.images[span], case.labels[span]
        clean.append(judged(case, parts, images, labels, "clean", number))
        field = Worst.of(images, clean[-1])
        advance(1)
        for i, planned in enumerate(plan.attacks):
            index = (
                (clean[-1].right > 0).nonzero().flatten() if plan.independent else field.standing
            )
            name = f"chunk-{number:04d}-{planned.name}"
            if len(index):
                attack = partial(case.outcome, planned, images, labels, index, number)
                outcomes[i].append(Outcome(**parts.piece(name, attack)))
                field.update(outcomes[i][-1], planned.name)
            after[i].append(field.right.clone())
            advance(1)
        final.append(judged(case, parts, field.examples, labels, "final", number))
        worst.append(field)
        advance(1)
    return Battle(
        clean=joined(clean),
        worst=Worst(
            case.images,
            torch.cat([field.examples for field in worst]),
            torch.cat([field.right for field in worst]),
            torch.cat([field.margin for field in worst]),
            [name for field in worst for name in field.attack],
        ),
        outcomes=tuple(tuple(found) for found in outcomes),
        after=tuple(torch.cat(found) for found in after),
        final=joined(final),
        chunk=chunk,
    )


def judged(
    case: Case, parts: Parts, images: Tensor, labels: Tensor, occasion: str, number: int
) -> Verdict:
    """A verdict that is kept."""

    def make() -> dict[str, Tensor]:
        fresh = case.judged(images, labels, occasion, number)
        return {"right": fresh.right, "margin": fresh.margin}

    return Verdict(**parts.piece(f"chunk-{number:04d}-{occasion}", make))


def joined(verdicts: list[Verdict]) -> Verdict:
    return Verdict(
        right=torch.cat([verdict.right for verdict in verdicts]),
        margin=torch.cat([verdict.margin for verdict in verdicts]),
    )


def candidates_needed(
    subject: Subject, images: Tensor, labels: Tensor, *, seed: int
) -> tuple[int, float]:
    """How many candidates an attack should average in a step, and how alike two gradients are.

    With c the mean cosine of the gradients of two single candidates, the mean of n has the cosine
    sqrt(n c / (n c + 1 - c)) with the true gradient; n is the smallest power of two, up to 64,
    that makes it `GOOD_COSINE`. A collapsed latent needs one.
    """
    if not isinstance(subject, DefenceSubject):
        return 1, 1.0
    model = subject.model(Through(samples=1))
    gradients = []
    with seeded(seed, "pilot"):
        subject.reseed(generator(seed, "pilot").initial_seed())
        for _ in range(2):
            point = images.detach().clone().requires_grad_(True)
            with torch.enable_grad():
                lead = margins(model(point), labels).sum()
            gradients.append(torch.autograd.grad(lead, point)[0])
    alike = float(cosine(*gradients).mean())
    if not alike > 0:
        return 64, alike
    wanted = GOOD_COSINE**2 / (1 - GOOD_COSINE**2) * (1 - alike) / alike
    return min(64, 2 ** max(0, math.ceil(math.log2(max(wanted, 1.0))))), alike
