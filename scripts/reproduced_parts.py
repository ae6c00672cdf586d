"""The paper's tables from committed records, for `docs/results.md`."""

from __future__ import annotations

from functools import partial
from typing import Any

from records import RESULTS, record

from carso.reproduction.paper_tables import TABLES
from carso.reproduction.plan import read_scale
from carso.reproduction.render import as_page, render
from carso.reproduction.results_folder import ResultsFolder

SCALE = read_scale("small")
COMMITTED = ResultsFolder(scale=SCALE, folder=RESULTS / "reproduction", records=RESULTS)


def reproduced(name: str) -> str:
    """One table; what has no record is marked as not run."""
    return as_page(render(TABLES[name](SCALE), COMMITTED)).strip()


def cost() -> str:
    """What the records and trainings of all tables took."""
    wanted = dict.fromkeys(one for plan in TABLES.values() for one in plan(SCALE).records())
    records = [found for one in wanted if (found := COMMITTED.record(one)) is not None]
    hours = sum(found["provenance"]["seconds"] for found in records) / 3600
    trained = [
        stage
        for path in sorted((RESULTS / "times").glob("*.json"))
        for stage in record(path)["stages"].values()
        if made(stage)
    ]
    training = sum(stage["minutes"] for stage in trained) / 60
    over = "" if all(stage["whole"] for stage in trained) else "over "
    return (
        f"The {len(records)} records of these tables took {hours:.1f} hours of one thread, "
        f"most of them beside other work; the runs that do not ship, {over}{training:.1f} hours "
        "more."
    )


def made(stage: dict[str, Any]) -> bool:
    """Whether a stage was trained for the tables, not taken over from weights that ship."""
    return str(stage["command"]).startswith("carso reproduce")


REPRODUCED_PARTS = {f"table-{name}": partial(reproduced, name) for name in TABLES} | {
    "reproduction-cost": cost
}
