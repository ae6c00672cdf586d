"""The list of jobs: complete, in order, each once, with what it will take."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from support import run

from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.reproduction.costs import COMMITTED, KnownCosts, known_costs
from carso.reproduction.jobs import Job, as_list, list_jobs, list_together
from carso.reproduction.paper_tables import TABLES
from carso.reproduction.plan import MeasuredDefence, PlannedRecord, Scale, read_scale
from carso.reproduction.render import NOT_RUN, render
from carso.reproduction.results_folder import ResultsFolder
from carso.storage.files import write_json

Make = Callable[..., dict[Path, str]]
NOTHING_KNOWN = KnownCosts(seconds_of_record={}, seconds_of_kind={}, minutes_of_stage={})


@pytest.fixture(scope="module")
def small() -> Scale:
    return read_scale("small")


@pytest.fixture(scope="module")
def costs() -> KnownCosts:
    return known_costs([COMMITTED])


def jobs_of(results: ResultsFolder, *names: str) -> list[Job]:
    return list_jobs([TABLES[name](results.scale) for name in names], results, NOTHING_KNOWN)


def cells_not_run(results: ResultsFolder, *names: str) -> int:
    tables = [render(TABLES[name](results.scale), results) for name in names]
    return sum(row.count(NOT_RUN) for made in tables for row in made.table[1])


@pytest.mark.parametrize("name", [*TABLES, "all"])
def test_when_every_job_has_run_no_cell_is_missing(
    make: Make, small: Scale, tmp_path: Path, name: str
) -> None:
    names = list(TABLES) if name == "all" else [name]
    results = ResultsFolder(scale=small, folder=tmp_path, retrain=name == "all")
    jobs = jobs_of(results, *names)
    assert cells_not_run(results, *names) > 0
    assert not any(job.there for job in jobs)
    assert make(jobs, results) == {}
    assert all(job.makes.exists() for job in jobs)
    assert cells_not_run(results, *names) == 0
    assert not any(job.to_do for job in jobs_of(results, *names))


def test_the_paper_scale_is_complete_too(make: Make, tmp_path: Path) -> None:
    scale = read_scale("paper")
    few = {key: replace(one, images=2) for key, one in scale.measurements.items()}
    results = ResultsFolder(scale=replace(scale, measurements=few), folder=tmp_path / "out")
    for planned in scale.runs.values():
        (tmp_path / f"{planned.bring}.pt").touch()
    jobs = jobs_of(results, *TABLES)
    assert cells_not_run(results, *TABLES) > 0
    assert make(jobs, results, weights=tmp_path) == {}
    assert cells_not_run(results, *TABLES) == 0


def test_a_training_comes_once_and_before_what_uses_it(results: ResultsFolder) -> None:
    jobs = jobs_of(results, *TABLES)
    assert len({job.makes for job in jobs}) == len(jobs)
    trained: list[str] = []
    for job in jobs:
        if job.record is None:
            taken = results.scale.runs[job.run].classifier
            assert not taken or taken in trained
            trained.append(job.run)
        else:
            assert set(job.record.runs) <= set(trained)
    assert sorted(trained) == sorted(results.scale.runs)


def test_what_is_there_is_listed_and_not_made_again(
    make: Make, pretended: Any, results: ResultsFolder
) -> None:
    jobs = jobs_of(results, "ablation")
    last = jobs[-1]
    assert make(jobs[:-1], results) == {}
    done = len(pretended.evaluated)
    again = jobs_of(results, "ablation")
    assert [job.makes for job in again if not job.there] == [last.makes]
    make(again, results)
    assert pretended.evaluated[done:] == [last.makes.stem]


def test_a_run_that_is_there_is_looked_at_again_where_its_weights_are_used(
    make: Make, pretended: Any, results: ResultsFolder
) -> None:
    """Its folder may hold a run of other settings, which the training refuses."""
    make(jobs_of(results, "times"), results)
    assert not any(job.to_do for job in jobs_of(results, "times"))
    jobs = [job for job in jobs_of(results, "majority-vote") if job.run == "tiny"]
    assert [(job.there, job.to_do) for job in jobs if job.record is None] == [(True, True)]
    pretended.trained.clear()
    make(jobs, results)
    assert pretended.trained == ["tiny"]


def test_the_record_of_more_images_serves_where_both_are_asked_for(
    make: Make, results: ResultsFolder
) -> None:
    few = {job.makes.stem for job in jobs_of(results, "ablation")}
    both = {job.makes.stem for job in jobs_of(results, "results", "ablation")}
    assert "tiny-adaptive-few" in few
    assert "tiny-adaptive-few" not in both
    assert "tiny-adaptive" in both
    make(jobs_of(results, "results"), results)
    later = {job.makes.stem: job.there for job in jobs_of(results, "ablation")}
    assert later["tiny-adaptive"]
    assert not later["tiny-clean-adaptive-few"]
    assert "tiny-adaptive-few" not in later


def test_outdated_records_are_made_anew_where_that_is_asked_for(
    make: Make, pretended: Any, results: ResultsFolder, costs: KnownCosts
) -> None:
    """Of more images than they have, or as many where they have more; what is there stays until
    the new one is whole."""
    tables = [TABLES["majority-vote"](results.scale)]
    make(jobs_of(results, "majority-vote"), results)
    paths = sorted(results.records_folder.glob("*-majority-vote-randaa.json"))
    old = [path.read_text() for path in paths]
    randaa = replace(results.scale.measurements["randaa"], images=5)
    measurements = {**results.scale.measurements, "randaa": randaa}
    asking = replace(results, scale=replace(results.scale, measurements=measurements))

    jobs = list_jobs(tables, asking, costs)
    assert sorted(job.makes for job in jobs if job.outdated) == paths
    assert not any(job.to_do for job in jobs)
    assert f"{len(paths)} outdated (--renew makes them anew)" in as_list(jobs, asking)[-1]
    done = len(pretended.evaluated)
    assert make(jobs, asking) == {}
    assert [path.read_text() for path in paths] == old

    renewed = list_jobs(tables, asking, costs, renew=True)
    assert sorted(job.makes for job in renewed if job.renew) == paths
    assert any(job.record is None and job.run == "tiny" for job in renewed)  # its weights are used
    assert make(renewed, asking) == {}
    assert sorted(pretended.evaluated[done:]) == [f"{path.stem}.renewed" for path in paths]
    assert [json.loads(path.read_text())["data"]["count"] for path in paths] == [5] * len(paths)
    assert not list(results.records_folder.glob("*renewed*"))
    assert not any(job.renew for job in list_jobs(tables, asking, costs, renew=True))
    assert not any(job.outdated for job in list_jobs(tables, results, costs))  # 5 serve for 4


def test_weights_that_ship_are_trained_only_when_asked_for(small: Scale, tmp_path: Path) -> None:
    results = ResultsFolder(scale=small, folder=tmp_path)
    assert [job.run for job in jobs_of(results, "times")] == ["cifar10-small"]
    anew = [job.run for job in jobs_of(replace(results, retrain=True), "times")]
    assert anew == ["fashion", "fashion-hardened", "cifar10-small-hardened", "cifar10-small"]


def test_a_record_of_another_evaluation_is_refused_before_anything_runs(
    make: Make, results: ResultsFolder
) -> None:
    make(jobs_of(results, "majority-vote"), results)
    records = results.records_folder
    (records / "tiny-majority-vote-randaa.json").rename(records / "tiny-adaptive.json")
    with pytest.raises(CarsoError, match="aggregation is majority-vote, wanted is double-exp"):
        jobs_of(results, "results")


class Second(Processes):
    """The second of two, which hears what the first has."""

    def __init__(self, heard: object) -> None:
        super().__init__(rank=1, world_size=2)
        object.__setattr__(self, "heard", heard)

    def first_then_others(self, make: Callable[[], Any]) -> Any:
        return make()

    def broadcast(self, value: Any) -> Any:
        assert value == []  # it has looked at nothing itself
        return self.heard


def test_all_processes_have_the_list_of_the_first(results: ResultsFolder) -> None:
    tables = [plan(results.scale) for plan in TABLES.values()]
    first = list_together(tables, results, ALONE)
    assert [job.makes for job in first] == [job.makes for job in jobs_of(results, *TABLES)]
    sent = json.loads(json.dumps([{**asdict(job), "makes": str(job.makes)} for job in first]))
    assert list_together(tables, results, Second(sent)) == first


# Costs.


def test_a_committed_record_says_what_the_same_will_take(
    small: Scale, costs: KnownCosts, tmp_path: Path
) -> None:
    record = PlannedRecord(defence=MeasuredDefence(run="fashion"), measurement="adaptive")
    found = json.loads((COMMITTED / "fashion-adaptive.json").read_text())
    minutes = found["provenance"]["seconds"] / 60
    assert costs.evaluation(small, record) == pytest.approx(minutes)
    half = replace(small.measurements["adaptive"], images=found["data"]["count"] // 2)
    fewer = replace(small, measurements={**small.measurements, "adaptive": half})
    assert costs.evaluation(fewer, record) == pytest.approx(minutes / 2)
    jobs = list_jobs(
        [plan(small) for plan in TABLES.values()],
        ResultsFolder(scale=small, folder=tmp_path),
        costs,
    )
    assert all(job.minutes for job in jobs)


def test_a_record_of_the_same_kind_says_what_another_will_take(
    small: Scale, scale: Scale, costs: KnownCosts
) -> None:
    kin = replace(small, runs={**small.runs, "other": small.runs["fashion"]})
    wanted = PlannedRecord(defence=MeasuredDefence(run="other"), measurement="adaptive-few")
    assert 1 < (costs.evaluation(kin, wanted) or 0) < 20
    # Another network, or other images: nothing is known.
    stranger = PlannedRecord(defence=MeasuredDefence(run="tiny"), measurement="adaptive-few")
    assert costs.evaluation(scale, stranger) is None


def test_the_cost_of_a_training_is_that_of_the_stages_it_has_left(
    make: Make, small: Scale, costs: KnownCosts, tmp_path: Path
) -> None:
    results = ResultsFolder(scale=small, folder=tmp_path, retrain=True)
    tables = [TABLES["times"](results.scale)]
    before = {job.run: job for job in list_jobs(tables, results, costs)}
    assert before["fashion"].minutes == pytest.approx(
        costs.minutes_of_stage["fashion", "classifier"]
        + costs.minutes_of_stage["fashion", "purifier"]
    )
    hardening = costs.minutes_of_stage["fashion-hardened", "hardening"]
    assert before["fashion-hardened"].minutes == pytest.approx(hardening)
    make([before["fashion"]], results)
    for end in ("json", "safetensors"):
        (tmp_path / "runs" / "fashion" / f"purifier.{end}").unlink()
    after = {job.run: job for job in list_jobs(tables, results, costs)}
    assert after["fashion"].minutes == costs.minutes_of_stage["fashion", "purifier"]
    assert not after["fashion"].there


def test_what_cannot_be_read_says_nothing_of_costs(tmp_path: Path) -> None:
    for number, content in enumerate(([], {}, {"provenance": {}}, {"suite": 1})):
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    (tmp_path / "broken.json").write_text("{")
    write_json(tmp_path / "times" / "tiny.json", {})
    assert known_costs([tmp_path, tmp_path / "none"]).seconds_of_record == {}


def test_the_list_shows_what_is_there_and_the_cost_of_the_rest(
    make: Make, results: ResultsFolder
) -> None:
    jobs = [job for job in jobs_of(results, "majority-vote") if job.run == "tiny"]
    jobs[-1] = replace(jobs[-1], minutes=12.4)
    lines = as_list(jobs, results)
    assert lines[1].split() == ["job", "images", "there", "minutes", "makes"]
    assert lines[2].split()[:4] == ["train", "tiny", "no", "unknown"]
    assert "evaluate tiny, majority-vote: randaa " in lines[4]
    assert lines[4].split()[-4:] == ["4", "no", "12", str(jobs[-1].makes)]
    assert lines[-1].startswith("3 jobs, 3 to do: about 12 min,")
    assert lines[-1].endswith("and 2 of unknown length.")
    make(jobs, results)
    mine = [job for job in jobs_of(results, "majority-vote") if job.run == "tiny"]
    assert as_list(mine, results)[-1] == "2 jobs, nothing to do."


@pytest.mark.parametrize("option", ["--jobs", "--dry-run"])
def test_the_command_lists_without_making_anything(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str
) -> None:
    code, out, err = run(capsys, "reproduce", "high-eps", option, "--out", tmp_path / "out")
    assert code == 0, err
    assert "evaluate fashion-hardened: high-eps-adaptive" in out
    assert "4 jobs, 4 to do: about" in out
    assert "measured here" not in out
    assert not (tmp_path / "out").exists()
