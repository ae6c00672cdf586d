"""What each kind of JSON file must hold, in one place, checked when it is read.

A key may be a path ("images.shape"); "?" at its end says that it may be absent, "[]" that each
item of the list has the type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carso.storage import files
from carso.storage.files import DamagedFileError

Types = type | tuple[type, ...]
NUMBER = (int, float)

SCHEMAS: dict[str, dict[str, Types]] = {
    "a checkpoint of carso": {
        "identity": dict,
        "history": list,
        "history[]": dict,
        "tensors": str,
        "state": dict,
    },
    "a record of trained weights": {
        "what": str,
        "sha256": str,
        "identity?": dict,
        "history?": list,
        "history[]?": dict,
        "bank_seconds?": NUMBER,
        "provenance?": dict,
        "source?": dict,
    },
    "the description of a defence": {
        "scenario": dict,
        "images": dict,
        "images.shape": list,
        "images.shape[]": int,
        "images.classes": list,
        "images.classes[]": str,
        "images.mean": list,
        "images.mean[]": NUMBER,
        "images.std": list,
        "images.std[]": NUMBER,
    },
    "the choice of an anchor": {"anchor": NUMBER, "hardening": str},
    "the choice of a precision": {"attack_precision": str},
    "accuracies of a training": {"weights": dict},
    "the index of a bank": {
        "identity": dict,
        "shards": int,
        "sums": list,
        "sums[]": str,
        "seconds?": NUMBER,
    },
    "the settings of an unfinished evaluation": {
        "subject": dict,
        "suite?": dict,
        "attacks?": list,
        "threat?": dict,
        "seed": int,
        "data": dict,
    },
    "a record of times": {"stages": dict},
    "a record of an evaluation": {
        "format": int,
        "subject": dict,
        "subject.name": str,
        "suite": dict,
        "suite.name": str,
        "suite.draws": int,
        "threat": dict,
        "threat.eps": NUMBER,
        "seed": int,
        "data": dict,
        "data.sha256?": str,
        "verdict": str,
        "unreliable": (bool, list, str),
        "accuracy": dict,
        "accuracy.clean": dict,
        "accuracy.worst": dict,
        "diagnostics": list,
        "diagnostics[]": dict,
        "attacks": list,
        "attacks[]": dict,
        "images": dict,
        "provenance": dict,
    },
}
WHAT_TO_DO = {
    "a record of times": "; delete it",
    "the choice of an anchor": "; delete it",
    "a record of an evaluation": "; `carso evaluate` writes one",
    "the description of a defence": "; `carso train` writes one",
}
"""What a message adds for some kinds."""
WORDS: dict[Types, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    NUMBER: "a number",
}


def read(path: Path, kind: str) -> dict[str, Any]:
    """The JSON object in `path`, which must be what `SCHEMAS` says of its `kind`."""
    found = files.read_json(path)
    if wrong := fault(found, SCHEMAS[kind]):
        raise DamagedFileError(f"{path} is not {kind}: {wrong}{WHAT_TO_DO.get(kind, '')}")
    return dict(found)


def fault(found: Any, schema: dict[str, Types]) -> str:
    """What is wrong with a value, in words; empty if nothing is."""
    if not isinstance(found, dict):
        return "it holds no object"
    for key, types in schema.items():
        path = key.removesuffix("?")
        each = path.endswith("[]")
        *outer, last = path.removesuffix("[]").split(".")
        table = found
        for name in outer:
            table = table[name]  # an earlier line of the schema says that it is an object
        if last not in table or (key.endswith("?") and table[last] is None):
            if key.endswith("?"):
                continue
            return f"{path} is missing"
        values = table[last] if each else [table[last]]
        if not all(fits(value, types) for value in values):
            return f"{path} is not {WORDS.get(types, 'of its type')}"
    return ""


def fits(value: Any, types: Types) -> bool:
    """Whether a value is of a type; True and False are no numbers."""
    allowed = types if isinstance(types, tuple) else (types,)
    return isinstance(value, types) and (bool in allowed or not isinstance(value, bool))
