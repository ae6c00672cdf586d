"""Jobs that are really run, as small as it gets: runs, records, times, and what is missing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import fails, run

from carso.errors import CarsoError
from carso.evaluation.diagnostics import run_diagnostics
from carso.evaluation.record import read
from carso.machine.progress import Bars
from carso.report.record_tables import title
from carso.reproduction.costs import known_costs
from carso.reproduction.jobs import Job, list_jobs
from carso.reproduction.needs import JobSettings, Missing, check_needs
from carso.reproduction.paper_tables import TABLES
from carso.reproduction.plan import MeasuredDefence, PlannedRecord, Scale
from carso.reproduction.render import NOT_RUN, render
from carso.reproduction.results_folder import ResultsFolder
from carso.reproduction.run_jobs import run_jobs
from carso.reproduction.times import minutes_of
from carso.storage.files import read_json, write_json

NAMES = ("times", "majority-vote", "ablation", "classifiers")
MEASUREMENTS = ("adaptive-few", "standard-few")
"""There is a job of every kind among these; others cost as much, and show no more."""


def listed(results: ResultsFolder, *names: str) -> list[Job]:
    return list_jobs([TABLES[name](results.scale) for name in names], results, known_costs([]))


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One diagnosis, as they have tests of their own and take the longest here; and no CIFAR-100
    anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_diagnostics, "DIAGNOSTICS", (run_diagnostics.precision,))
        for name in ("CARSO_DATA", "XDG_CACHE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("empty")))
        yield


@pytest.fixture(scope="module")
def settings(bars: Bars) -> JobSettings:
    return JobSettings(device=torch.device("cpu"), bars=bars)


def chosen(results: ResultsFolder) -> list[Job]:
    jobs = listed(results, *NAMES)
    return [job for job in jobs if not job.record or job.record.measurement in MEASUREMENTS]


Done = tuple[ResultsFolder, dict[Path, str]]


@pytest.fixture(scope="module")
def both(scale: Scale, settings: JobSettings, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """What the jobs made, and why some could not run."""
    results = ResultsFolder(scale=scale, folder=tmp_path_factory.mktemp("made"))
    return results, run_jobs(chosen(results), results, settings)


@pytest.fixture(scope="module")
def done(both: Done) -> ResultsFolder:
    return both[0]


def test_every_job_whose_data_are_here_makes_what_it_says(both: Done) -> None:
    results, reasons = both
    jobs = chosen(results)
    for job in jobs:
        assert job.makes.exists() == job.there == (job.run != "gone")
    assert reasons == {
        job.makes: "the data cifar100 are not here" for job in jobs if job.run == "gone"
    }
    for name in ("times", "majority-vote"):
        found = render(TABLES[name](results.scale), results, reasons)
        assert NOT_RUN in found.table[1][-len(TABLES[name](results.scale).theirs) - 1]
        assert any("the data cifar100 are not here" in note for note in found.notes)


def test_a_cell_is_what_its_record_says(done: ResultsFolder) -> None:
    header, rows = render(TABLES["classifiers"](done.scale), done).table
    alone = read(done.records_folder / "tiny-clean-bare-standard-few.json")
    assert alone["subject"]["kind"] == "classifier"
    assert not list(done.records_folder.glob("tiny-retrofit-bare-*"))
    for row, name in zip(rows[:2], ("tiny-clean", "tiny-retrofit"), strict=True):
        cells = dict(zip(header, row, strict=True))
        record = read(done.records_folder / f"{name}-adaptive-few.json")
        worst = cells["Adaptive, worst case"]
        assert worst.startswith(f"{record['accuracy']['worst']['value']:.3f} [")
        assert cells["CARSO, clean"] == f"{record['accuracy']['clean']['value']:.3f}"
        value = alone["accuracy"]["worst"]["value"]
        assert cells["Classifier alone, AutoAttack"].startswith(f"{value:.3f} [")


def test_what_was_made_is_not_made_again(done: ResultsFolder, settings: JobSettings) -> None:
    def times() -> dict[Path, int]:
        made = [*done.folder.rglob("*.safetensors"), *done.records_folder.rglob("*")]
        return {path: path.stat().st_mtime_ns for path in made}

    before = times()
    jobs = [job for job in chosen(done) if job.run != "gone"]
    assert all(job.there for job in jobs)
    run_jobs([replace(job, verify=job.record is None) for job in jobs], done, settings)
    assert times() == before


def test_a_folder_of_another_run_is_refused(done: ResultsFolder, settings: JobSettings) -> None:
    changes = {"threat": {"eps": 0.05}}
    other = replace(done.scale.runs["tiny"], changes=changes)
    scale = replace(done.scale, runs={**done.scale.runs, "tiny": other})
    results = replace(done, scale=scale, records=done.folder / "none")
    jobs = [job for job in listed(results, "majority-vote") if job.run == "tiny"]
    with pytest.raises(CarsoError, match="holds a run of other settings"):
        run_jobs(jobs, results, settings)


def test_the_ablation_is_read_by_one_classifier_and_answered_by_the_other(
    done: ResultsFolder,
) -> None:
    names = ("tiny", "tiny-clean", "tiny-then-tiny-clean", "tiny-clean-then-tiny")
    records = [read(done.records_folder / f"{name}-adaptive-few.json") for name in names]
    assert len({record["subject"]["weights"] for record in records}) == 4
    defence = MeasuredDefence(run="tiny", final="tiny-clean")
    record = done.record(PlannedRecord(defence=defence, measurement="adaptive-few"))
    assert record == records[2]
    assert title(record).startswith("tiny, answered by tiny-clean, ")
    assert "the defence tiny, answered by tiny-clean, labels" in record["verdict"]


def test_an_aggregation_is_measured_on_its_own(done: ResultsFolder) -> None:
    record = read(done.records_folder / "tiny-majority-vote-adaptive-few.json")
    assert record["subject"]["aggregation"] == "majority-vote"


def test_the_hardened_run_takes_the_classifier_over(done: ResultsFolder) -> None:
    one, other = (
        (done.run_folder(name) / "classifier.safetensors").read_bytes()
        for name in ("tiny", "tiny-hardened")
    )
    assert one == other
    assert not (done.run_folder("tiny-hardened") / "purifier.safetensors").exists()


# Times.


def test_the_time_of_a_training_outlives_its_run(done: ResultsFolder, tmp_path: Path) -> None:
    header, rows = render(TABLES["times"](done.scale), done).table
    elsewhere = replace(done, folder=tmp_path, records=done.records_folder)
    assert render(TABLES["times"](done.scale), elsewhere).table[1] == rows
    hardened, paper = done.times("tiny-hardened"), done.times("tiny")
    assert hardened is not None
    assert paper is not None
    assert hardened["classifier"] == paper["classifier"]
    cells = dict(zip(header, rows[1], strict=True))
    assert cells["Training: hardening"] == f"{hardened['hardening']['minutes']:.0f}"
    assert cells["Training of the purifier"] == ""


def test_the_time_of_a_training_has_that_of_its_bank(done: ResultsFolder, tmp_path: Path) -> None:
    record = read_json(done.run_folder("tiny") / "purifier.json")
    epochs = sum(row["seconds"] for row in record["history"])
    assert record["bank_seconds"] > 0
    found = minutes_of(done.run_folder("tiny"))["purifier"]
    assert found["minutes"] == pytest.approx((epochs + record["bank_seconds"]) / 60)
    assert found["whole"]
    del record["bank_seconds"]  # as in runs that did not time it
    write_json(tmp_path / "purifier.json", record)
    assert not minutes_of(tmp_path)["purifier"]["whole"]


# What is missing.


def test_what_rests_on_a_run_that_cannot_be_trained_is_left_out(
    make: Callable[..., dict[Path, str]], pretended: Any, results: ResultsFolder
) -> None:
    bring = replace(results.scale.runs["tiny"], bring="theirs")
    results = replace(
        results, scale=replace(results.scale, runs={**results.scale.runs, "tiny": bring})
    )
    jobs = listed(results, "times", "ablation")
    reasons = make(jobs, results)
    why = "the classifier theirs is not here; --weights names its folder"
    assert set(reasons.values()) == {why}
    assert pretended.trained == ["gone", "tiny-clean", "tiny-retrofit"]
    resting = {job.makes for job in jobs if job.record and "tiny" in job.record.runs}
    assert resting | {results.run_folder("tiny")} <= reasons.keys()
    assert "tiny-clean-randaa-released" in pretended.evaluated


def test_needs_are_said_of_what_is_still_to_do(
    results: ResultsFolder, settings: JobSettings
) -> None:
    jobs = listed(results, "times")
    with pytest.raises(Missing, match=r"^the scale tiny needs more: the data cifar100, by --data"):
        check_needs(jobs, results.scale, settings, gpus=False)
    check_needs([replace(job, there=True, verify=False) for job in jobs], results.scale, settings,
                gpus=False)  # fmt: skip
    check_needs(jobs, results.scale, replace(settings, download=True), gpus=False)
    with pytest.raises(Missing, match="GPUs"):
        check_needs(jobs, results.scale, settings, gpus=True)


def test_the_paper_scale_says_what_it_needs_before_it_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CARSO_DATA", str(tmp_path))
    words = ("reproduce", "results", "--scale", "paper", "--out", tmp_path / "out")
    code, out, err = run(capsys, *words)
    assert code == 2
    assert "A100" in out
    assert "train cifar10 " in out
    assert len(err.strip().splitlines()) == 1
    assert torch.cuda.is_available() or "GPUs (--device cpu" in err
    for need in ("cifar10_a3_b10_t4_20m_w", "cifar100_a5_b12_t4_50m_w", "--weights", "--data"):
        assert need in err
    assert "cutmix" not in err  # which another table needs
    code, out, err = run(capsys, *(words[:1]), "classifiers", *words[2:])
    assert "cifar10_linf_wrn28-10_cutmix_ddpm_v2" in err
    assert str(tmp_path) not in err
    code, out, err = run(capsys, *words, "--jobs")
    assert code == 0, err
    assert "cifar10_a3_b10_t4_20m_w" in out
    assert not (tmp_path / "out").exists()


def test_what_is_trained_anew_needs_records_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("reproduce", "times", "--retrain", "--records", tmp_path)
    fails(capsys, *words, says=["leave --records out"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("everything",), "there are results, times"),
        (("times", "--show", "--jobs"), "choose one"),
        (("times", "--weights", "nowhere"), "--weights: there is no folder nowhere"),
    ],
)
def test_a_wrong_word_is_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    fails(capsys, "reproduce", *words, says=[says])
