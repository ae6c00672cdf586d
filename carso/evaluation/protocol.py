"""Who wins, image by image: attacks in turn, verdicts on fresh draws, resumable."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from carso.attacks.margin import margins
from carso.distributed.processes import ALONE, Processes
from carso.evaluation.attacked_model import AttackedDefence, AttackedModel, Through, Verdict
from carso.evaluation.evaluation import Evaluation, Outcome, WorstExamples
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.resume import FinishedParts
from carso.evaluation.statistics import cosine
from carso.randomness import generator, seeded

Counted = Callable[[str, int], Callable[[int], None]]
"""Shows progress: called with what and how much, it gives a function to call as it is done."""

PILOT_IMAGES = 50
GOOD_COSINE = 0.95


@dataclass(frozen=True, kw_only=True)
class Battle:
    """All that the attacks did."""

    clean: Verdict
    worst: WorstExamples
    outcomes: tuple[tuple[Outcome, ...], ...]
    """Of each attack, of each chunk."""
    after: tuple[Tensor, ...]
    """Draws right of each image's worst example, after each attack."""
    final: Verdict
    """The worst examples on draws that no choice was made by."""
    chunk: int


def chunks_of(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True, kw_only=True)
class Round:
    """All that the attacks did to one chunk of images."""

    clean: Verdict
    worst: WorstExamples
    outcomes: tuple[Outcome | None, ...]
    """Of each attack; None where no image stood any more."""
    after: tuple[Tensor, ...]
    final: Verdict


def fight(
    case: Evaluation,
    plan: Suite,
    parts: FinishedParts,
    *,
    chunk: int,
    counted: Counted,
    processes: Processes = ALONE,
) -> Battle:
    """Run every attack on every chunk of images; what `parts` has already is not run again.

    Many processes share the chunks. Every chunk has seeds of its own, so that who attacks it
    changes nothing, and each process then reads what the others made.
    """
    spans = dict(enumerate(chunks_of(len(case.images), chunk)))
    mine = [number for number in spans if number % processes.world_size == processes.rank]
    advance = counted(f"{case.subject.name}: {plan.name}", len(mine) * (len(plan.attacks) + 2))
    fought = {
        number: fight_round(case, plan, parts, number, spans[number], advance) for number in mine
    }
    processes.barrier()
    for number in set(spans) - set(mine):
        fought[number] = fight_round(case, plan, parts, number, spans[number])
    rounds = [fought[number] for number in spans]
    return Battle(
        clean=joined([each.clean for each in rounds]),
        worst=WorstExamples(
            case.images,
            torch.cat([each.worst.examples for each in rounds]),
            torch.cat([each.worst.right for each in rounds]),
            torch.cat([each.worst.sure for each in rounds]),
            torch.cat([each.worst.margin for each in rounds]),
            [name for each in rounds for name in each.worst.attack],
        ),
        outcomes=tuple(
            tuple(found for each in rounds if (found := each.outcomes[i]) is not None)
            for i in range(len(plan.attacks))
        ),
        after=tuple(
            torch.cat([each.after[i] for each in rounds]) for i in range(len(plan.attacks))
        ),
        final=joined([each.final for each in rounds]),
        chunk=chunk,
    )


def fight_round(
    case: Evaluation,
    plan: Suite,
    parts: FinishedParts,
    number: int,
    span: slice,
    advance: Callable[[int], None] = lambda done: None,
) -> Round:
    """Run every attack on one chunk of images."""
    images, labels = case.images[span], case.labels[span]
    clean = judged(case, parts, images, labels, "clean", number)
    field = WorstExamples.of(
        images, clean, surely_wrong(case, parts, clean, images, labels, number)
    )
    advance(1)
    outcomes: list[Outcome | None] = []
    after = []
    for planned in plan.attacks:
        index = (clean.right > 0).nonzero().flatten() if plan.independent else field.standing
        outcome = None
        if len(index):
            attack = partial(case.outcome, planned, images, labels, index, number)
            outcome = Outcome(**parts.piece(f"chunk-{number:04d}-{planned.name}", attack))
            field.update(outcome, planned.name)
        outcomes.append(outcome)
        after.append(field.right.clone())
        advance(1)
    final = judged(case, parts, field.examples, labels, "final", number)
    advance(1)
    return Round(
        clean=clean, worst=field, outcomes=tuple(outcomes), after=tuple(after), final=final
    )


def judged(
    case: Evaluation,
    parts: FinishedParts,
    images: Tensor,
    labels: Tensor,
    occasion: str,
    number: int,
) -> Verdict:
    """A verdict that is kept."""

    def make() -> dict[str, Tensor]:
        fresh = case.judged(images, labels, occasion, number)
        return {"right": fresh.right, "margin": fresh.margin}

    return Verdict(**parts.piece(f"chunk-{number:04d}-{occasion}", make))


def surely_wrong(
    case: Evaluation,
    parts: FinishedParts,
    clean: Verdict,
    images: Tensor,
    labels: Tensor,
    number: int,
) -> Tensor:
    """Of each image, whether no draw labels it right even without an attack; kept."""

    def make() -> dict[str, Tensor]:
        return {"sure": case.confirmed(clean, images, labels, "clean", number)}

    return parts.piece(f"chunk-{number:04d}-clean-again", make)["sure"]


def joined(verdicts: list[Verdict]) -> Verdict:
    return Verdict(
        right=torch.cat([verdict.right for verdict in verdicts]),
        margin=torch.cat([verdict.margin for verdict in verdicts]),
    )


def candidates_needed(
    subject: AttackedModel, images: Tensor, labels: Tensor, *, seed: int
) -> tuple[int, float]:
    """How many candidates an attack should average in a step, and how alike two gradients are.

    With c the mean cosine of the gradients of two single candidates, the mean of n has the cosine
    sqrt(n c / (n c + 1 - c)) with the true gradient; n is the smallest power of two, up to 64,
    that makes it `GOOD_COSINE`. A collapsed latent needs one.
    """
    if not isinstance(subject, AttackedDefence):
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
