"""Makes what a list of jobs says, one after another; stopped and called again, it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from carso.data import DataNotFoundError
from carso.defence.on_disk import stored
from carso.evaluation.by_name import Images, evaluate_by_name
from carso.reproduction.jobs import Job
from carso.reproduction.needs import JobSettings, Missing, brought
from carso.reproduction.plan import PlannedRecord
from carso.reproduction.results_folder import ResultsFolder
from carso.reproduction.times import minutes_of
from carso.storage.files import write_json
from carso.storage.provenance import provenance
from carso.training.train import load_data, train

MAX_BATCH = 1024
"""Candidates in memory at once."""


def run_jobs(jobs: Iterable[Job], results: ResultsFolder, settings: JobSettings) -> dict[Path, str]:
    """Run what is not there yet; by its path, why a thing could not be made. A job whose training
    was not possible is left out for the same reason."""
    reasons: dict[Path, str] = {}
    for job in jobs:
        if not job.to_do:
            continue
        try:
            for run in rests_on(job, results):
                if why := reasons.get(results.run_folder(run)):
                    raise Missing(why)
            if job.record is None:
                train_run(job.run, results, settings)
            elif job.renew:
                renew_record(job, results, settings)
            else:
                evaluate_record(job.record, job.makes, results, settings)
        except DataNotFoundError:
            data = results.scale.scenario(job.run).data.set
            reasons[job.makes] = f"the data {data} are not here"
        except Missing as error:
            reasons[job.makes] = str(error)
    return reasons


def rests_on(job: Job, results: ResultsFolder) -> tuple[str, ...]:
    """The runs whose weights a job uses."""
    if job.record is not None:
        return job.record.runs
    taken = results.scale.runs[job.run].classifier
    return (taken,) if taken else ()


def train_run(run: str, results: ResultsFolder, settings: JobSettings) -> None:
    """Train a run, or take it up where it stopped, and keep the time that it took."""
    folder, scenario = results.run_folder(run), results.scale.scenario(run)
    processes = settings.processes
    data = processes.first_then_others(
        lambda: load_data(scenario, settings.data, download=settings.download)
    )
    settings.bars.say(f"the run {run}, in {folder}")
    train(
        scenario,
        data,
        folder,
        device=settings.device,
        display=settings.bars,
        given=given_classifier(run, results, settings.weights),
        processes=processes,
    )
    processes.first_then_others(lambda: keep_time(run, results) if processes.is_first else None)


def given_classifier(run: str, results: ResultsFolder, weights: Path | None) -> Path | None:
    """The file of the classifier that a run takes over, if it does."""
    planned = results.scale.runs[run]
    if planned.classifier:
        return results.run_folder(planned.classifier) / "classifier.safetensors"
    if not planned.bring:
        return None
    path = brought(planned.bring, weights)
    if path is None:
        raise Missing(f"the classifier {planned.bring} is not here; --weights names its folder")
    return path


def keep_time(run: str, results: ResultsFolder) -> None:
    """Write how long the training of a run took, once."""
    path, taken = results.time_path(run), results.scale.runs[run].classifier
    if path.exists():
        return
    found = minutes_of(results.run_folder(run))
    if taken and "classifier" not in found:
        theirs = results.times(taken) or {}
        found |= {stage: theirs[stage] for stage in theirs if stage == "classifier"}
    write_json(path, {"run": run, "stages": found, "provenance": provenance()})


def renew_record(job: Job, results: ResultsFolder, settings: JobSettings) -> None:
    """Make a record anew beside the one that is there, and put it in its place when it is done."""
    assert job.record is not None
    beside = job.makes.with_name(f"{job.makes.stem}.renewed.json")
    evaluate_record(job.record, beside, results, settings)
    settings.processes.first_then_others(
        lambda: beside.replace(job.makes) if settings.processes.is_first else None
    )


def evaluate_record(
    record: PlannedRecord, path: Path, results: ResultsFolder, settings: JobSettings
) -> None:
    """Evaluate a defence, and write the record to `path`."""
    defence, measurement = record.defence, results.scale.measurement(record)
    final = None
    if defence.final:
        final = stored(results.run_folder(defence.final), None, settings.device).classifier
    evaluate_by_name(
        results.run_name(defence.run),
        Images(
            count=results.images(record),
            on=results.scale.runs[defence.run].on,
            folder=settings.data,
            download=settings.download,
        ),
        bare=defence.bare,
        aggregation=defence.aggregation,
        final_classifier=final,
        final_name=defence.final,
        max_batch=MAX_BATCH,
        eps=measurement.eps,
        examples=None,
        device=settings.device,
        counted=settings.bars.announced,
        seed=results.seed,
        suite=measurement.suite,
        attacks=measurement.attacks,
        out=path,
        processes=settings.processes,
    )
