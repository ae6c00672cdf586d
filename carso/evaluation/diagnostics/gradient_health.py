"""Were there gradients to follow? Counts per attack and step, and what they mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from carso.attacks.probe import KINDS
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext
from carso.evaluation.planned_attacks import PlannedAttack
from carso.evaluation.protocol import AttackResults
from carso.evaluation.statistics import percent

BROKEN_SHARE = 0.01
"""More NaN or infinite gradients than this spoil an attack."""
ZERO_SHARE = 0.1
"""So do more gradients of exactly zero than this."""


def health(results: AttackResults, number: int) -> dict[str, Any]:
    """Counts of the gradients of one attack, step by step, and of its outputs."""
    outcomes = results.outcomes[number]
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


def reasons_against(planned: PlannedAttack, found: dict[str, Any]) -> list[str]:
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


def gradients(context: DiagnosticContext) -> Diagnosis:
    """NaN, infinite and zero gradients; outputs that are not finite."""
    if not context.evaluation.gradients:
        words = (
            "The scores of this model have no gradient: they are labels, or computed without. It "
            "was attacked by queries alone, which break less."
        )
        return Diagnosis(name="gradients", ok=False, verdict=words)
    spoiled, sound = {}, []
    for number, planned in enumerate(context.plan.attacks):
        if not context.results.outcomes[number] or planned.black_box or planned.inside:
            continue
        reasons = reasons_against(planned, health(context.results, number))
        if reasons:
            spoiled[planned.name] = "; ".join(reasons)
        elif planned.through is not None:
            sound.append(planned.name)
    mute = float(context.results.clean.margin.isnan().double().mean())
    if mute > BROKEN_SHARE:
        words = f"Without any attack {percent(mute)} of the answers are NaN, and count as wrong."
        return Diagnosis(name="gradients", ok=False, verdict=words, figures={"mute": mute})
    if not spoiled and not sound:
        words = "No attack of this record followed gradients of what is judged."
        return Diagnosis(name="gradients", ok=None, verdict=words)
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
        words = f"Every attack was handicapped: {named}."
    return Diagnosis(
        name="gradients",
        ok=bool(sound) or not spoiled,
        verdict=words,
        figures={"spoiled": spoiled, "sound": sound},
    )
