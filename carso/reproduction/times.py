"""How long trainings took, from what they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carso.errors import CarsoError
from carso.storage import json_schema

Record = dict[str, Any]


def times_in(path: Path) -> dict[str, Record]:
    """What `keep_time` wrote, after a check that it is that."""
    stages: dict[str, Record] = json_schema.read(path, "a record of times")["stages"]
    if not stages:
        raise CarsoError(f"{path} holds no times of a training: delete it, or the run beside it")
    for stage in stages.values():
        if not isinstance(stage, dict) or not {"minutes", "whole", "hardware"} <= stage.keys():
            raise CarsoError(f"{path} is a damaged record of times: delete it")
    return stages


def minutes_of(folder: Path) -> dict[str, Record]:
    """By stage, how long the trainings in `folder` took, and with what."""
    found = {}
    for stage in ("classifier", "purifier", "hardening"):
        path = folder / f"{stage}.json"
        table = json_schema.read(path, "a record of trained weights") if path.exists() else {}
        if table.get("history"):
            epochs = sum(row["seconds"] for row in table["history"])
            made, bank = table["provenance"], table.get("bank_seconds")
            found[stage] = {
                "minutes": (epochs + (bank or 0.0)) / 60,
                "whole": stage != "purifier" or bank is not None,
                "hardware": made["hardware"],
                "command": made.get("command", ""),
                "revision": made.get("revision", ""),
            }
    return found
