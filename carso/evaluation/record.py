"""One JSON per evaluation: what was asked, what happened to each image, and can it be trusted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from carso.attacks.attack import in_words
from carso.errors import CarsoError
from carso.evaluation.record_consistency import contradiction
from carso.storage import files, json_schema
from carso.threats.norms import DEFAULT

FORMAT = 1
FEW = 40
"""Fewer images than this say little."""


def finite(value: Any) -> Any:
    """`value` with None for every number that JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(path: Path, record: dict[str, Any]) -> None:
    """The record, sealed, as JSON that a person can look at: lists of numbers on one line."""
    files.write_text(path, indented(files.sealed(record)) + "\n")


def indented(value: Any, depth: int = 0) -> str:
    """JSON with a line for each entry of a dict, and lists of plain values on one line."""
    inner, outer = " " * (depth + 1), " " * depth
    if isinstance(value, dict) and value:
        entries = (f"{json.dumps(str(k))}: {indented(v, depth + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{outer}}}"
    if isinstance(value, list | tuple) and any(isinstance(v, dict | list | tuple) for v in value):
        return "[\n" + ",\n".join(inner + indented(v, depth + 1) for v in value) + f"\n{outer}]"
    return json.dumps(value, allow_nan=False)


SUITE_SETTINGS = ("draws", "samples", "chunk")


def refuse_another(path: Path, settings: dict[str, Any]) -> None:
    """Do not overwrite the finished record of another evaluation."""
    if not path.exists():
        return
    before = read(path)
    subject = dict(settings["subject"])
    if "model" not in before["subject"]:
        del subject["model"]  # a record from before models were told apart by more than weights
    same = {
        "subject": before["subject"] == subject,
        "suite": before["suite"]["name"] == settings["suite"]["name"],
        "attacks": [[attack[key] for key in ("name", "what")] for attack in before["attacks"]]
        == [list(attack[:2]) for attack in settings["attacks"]],
        **{key: before["suite"][key] == settings["suite"][key] for key in SUITE_SETTINGS},
        "norm": before["threat"].get("norm", DEFAULT) == settings["threat"]["norm"],
        "eps": before["threat"]["eps"] == settings["threat"]["eps"],
        "seed": before["seed"] == settings["seed"],
        "images": before["data"]["sha256"] == settings["data"]["sha256"],
    }
    if not all(same.values()):
        other = ", ".join(what for what, equal in same.items() if not equal)
        raise CarsoError(
            f"{path} holds the record of an evaluation with other {other}; write this one "
            "elsewhere, by --out FILE"
        )


def same(record: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether a record, which `refuse_another` would let be made again, is the one that the same
    model would give under the same settings."""
    suite = json.loads(json.dumps(settings["suite"]))
    return (
        settings["subject"]["model"] is not None
        and all(record["suite"].get(key) == value for key, value in suite.items())
        and [attack["settings"] for attack in record["attacks"]]
        == [in_words(attack[3]) for attack in settings["attacks"]]
    )


def read(path: Path) -> dict[str, Any]:
    """A record that `write` wrote, after a check that it is one."""
    record = json_schema.read(path, "a record of an evaluation")
    if record["format"] != FORMAT:
        raise CarsoError(
            f"{path} has format {record['format']}, this version of carso reads {FORMAT}"
        )
    for name in ("clean", "worst", "worst_on_all_draws"):
        share = record["accuracy"].get(name) if isinstance(record["accuracy"], dict) else None
        numbers = [share.get(key) for key in ("low", "value", "high")] if share else []
        if not numbers or not all(isinstance(n, int | float) and 0 <= n <= 1 for n in numbers):
            raise CarsoError(f"{path} is a damaged record: accuracy.{name} is no share of images")
    if wrong := contradiction(record):
        raise CarsoError(f"{path} is damaged or was edited, it contradicts itself: {wrong}")
    return record
