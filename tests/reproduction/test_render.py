"""Tables of what is there: nothing is trained or attacked for a cell, and a gap is named."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import consistent, run
from torch import nn

from carso.errors import CarsoError
from carso.reproduction import published, run_jobs
from carso.reproduction.costs import COMMITTED, known_costs
from carso.reproduction.jobs import list_jobs
from carso.reproduction.paper_tables import TABLES
from carso.reproduction.plan import MeasuredDefence, PlannedRecord, Scale, read_scale
from carso.reproduction.planned_table import worst
from carso.reproduction.render import NOT_RUN, TableRenderer, as_lines, as_page, render, write
from carso.reproduction.results_folder import ResultsFolder
from carso.storage.files import read_json, write_json

Made = ResultsFolder
TINY = MeasuredDefence(run="tiny")
ADAPTIVE = PlannedRecord(defence=TINY, measurement="adaptive")


@pytest.fixture
def made(scale: Scale, make: Callable[..., Any], tmp_path: Path) -> ResultsFolder:
    """Stand-ins of all that a bench needs; the other's data are not there."""
    results = ResultsFolder(scale=scale, folder=tmp_path / "made")
    tables = [TABLES[name](scale) for name in ("results", "times", "ablation")]
    jobs = list_jobs(tables, results, known_costs([]))
    make([job for job in jobs if job.run != "gone"], results)
    return results


def change(results: ResultsFolder, record: str, key: str, **values: object) -> None:
    """Write something else into a part of a record."""
    path = results.records_folder / f"{record}.json"
    found = read_json(path)
    write_json(path, consistent({**found, key: {**found[key], **values}}))


def forbidden(*_: object, **__: object) -> None:
    raise AssertionError("a table was rendered, and something ran")


def test_rendering_committed_records_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import carso.evaluation.by_name
    import carso.evaluation.evaluate
    import carso.training.loop
    import carso.training.train

    for module, name in (
        (carso.training.train, "train"),
        (carso.training.train, "load_data"),
        (carso.training.loop, "run"),
        (carso.evaluation.evaluate, "evaluate"),
        (carso.evaluation.by_name, "evaluate_by_name"),
        (run_jobs, "train"),
        (run_jobs, "load_data"),
        (run_jobs, "evaluate_by_name"),
        (nn.Module, "__call__"),
    ):
        monkeypatch.setattr(module, name, forbidden)
    scale = read_scale("small")
    results = ResultsFolder(scale=scale, folder=Path("nowhere"), records=COMMITTED)
    page = (COMMITTED.parent / "results.md").read_text(encoding="utf-8")
    for plan in TABLES.values():
        found = render(plan(scale), results)
        assert not any(NOT_RUN in row for row in found.table[1])
        assert as_page(found).strip() in page


