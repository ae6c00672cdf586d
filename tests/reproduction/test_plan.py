"""What each table needs at a scale, as data."""

from dataclasses import replace

import pytest

from carso.errors import CarsoError
from carso.reproduction import published
from carso.reproduction.paper_tables import TABLES
from carso.reproduction.plan import (
    MeasuredDefence,
    PlannedRecord,
    Scale,
    read_scale,
    scales,
)

HARDENED_ROWS = {"ablation": 2, "literature": 0, "aggregation": 0, "majority-vote": 0}
"""Where it is not one; in the table of the literature the row is called so in another column."""


def test_the_tables_are_the_papers() -> None:
    assert list(TABLES) == list(published.load())


@pytest.mark.parametrize("name", scales())
def test_a_scale_names_only_what_it_has(name: str) -> None:
    scale = read_scale(name)
    for bench in scale.benches:
        named = {bench.defence, bench.hardened, bench.clean, bench.retrofit, *bench.weaker} - {""}
        assert named <= scale.runs.keys()
        for one in named:
            hardened = one.endswith(("-hardened", "-retrofit"))
            assert (scale.scenario(one).hardening is not None) == hardened
            assert (scale.scenario(one).purifier.training is None) == hardened
        assert set(bench.tables) <= TABLES.keys()
    for planned in scale.runs.values():
        assert not planned.classifier or planned.classifier in scale.runs
    used = {record.measurement for plan in TABLES.values() for record in plan(scale).records()}
    assert used == scale.measurements.keys()


def test_an_unknown_scale_lists_the_known_ones() -> None:
    with pytest.raises(CarsoError, match="small, paper"):
        read_scale("huge")


@pytest.mark.parametrize("name", TABLES)
def test_a_planned_row_has_only_columns_of_its_table(scale: Scale, name: str) -> None:
    table = TABLES[name](scale)
    keys = [column.key for column in table.columns]
    assert len(set(keys)) == len(keys)
    for row in table.rows:
        cells = [*row.texts, *row.measured, *row.timed]
        assert len(set(cells)) == len(cells)
        assert set(cells) <= set(keys)
    hardened = [row for row in table.rows if row.who.endswith(", hardened")]
    assert len(hardened) == HARDENED_ROWS.get(name, 1)
    assert bool(table.records()) == (name != "times")
    assert bool(table.timed_runs()) == (name == "times")


@pytest.mark.parametrize(("name", "rows"), [("times", 3), ("high-eps", 2), ("majority-vote", 1)])
def test_a_bench_has_rows_in_its_own_tables_only(scale: Scale, name: str, rows: int) -> None:
    benches = (scale.benches[0], replace(scale.benches[1], tables=("times",)))
    assert len(TABLES[name](replace(scale, benches=benches)).rows) == rows


def test_a_hardened_classifier_is_attacked_alone_once(scale: Scale) -> None:
    table = TABLES["classifiers"](scale)
    assert [row.texts["authors"] for row in table.rows] == ["tiny-clean", "tiny-clean"]
    one, other = (row.measured["classifier_aa"] for row in table.rows)
    assert one == other
    assert one.record.name == "tiny-clean-bare-standard-few"


def test_a_record_is_asked_of_no_more_images_than_its_run_is_measured_on(scale: Scale) -> None:
    record = PlannedRecord(defence=MeasuredDefence(run="tiny"), measurement="adaptive")
    assert scale.measurement(record).images == 4
    less = {**scale.runs, "tiny": replace(scale.runs["tiny"], most=2)}
    assert replace(scale, runs=less).measurement(record).images == 2
