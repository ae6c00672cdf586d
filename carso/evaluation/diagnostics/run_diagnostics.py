"""Can the number be trusted? Each diagnosis says so in plain words, with its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

from torch import Tensor

from carso.distributed.processes import ALONE, Processes
from carso.evaluation.diagnostics.attack_strength import (
    black_box,
    curve,
    masking,
    more_effort,
    noise,
)
from carso.evaluation.diagnostics.candidates import diversity, precision
from carso.evaluation.diagnostics.consistent_answers import memory, same_answers
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext
from carso.evaluation.diagnostics.gradient_health import gradients
from carso.evaluation.diagnostics.slopes import jumps, slope
from carso.evaluation.diagnostics.surrogates import inside, neighbourhood
from carso.evaluation.protocol import Counted
from carso.evaluation.resume import FinishedResults, as_tensor, from_tensor

Diagnostic = Callable[[DiagnosticContext], Diagnosis]

DIAGNOSTICS: tuple[Diagnostic, ...] = (
    gradients,
    curve,
    more_effort,
    noise,
    black_box,
    masking,
    slope,
    jumps,
    neighbourhood,
    inside,
    memory,
    same_answers,
    diversity,
    precision,
)
FOLLOWING = {
    curve: "curve",
    more_effort: "more effort",
    masking: "masking",
    slope: "slope",
    neighbourhood: "neighbourhood",
}
"""Those that attack by gradients, with the names of what they find."""


def run_diagnostics(
    context: DiagnosticContext,
    finished: FinishedResults,
    counted: Counted,
    processes: Processes = ALONE,
) -> list[dict[str, Any]]:
    """Every diagnosis in turn, shared among the processes; finished ones are not made again."""
    mine = DIAGNOSTICS[processes.rank :: processes.world_size]
    advance = counted(f"{context.evaluation.model.name}: diagnostics", len(mine))
    for diagnose in mine:
        kept_diagnosis(context, finished, diagnose)
        advance(1)
    processes.barrier()
    return [kept_diagnosis(context, finished, diagnose) for diagnose in DIAGNOSTICS]


def kept_diagnosis(
    context: DiagnosticContext, finished: FinishedResults, diagnose: Diagnostic
) -> dict[str, Any]:
    """A diagnosis, which is kept."""

    def compute() -> dict[str, Tensor]:
        if diagnose in FOLLOWING and not context.evaluation.gradients:
            words = "This diagnosis attacks by gradients, and the model has none."
            found = Diagnosis(name=FOLLOWING[diagnose], ok=None, verdict=words)
        else:
            found = diagnose(context)
        return {"diagnosis": as_tensor(asdict(found))}

    found = finished.get_or_compute(f"diagnosis-{diagnose.__name__}", compute)
    return cast(dict[str, Any], from_tensor(found["diagnosis"]))
