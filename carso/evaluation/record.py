"""One JSON per evaluation: what was asked, what happened to each image, and can it be trusted."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carso.errors import CarsoError
from carso.evaluation.diagnostics.gradient_health import health, reasons_against
from carso.evaluation.evaluation import Evaluation, Outcome
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.protocol import Battle
from carso.evaluation.resume import from_tensor
from carso.evaluation.statistics import Proportion, share
from carso.storage import files

FORMAT = 1
FEW = 40
"""Fewer images than this say little."""


def assembled(
    case: Evaluation, plan: Suite, battle: Battle, diagnoses: list[dict[str, Any]], **about: Any
) -> dict[str, Any]:
    """The record; `about` says of what, on what data and with which settings."""
    attacks = [attack_table(case, plan, battle, i) for i in range(len(plan.attacks))]
    failed = [d for d in diagnoses if d["ok"] is False]
    final = battle.final.right.double() / case.draws
    record: dict[str, Any] = {
        "format": FORMAT,
        **about,
        "verdict": "",
        "unreliable": bool(failed),
        "reasons": [d["verdict"] for d in failed],
        "accuracy": {
            "clean": asdict(share(battle.clean.right.double() / case.draws)),
            "worst": asdict(share(final)),
            "worst_on_all_draws": asdict(share((battle.final.right == case.draws).double())),
        },
        "diagnostics": diagnoses,
        "attacks": attacks,
        "images": {
            "label": case.labels.tolist(),
            "clean_right": battle.clean.right.tolist(),
            "clean_margin": rounded(battle.clean.margin),
            "worst_attack": battle.worst.attack,
            "worst_right": battle.final.right.tolist(),
            "worst_margin": rounded(battle.final.margin),
            "worst_size": rounded(sizes(battle.worst.examples, case.images)),
        },
    }
    record["verdict"] = sentence(record)
    return record


def finite(value: Any) -> Any:
    """`value` with None for every number that JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def attack_table(case: Evaluation, plan: Suite, battle: Battle, number: int) -> dict[str, Any]:
    """What one attack did."""
    planned, outcomes = plan.attacks[number], battle.outcomes[number]
    found = health(battle, number)
    reasons = reasons_against(planned, found)
    places = scattered(outcomes, battle.chunk)
    right: list[int | None] = [None] * len(case.images)
    margin: list[float | None] = [None] * len(case.images)
    size = list(margin)
    broken = 0
    alone = battle.clean.right.clone()
    for outcome, offset in places:
        where = (outcome.index + offset).tolist()
        broken += int(outcome.sure.sum())
        measured = sizes(outcome.examples, case.images[outcome.index + offset])
        for i, place in enumerate(where):
            right[place] = int(outcome.right[i])
            margin[place] = number_of(outcome.margin[i])
            size[place] = number_of(measured[i])
            alone[place] = outcome.right[i]
    attacked = sum(len(outcome.index) for outcome in outcomes)
    measured_alone = plan.independent or number == 0
    return {
        "name": planned.name,
        "what": planned.what,
        "through": "classifier" if planned.through is None else str(planned.through),
        "settings": re.sub(r", heard=\[.*?\]", "", repr(planned.attack)),
        "black_box": planned.black_box,
        "own_output": planned.own,
        "attacked": attacked,
        "broken": broken,
        "accuracy_alone": asdict(share(alone.double() / case.draws)) if measured_alone else None,
        "accuracy_after": asdict(share(battle.after[number].double() / case.draws)),
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


def scattered(outcomes: tuple[Outcome, ...], chunk: int) -> list[tuple[Outcome, int]]:
    """Each outcome with the number of the first image of its chunk."""
    return [(outcome, int(outcome.chunk) * chunk) for outcome in outcomes]


def warnings_of(outcomes: tuple[Outcome, ...]) -> list[str]:
    """What the attack library warned of, digits aside each message once."""
    found: dict[str, str] = {}
    for outcome in outcomes:
        for text in from_tensor(outcome.heard):
            found.setdefault(re.sub(r"[\d.]+", "#", text), text)
    return list(found.values())


def sizes(examples: Tensor, images: Tensor) -> Tensor:
    """The largest change of a pixel of each image, (B,)."""
    return (examples - images).abs().flatten(1).amax(dim=1)


def number_of(value: Tensor) -> float | None:
    """A number that JSON has; None for NaN and infinities."""
    return round(float(value), 5) if bool(torch.isfinite(value)) else None


def rounded(values: Tensor) -> list[float | None]:
    return [number_of(value) for value in values]


def sentence(record: dict[str, Any]) -> str:
    """The verdict, for the top of a report."""
    subject, accuracy = record["subject"], record["accuracy"]
    worst, clean = Proportion(**accuracy["worst"]), Proportion(**accuracy["clean"])
    attacks = record["attacks"]
    by = f"the worst of {len(attacks)} attacks" if len(attacks) > 1 else attacks[0]["name"]
    who = "classifier" if subject["kind"] == "classifier" else "defence"
    if subject["name"] != who:
        who += f" {subject['name']}"
    if subject.get("answered_by"):
        who += f", answered by {subject['answered_by']},"
    fact = (
        f"Under {by} within eps = {record['threat']['eps']:.4g} the {who} labels "
        f"{worst.value:.3f} of {record['data']['count']} images right (95 % interval "
        f"{worst.low:.3f} to {worst.high:.3f}; without attack {clean.value:.3f})."
    )
    if record["data"]["count"] < FEW:
        fact += f" With fewer than {FEW} images the diagnostics can hardly object."
    if record["unreliable"]:
        why = " ".join(record["reasons"])
        return f"DO NOT TRUST THIS NUMBER. {fact} It is only an upper bound: {why}"
    return f"{fact} No diagnostic speaks against it."


def write(path: Path, record: dict[str, Any]) -> None:
    """The record as JSON that a person can look at: lists of numbers on one line."""
    files.write_text(path, indented(record) + "\n")


def indented(value: Any, depth: int = 0) -> str:
    """JSON with a line for each entry of a dict, and lists of plain values on one line."""
    inner, outer = " " * (depth + 1), " " * depth
    if isinstance(value, dict) and value:
        entries = (f"{json.dumps(str(k))}: {indented(v, depth + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{outer}}}"
    if isinstance(value, list | tuple) and any(isinstance(v, dict | list | tuple) for v in value):
        return "[\n" + ",\n".join(inner + indented(v, depth + 1) for v in value) + f"\n{outer}]"
    return json.dumps(value, allow_nan=False)


HOW = ("draws", "samples", "chunk")


def refuse_another(path: Path, settings: dict[str, Any]) -> None:
    """Do not overwrite the finished record of another evaluation."""
    if not path.exists():
        return
    before = read(path)
    same = {
        "subject": before["subject"] == settings["subject"],
        "suite": before["suite"]["name"] == settings["suite"]["name"],
        "attacks": [[attack[key] for key in ("name", "what")] for attack in before["attacks"]]
        == [list(attack[:2]) for attack in settings["attacks"]],
        **{key: before["suite"][key] == settings["suite"][key] for key in HOW},
        "eps": before["threat"] == settings["threat"],
        "seed": before["seed"] == settings["seed"],
        "images": before["data"]["sha256"] == settings["data"]["sha256"],
    }
    if not all(same.values()):
        other = ", ".join(what for what, equal in same.items() if not equal)
        raise CarsoError(
            f"{path} holds the record of an evaluation with other {other}; write this one "
            "elsewhere, by --out FILE"
        )


def read(path: Path) -> dict[str, Any]:
    """A record that `write` wrote, after a check that it is one."""
    record = files.read_json(path)
    wanted = ("format", "subject", "suite", "threat", "seed", "data", "verdict", "unreliable",
              "accuracy", "diagnostics", "attacks", "images", "provenance")  # fmt: skip
    if not isinstance(record, dict) or any(key not in record for key in wanted):
        raise CarsoError(f"{path} is not a record of an evaluation: `carso evaluate` writes one")
    if record["format"] != FORMAT:
        raise CarsoError(
            f"{path} has format {record['format']}, this version of carso reads {FORMAT}"
        )
    for name in ("clean", "worst", "worst_on_all_draws"):
        share = record["accuracy"].get(name) if isinstance(record["accuracy"], dict) else None
        numbers = [share.get(key) for key in ("low", "value", "high")] if share else []
        if not numbers or not all(isinstance(n, int | float) and 0 <= n <= 1 for n in numbers):
            raise CarsoError(f"{path} is a damaged record: accuracy.{name} is no share of images")
    return record
