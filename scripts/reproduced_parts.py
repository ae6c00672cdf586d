"""The paper's tables from committed records, for `docs/results.md`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from records import RESULTS, record

from carso.report.progress import progress
from carso.reproduction import TABLES, Reproduced, Workshop, read_scale
from carso.reproduction.workshop import MeasuredDefence
from carso.reproduction.writing import as_page


@dataclass(frozen=True, kw_only=True)
class Reading(Workshop):
    """Makes nothing, and remembers what its records took."""

    seconds: dict[str, float] = field(default_factory=dict)

    def record(self, subject: MeasuredDefence, measurement: str) -> dict[str, Any]:
        found = super().record(subject, measurement)
        self.seconds[f"{subject.name}-{measurement}"] = found["provenance"]["seconds"]
        return found


def read(names: list[str]) -> tuple[list[Reproduced], Reading]:
    """Tables, and the workshop that read them; what has no record is marked as not run."""
    import torch

    with progress(shown=False) as bars:
        shop = Reading(
            scale=read_scale("small"),
            folder=RESULTS / "reproduction",
            records=RESULTS,
            device=torch.device("cpu"),
            bars=bars,
            make=False,
        )
        return [TABLES[name](shop) for name in names], shop


def reproduced(name: str) -> str:
    """One table."""
    ((table,), _) = read([name])
    return as_page(table).strip()


def cost() -> str:
    """What the records and trainings of all tables took."""
    _, shop = read(list(TABLES))
    hours = sum(shop.seconds.values()) / 3600
    trained = [
        stage
        for path in sorted((RESULTS / "times").glob("*.json"))
        for stage in record(path)["stages"].values()
        if made(stage)
    ]
    training = sum(stage["minutes"] for stage in trained) / 60
    over = "" if all(stage["whole"] for stage in trained) else "over "
    return (
        f"The {len(shop.seconds)} records of these tables took {hours:.1f} hours of one thread, "
        f"most of them beside other work; the runs that do not ship, {over}{training:.1f} hours "
        "more."
    )


def made(stage: dict[str, Any]) -> bool:
    """Whether a stage was trained for the tables, not taken over from weights that ship."""
    return str(stage["command"]).startswith("carso reproduce")


REPRODUCED_PARTS = {f"table-{name}": partial(reproduced, name) for name in TABLES} | {
    "reproduction-cost": cost
}
