"""In which precision the attacks of a hardening run: as asked, or measured when it begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.machine.timing import WORTH
from carso.storage import files, json_schema
from carso.storage.provenance import provenance

FILE = "precision.json"


def settled_precision(
    asked: str,
    measure: Callable[[], float],
    folder: Path | None = None,
    processes: Processes = ALONE,
) -> str:
    """`asked`; for "auto" the one that `folder` says, or on a first call what is faster here:
    `measure` gives the time of bfloat16 over that of float32. It is then written into `folder`, so
    that a run goes on as it began, on whatever machine."""
    if asked != "auto":
        return asked
    if folder is None:
        return faster(measure())

    def read_or_measure() -> str:
        path = folder / FILE
        if not path.exists():
            share = measure()
            found = {"attack_precision": faster(share), "bfloat16_over_float32": round(share, 3)}
            files.write_json(path, {**found, "provenance": provenance()})
        return read(path)

    return processes.first_then_others(read_or_measure)


def faster(share: float) -> str:
    """What is worth taking where bfloat16 needs this share of float32's time."""
    return "bfloat16" if share < WORTH else "float32"


def read(path: Path) -> str:
    """The precision that a run has begun with."""
    precision = json_schema.read(path, "the choice of a precision")["attack_precision"]
    if precision not in ("float32", "bfloat16"):
        raise CarsoError(f"{path} names no precision that this run began with: delete its folder")
    return str(precision)