def test_who_renders_does_not_load_what_trains(tmp_path: Path) -> None:
    script = (
        "import contextlib, sys\n"
        f"sys.argv = ['carso', 'reproduce', 'times', '--show', '--out', {str(tmp_path)!r}]\n"
        "from carso.cli.main import main\n"
        "with contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "assert 'carso.reproduction.render' in sys.modules\n"
        "words = ('carso.training', 'carso.reproduction.run_jobs', 'carso.evaluation.evaluate')\n"
        "print([name for name in sys.modules if name.startswith(words)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_our_rows_above_the_papers(made: Made, name: str) -> None:
    planned = TABLES[name](made.scale)
    found = render(planned, made)
    header, rows = found.table
    assert all(len(row) == len(header) for row in rows)
    assert [row[0] for row in rows[: len(planned.rows)]] == [row.who for row in planned.rows]
    theirs = rows[len(planned.rows) :]
    assert [row[0] for row in theirs] == ["the paper"] * len(published.table(name).rows)
    assert as_page(found).startswith(f"## {name}\n")
    assert len(as_lines(found)) > len(rows)


def test_a_cell_is_what_its_record_says(made: Made) -> None:
    change(made, "tiny-adaptive", "images", clean_right=[1, 1, 1, 0], worst_right=[1, 0, 0, 0])
    header, rows = render(TABLES["results"](made.scale), made).table
    cells = dict(zip(header, rows[0], strict=True))
    assert cells["CARSO, clean"] == "0.750"
    assert cells["Adaptive, worst case"].startswith("0.250 [")
    assert cells["Adaptive, worst case"].endswith("] of 0.750, n = 4")
    assert cells["Classifier alone, AutoAttack"].startswith("1.000 [")
    paper = dict(zip(header, rows[-3], strict=True))
    assert paper["CARSO, randAA"] == "0.7613"
    assert paper["Adaptive, worst case"] == ""


def test_a_number_that_the_diagnostics_object_to_is_marked(made: Made) -> None:
    path = made.records_folder / "tiny-adaptive.json"
    write_json(path, {**read_json(path), "unreliable": True, "diagnostics": [{"ok": False}]})
    found = render(TABLES["results"](made.scale), made)
    assert found.table[1][0][-1].endswith("n = 4 (!)")
    assert not found.table[1][1][-1].endswith("(!)")
    assert any(note.startswith("(!) Only an upper bound") for note in found.notes)


def test_a_record_of_more_images_gives_a_cell_the_first_of_them(made: Made) -> None:
    change(made, "tiny-adaptive", "images", worst_right=[1, 1, 0, 0])
    renderer = TableRenderer(results=made, reasons={})
    assert renderer.accuracy(worst(TINY, "adaptive")).startswith("0.500 [")
    cell = renderer.accuracy(worst(TINY, "adaptive-few"))
    assert cell.startswith("0.667 [")
    assert cell.endswith("] of 1.000, n = 3")
    assert any("the first 3 of 4 test images" in line for line in renderer.records)
    assert any("fewer than 40" in note for note in renderer.notes)


def test_what_is_not_there_says_so_and_why(made: Made, scale: Scale) -> None:
    (made.records_folder / "tiny-hardened-pgd-eot.json").unlink()
    found = render(TABLES["results"](scale), made)
    first, second, gone = found.table[1][:3]
    assert NOT_RUN not in first
    assert second.count(NOT_RUN) == 1
    assert gone.count(NOT_RUN) == 7
    (note,) = (note for note in found.notes if note.startswith("Not run: "))
    assert "the record tiny-hardened-pgd-eot.json is not made yet" in note
    times = render(TABLES["times"](scale), made)
    assert any("the run gone is not made yet" in note for note in times.notes)
    reasons = {made.run_folder("gone"): "the data cifar100 are not here"}
    told = render(TABLES["times"](scale), made, reasons)
    assert any("Not run: the data cifar100 are not here." in note for note in told.notes)


# Records and times of something else.


def test_a_record_of_another_measurement_is_refused(made: Made) -> None:
    records = made.records_folder
    (records / "tiny-adaptive.json").rename(records / "tiny-bare-standard.json")
    with pytest.raises(
        CarsoError, match="suite is margin@mean-logits, wanted is apgd-ce@mean-logits"
    ):
        render(TABLES["results"](made.scale), made)


def test_a_record_of_more_images_will_do_and_one_of_fewer_is_outdated(made: Made) -> None:
    """It is shown until it is made anew: the cell says on how many images it stands."""

    def asking(images: int) -> ResultsFolder:
        wanted = replace(made.scale.measurements["adaptive"], images=images)
        measurements = {**made.scale.measurements, "adaptive": wanted}
        return replace(made, scale=replace(made.scale, measurements=measurements))

    for images in (3, 4, 5):
        assert asking(images).record(ADAPTIVE) == made.record(ADAPTIVE)
        assert asking(images).outdated(ADAPTIVE) == (images > 4)
        assert asking(images).images(ADAPTIVE) == max(4, images)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("subject", {"name": "tiny-hardened"}, "subject is tiny-hardened, wanted is tiny"),
        ("subject", {"aggregation": "mean-logits"}, "aggregation is mean-logits, wanted is double"),
        ("subject", {"answered_by": "tiny-clean"}, "answered by is tiny-clean, wanted is itself"),
        ("data", {"split": "validation"}, "split is validation, wanted is test"),
        ("data", {"set": "mnist"}, "data is mnist, wanted is"),
        ("threat", {"eps": 0.2}, "eps is 0.2, wanted is 0.1"),
        ("threat", {"norm": "L2"}, "norm is L2, wanted is Linf"),
    ],
)
def test_a_record_of_another_defence_or_data_is_refused(
    made: Made, key: str, value: dict[str, str], says: str
) -> None:
    change(made, "tiny-adaptive", key, **value)
    with pytest.raises(CarsoError, match=says):
        made.record(ADAPTIVE)


@pytest.mark.parametrize("content", [{}, {"stages": {}}, {"stages": {"purifier": {}}}, []])
def test_a_damaged_record_of_times_is_one_line(made: Made, content: object) -> None:
    made.time_path("tiny").write_text(json.dumps(content))
    with pytest.raises(CarsoError, match=r"tiny\.json .* delete it"):
        render(TABLES["times"](made.scale), made)


def test_a_training_whose_bank_was_not_timed_took_longer(made: Made) -> None:
    path = made.time_path("tiny")
    stages = read_json(path)["stages"]
    stages["purifier"] |= {"whole": False, "minutes": 7.0}
    write_json(path, {"stages": stages})
    found = render(TABLES["times"](made.scale), made)
    assert found.table[1][0][2] == "over 7"
    assert any("not timed" in note for note in found.notes)


# On paper.


def test_a_table_is_written_in_both_languages(made: Made, tmp_path: Path) -> None:
    found = render(TABLES["results"](made.scale), made)
    write(tmp_path / "out", found)
    assert (tmp_path / "out" / "results.md").read_text(encoding="utf-8") == as_page(found)
    assert r"\toprule" in (tmp_path / "out" / "results.tex").read_text(encoding="utf-8")


def test_what_is_there_is_shown_without_making_anything(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("reproduce", "times", "--show", "--out", tmp_path / "out", "--records", tmp_path)
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert "measured here, hardened" in out
    assert "the run cifar10-small is not made yet" in out
    assert f"records: {tmp_path}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out" / "runs").exists()
