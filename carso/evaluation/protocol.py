"""Who wins, image by image: attacks in turn, verdicts on fresh draws, resumable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from carso.distributed.processes import ALONE, Processes
from carso.evaluation.attacked_model import Verdict
from carso.evaluation.evaluation import Evaluation, Outcome, WorstExamples
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.resume import FinishedResults
from carso.evaluation.tries import TRIES

Counted = Callable[[str, int], Callable[[int], None]]
"""Shows progress: called with what and how much, it gives a function to call as it is done."""


@dataclass(frozen=True, kw_only=True)
class AttackResults:
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
    tries: Verdict | None
    """The same on `TRIES` draws more, of a model that draws."""
    unfooled: Tensor
    """Images that no pass of any attack and no draw of any verdict on the way got wrong, (B,)."""


def chunks_of(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True, kw_only=True)
class ChunkResults:
    """All that the attacks did to one chunk of images."""

    clean: Verdict
    worst: WorstExamples
    outcomes: tuple[Outcome | None, ...]
    """Of each attack; None where no image stood any more."""
    after: tuple[Tensor, ...]
    final: Verdict
    tries: Verdict | None
    unfooled: Tensor


def run_attacks(
    evaluation: Evaluation,
    plan: Suite,
    finished: FinishedResults,
    *,
    chunk: int,
    counted: Counted,
    processes: Processes = ALONE,
) -> AttackResults:
    """Run every attack on every chunk of images; what is `finished` already is not run again.

    Many processes share the chunks. Every chunk has seeds of its own, so that who attacks it
    changes nothing, and each process then reads what the others made.
    """
    spans = dict(enumerate(chunks_of(len(evaluation.images), chunk)))
    mine = [number for number in spans if number % processes.world_size == processes.rank]
    what = f"{evaluation.model.name}: {plan.name}"
    advance = counted(what, len(mine) * (len(plan.attacks) + 2))
    attack = partial(attack_chunk, evaluation, plan, finished)
    attacked = {number: attack(number, spans[number], advance) for number in mine}
    processes.barrier()
    for number in set(spans) - set(mine):
        attacked[number] = attack(number, spans[number])
    return joined_chunks(evaluation, [attacked[number] for number in spans], chunk)


def joined_chunks(evaluation: Evaluation, chunks: list[ChunkResults], chunk: int) -> AttackResults:
    """The results of all images from those of the chunks, in order."""
    attacks = range(len(chunks[0].outcomes))
    return AttackResults(
        clean=joined_verdicts([each.clean for each in chunks]),
        worst=WorstExamples(
            evaluation.images,
            torch.cat([each.worst.examples for each in chunks]),
            torch.cat([each.worst.right for each in chunks]),
            torch.cat([each.worst.confirmed for each in chunks]),
            torch.cat([each.worst.margin for each in chunks]),
            [name for each in chunks for name in each.worst.attack],
        ),
        outcomes=tuple(
            tuple(found for each in chunks if (found := each.outcomes[i]) is not None)
            for i in attacks
        ),
        after=tuple(torch.cat([each.after[i] for each in chunks]) for i in attacks),
        final=joined_verdicts([each.final for each in chunks]),
        chunk=chunk,
        tries=joined_verdicts([each.tries for each in chunks if each.tries is not None])
        if evaluation.model.stochastic
        else None,
        unfooled=torch.cat([each.unfooled for each in chunks]),
    )


def attack_chunk(
    evaluation: Evaluation,
    plan: Suite,
    finished: FinishedResults,
    number: int,
    span: slice,
    advance: Callable[[int], None] = lambda done: None,
) -> ChunkResults:
    """Run every attack on one chunk of images."""
    images, labels = evaluation.images[span], evaluation.labels[span]
    clean = kept_verdict(evaluation, finished, images, labels, "clean", number)
    wrong = confirmed_wrong(evaluation, finished, clean, images, labels, number)
    worst = WorstExamples.of(images, clean, wrong)
    advance(1)
    outcomes: list[Outcome | None] = []
    after, unfooled = [], clean.right == evaluation.draws
    for planned in plan.attacks:
        index = worst.weakest(planned.weakest)
        if plan.independent:
            index = (clean.right > 0).nonzero().flatten()
        outcome = None
        if len(index):
            start = worst.examples.clone()
            attack = partial(evaluation.outcome, planned, images, labels, index, number, start)
            name = f"chunk-{number:04d}-{planned.name}"
            outcome = Outcome(**finished.get_or_compute(name, attack))
            worst.update(outcome, planned.name)
            unfooled[index] &= ~outcome.fooled & (outcome.right == evaluation.draws)
        outcomes.append(outcome)
        after.append(worst.right.clone())
        advance(1)
    judged = partial(kept_verdict, evaluation, finished, worst.examples, labels)
    final = judged("final", number)
    tries = judged("tries", number, draws=TRIES) if evaluation.model.stochastic else None
    advance(1)
    return ChunkResults(
        clean=clean, worst=worst, outcomes=tuple(outcomes), after=tuple(after), final=final,
        tries=tries, unfooled=unfooled,
    )  # fmt: skip


def kept_verdict(
    evaluation: Evaluation,
    finished: FinishedResults,
    images: Tensor,
    labels: Tensor,
    occasion: str,
    number: int,
    draws: int | None = None,
) -> Verdict:
    """The verdict on a chunk of images, which is kept."""

    def compute() -> dict[str, Tensor]:
        fresh = evaluation.judge(images, labels, occasion, number, draws=draws)
        return {"right": fresh.right, "margin": fresh.margin}

    return Verdict(**finished.get_or_compute(f"chunk-{number:04d}-{occasion}", compute))


def confirmed_wrong(
    evaluation: Evaluation,
    finished: FinishedResults,
    clean: Verdict,
    images: Tensor,
    labels: Tensor,
    number: int,
) -> Tensor:
    """Of each image, whether no draw labels it right even without an attack; kept."""

    def compute() -> dict[str, Tensor]:
        return {"confirmed": evaluation.confirm(clean, images, labels, "clean", number)}

    return finished.get_or_compute(f"chunk-{number:04d}-clean-again", compute)["confirmed"]


def joined_verdicts(verdicts: list[Verdict]) -> Verdict:
    return Verdict(
        right=torch.cat([verdict.right for verdict in verdicts]),
        margin=torch.cat([verdict.margin for verdict in verdicts]),
    )
