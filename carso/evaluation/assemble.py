"""The record of an evaluation from what the attacks and the diagnostics found."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from carso.attacks.attack import in_words
from carso.evaluation.diagnostics.gradient_health import health, reasons_against
from carso.evaluation.evaluation import Evaluation, Outcome
from carso.evaluation.fingerprints import examples_identity
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.protocol import AttackResults
from carso.evaluation.record import FEW, FORMAT
from carso.evaluation.resume import from_tensor
from carso.evaluation.statistics import Proportion, share
from carso.evaluation.tries import TRIES, survival
from carso.threats.norms import DEFAULT


def assembled(
    evaluation: Evaluation,
    plan: Suite,
    results: AttackResults,
    diagnoses: list[dict[str, Any]],
    **about: Any,
) -> dict[str, Any]:
    """The record; `about` says of what, on what data and with which settings."""
    attacks = [attack_table(evaluation, plan, results, i) for i in range(len(plan.attacks))]
    failed = [d for d in diagnoses if d["ok"] is False]
    final = results.final.right.double() / evaluation.draws
    record: dict[str, Any] = {
        "format": FORMAT,
        **about,
        "verdict": "",
        "unreliable": bool(failed),
        "reasons": [d["verdict"] for d in failed],
        "accuracy": {
            "clean": asdict(share(results.clean.right.double() / evaluation.draws)),
            "worst": asdict(share(final)),
            "worst_on_all_draws": asdict(share((results.final.right == evaluation.draws).double())),
            "while_optimising": asdict(share(results.unfooled.double())),
        },
        "tries": None if results.tries is None else tries_table(results.tries.right),
        "diagnostics": diagnoses,
        "attacks": attacks,
        "images": {
            "label": evaluation.labels.tolist(),
            "clean_right": results.clean.right.tolist(),
            "clean_margin": rounded(results.clean.margin),
            "worst_attack": results.worst.attack,
            "worst_right": results.final.right.tolist(),
            "worst_margin": rounded(results.final.margin),
            "worst_size": rounded(
                evaluation.threat.distance(results.worst.examples, evaluation.images)
            ),
            "while_optimising": results.unfooled.long().tolist(),
            **({} if results.tries is None else {"tries_right": results.tries.right.tolist()}),
        },
        "worst_examples": examples_identity(results.worst.examples),
    }
    record["verdict"] = verdict_sentence(record)
    return record


def tries_table(right: Tensor) -> dict[str, Any]:
    """Accuracy against an attacker who may submit the worst example once, twice, and so on."""
    curve = [survival(right, TRIES, tries) for tries in range(1, TRIES + 1)]
    return {"draws": TRIES, "accuracy": [asdict(share(each)) for each in curve]}


def attack_table(
    evaluation: Evaluation, plan: Suite, results: AttackResults, number: int
) -> dict[str, Any]:
    """What one attack did."""
    planned, outcomes = plan.attacks[number], results.outcomes[number]
    found = health(results, number)
    reasons = reasons_against(planned, found)
    right, margin, size = image_by_image(evaluation, results, outcomes)
    alone = results.clean.right.clone()
    for outcome in outcomes:
        alone[outcome.index + int(outcome.chunk) * results.chunk] = outcome.right
    measured_alone = plan.independent or number == 0
    return {
        "name": planned.name,
        "what": planned.what,
        "through": "classifier" if planned.through is None else str(planned.through),
        "settings": in_words(planned.attack.identity()),
        "black_box": planned.black_box,
        "own_output": planned.own,
        "attacked": sum(len(outcome.index) for outcome in outcomes),
        "broken": sum(int(outcome.confirmed.sum()) for outcome in outcomes),
        "accuracy_alone": asdict(share(alone.double() / evaluation.draws))
        if measured_alone
        else None,
        "accuracy_after": asdict(share(results.after[number].double() / evaluation.draws)),
        "unreliable": bool(reasons),
        "reasons": reasons,
        "gradients": found["shares"],
        "gradient_steps": found["steps"],
        "outputs_not_finite": found["outputs_not_finite"],
        "passes": found["passes"],
        "seconds": round(found["seconds"], 2),
        "library_warnings": warnings_of(outcomes),
        "right": right,
        "margin": margin,
        "size": size,
    }


def image_by_image(
    evaluation: Evaluation, results: AttackResults, outcomes: tuple[Outcome, ...]
) -> tuple[list[int | None], list[float | None], list[float | None]]:
    """Of each image the draws right, the margin and the size of the example that an attack made;
    None where it made none."""
    right: list[int | None] = [None] * len(evaluation.images)
    margin: list[float | None] = [None] * len(evaluation.images)
    size = list(margin)
    for outcome in outcomes:
        index = outcome.index + int(outcome.chunk) * results.chunk
        measured = evaluation.threat.distance(outcome.examples, evaluation.images[index])
        for i, place in enumerate(index.tolist()):
            right[place] = int(outcome.right[i])
            margin[place] = number_of(outcome.margin[i])
            size[place] = number_of(measured[i])
    return right, margin, size


def warnings_of(outcomes: tuple[Outcome, ...]) -> list[str]:
    """What the attack library warned of, digits aside each message once."""
    found: dict[str, str] = {}
    for outcome in outcomes:
        for text in from_tensor(outcome.library_warnings):
            found.setdefault(re.sub(r"[\d.]+", "#", text), text)
    return list(found.values())


def number_of(value: Tensor) -> float | None:
    """A number that JSON has; None for NaN and infinities."""
    return round(float(value), 5) if bool(torch.isfinite(value)) else None


def rounded(values: Tensor) -> list[float | None]:
    return [number_of(value) for value in values]


def verdict_sentence(record: dict[str, Any]) -> str:
    """The verdict, for the top of a report."""
    subject, accuracy = record["subject"], record["accuracy"]
    worst, clean = Proportion(**accuracy["worst"]), Proportion(**accuracy["clean"])
    attacks = record["attacks"]
    by = f"the worst of {len(attacks)} attacks" if len(attacks) > 1 else attacks[0]["name"]
    if subject.get("backward"):
        by += f", which followed the gradients of {subject['backward']},"
    who = "classifier" if subject["kind"] == "classifier" else "defence"
    if subject["name"] != who:
        who += f" {subject['name']}"
    if subject.get("answered_by"):
        who += f", answered by {subject['answered_by']},"
    # The norm of all early records goes without saying, so that they can be made again as they are.
    norm = "" if record["threat"]["norm"] == DEFAULT else f" in {record['threat']['norm']}"
    fact = (
        f"Under {by} within eps = {record['threat']['eps']:.4g}{norm} the {who} labels "
        f"{worst.value:.3f} of {record['data']['count']} images right (95 % interval "
        f"{worst.low:.3f} to {worst.high:.3f}; without attack {clean.value:.3f})."
    )
    if record["unreliable"]:
        why = " ".join(record["reasons"])
        return f"DO NOT TRUST THIS NUMBER. {fact} It is only an upper bound: {why}"
    if record["data"]["count"] < FEW:
        return f"{fact} With fewer than {FEW} images the diagnostics can hardly object."
    return f"{fact} No diagnostic speaks against it."
