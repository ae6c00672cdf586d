"""A scale as small as it gets, and stand-ins for training and evaluation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import HARDENING, consistent, mini, write_photos

from carso.defence.on_disk import in_use
from carso.evaluation import record as records
from carso.machine.progress import Bars, progress
from carso.reproduction import run_jobs
from carso.reproduction.plan import Bench, Measurement, PlannedRun, Scale
from carso.reproduction.results_folder import ResultsFolder
from carso.storage.files import write_json

FEW = ("margin@mean-logits",)
"""Attacks that take no time."""


@pytest.fixture(scope="session")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Scale:
    """Two classes of clothes, a defence, one around another classifier, both hardened too; and a
    bench whose data are nowhere."""
    folder = tmp_path_factory.mktemp("tiny")
    write_photos(folder / "photos", 30)
    (folder / "tiny.toml").write_text(mini(folder / "photos", name="tiny") + HARDENING)
    (folder / "gone.toml").write_text(mini("cifar100", name="tiny") + HARDENING)
    tiny, gone = str(folder / "tiny.toml"), str(folder / "gone.toml")
    paper, hardened = ("classifier", "purifier"), ("classifier", "hardening")
    cheap = Measurement(images=4, suite="quick", attacks=FEW)
    names = ("adaptive", "adaptive-few", "randaa-released", "randaa", "pgd-eot")
    clean = {"classifier": {"training": {"method": "clean"}}}
    return Scale(
        name="tiny",
        what="a test",
        needs="nothing",
        runs={
            "tiny": PlannedRun(scenario=tiny, stages=paper),
            "tiny-hardened": PlannedRun(scenario=tiny, stages=hardened, classifier="tiny"),
            "tiny-clean": PlannedRun(scenario=tiny, stages=paper, changes=clean),
            "tiny-retrofit": PlannedRun(scenario=tiny, stages=hardened, classifier="tiny-clean"),
            "gone": PlannedRun(scenario=gone, stages=paper),
        },
        benches=(
            Bench(
                name="tiny",
                defence="tiny",
                hardened="tiny-hardened",
                clean="tiny-clean",
                retrofit="tiny-retrofit",
                weaker=("tiny-clean", "tiny-retrofit"),
            ),
            Bench(name="gone", defence="gone"),
        ),
        measurements={
            **dict.fromkeys(names, cheap),
            "adaptive-few": replace(cheap, images=3, within="adaptive"),
            "standard": replace(cheap, attacks=("apgd-ce@mean-logits",)),
            "standard-few": replace(cheap, attacks=("apgd-ce@mean-logits",)),
            "high-eps": replace(cheap, eps=0.95),
            "high-eps-adaptive": replace(cheap, eps=0.95),
        },
    )


@pytest.fixture(scope="session")
def bars() -> Bars:
    with progress(shown=False) as found:
        return found


@pytest.fixture
def results(scale: Scale, tmp_path: Path) -> ResultsFolder:
    """Where nothing is yet."""
    return ResultsFolder(scale=scale, folder=tmp_path / "results")


class Pretended:
    """Trainings and evaluations that write what real ones would, from what they are asked for."""

    def __init__(self) -> None:
        self.scale: Scale | None = None
        self.trained: list[str] = []
        self.evaluated: list[str] = []

    def train(self, scenario: Any, data: object, folder: Path, **settings: Any) -> None:
        given = settings["given"]
        assert given is None or given.is_file()
        made = {"command": "", "hardware": {"threads": 1, "gpus": []}}
        stages = {
            "classifier": given is None,
            "purifier": scenario.purifier.training is not None,
            "hardening": scenario.hardening is not None,
        }
        for stage, asked in stages.items():
            if asked:
                table = {
                    "what": "x",
                    "sha256": "x",
                    "history": [{"seconds": 60.0}],
                    "bank_seconds": 0.0,
                    "provenance": made,
                }
                write_json(folder / f"{stage}.json", table)
                (folder / f"{stage}.safetensors").touch()
        (folder / "classifier.safetensors").touch()
        write_json(folder / "defence.json", {})
        self.trained.append(folder.name)

    def evaluate(self, name: str, images: Any, **asked: Any) -> None:
        assert self.scale is not None
        run = Path(name).name
        scenario = self.scale.scenario(run)
        subject: dict[str, Any] = {
            "name": run,
            "kind": "classifier" if asked["bare"] else "defence",
        }
        if not asked["bare"]:
            own = in_use(scenario, hardened=scenario.hardening is not None)["aggregation"]
            subject |= {
                "aggregation": asked["aggregation"] or own,
                "samples": 2,
                "answered_by": asked["final_name"],
            }
        record = {
            **dict.fromkeys(("diagnostics", "attacks"), ()),
            "format": records.FORMAT,
            "subject": subject,
            "suite": {"name": ", ".join(asked["attacks"]) or asked["suite"], "draws": 1},
            "threat": {"eps": asked["eps"] or scenario.threat.eps},
            "seed": asked["seed"],
            "data": {
                "set": images.on or scenario.data.set,
                "split": images.split,
                "count": images.count,
            },
            "unreliable": False,
            "images": {"clean_right": [1] * images.count, "worst_right": [1] * images.count},
            "provenance": {"seconds": 1.0},
        }
        write_json(asked["out"], consistent(record))
        self.evaluated.append(asked["out"].stem)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    """Nothing is trained or attacked, and no data are needed."""
    found = Pretended()
    monkeypatch.setattr(run_jobs, "train", found.train)
    monkeypatch.setattr(run_jobs, "load_data", lambda *_, **__: None)
    monkeypatch.setattr(run_jobs, "evaluate_by_name", found.evaluate)
    monkeypatch.setattr(run_jobs, "stored", lambda *_: SimpleNamespace(classifier=None))
    return found


@pytest.fixture
def make(pretended: Pretended, bars: Bars) -> Callable[..., dict[Path, str]]:
    """Run jobs by stand-ins."""
    from carso.reproduction.needs import JobSettings

    def made(jobs: list[Any], results: ResultsFolder, **settings: Any) -> dict[Path, str]:
        pretended.scale = results.scale
        how = JobSettings(device=torch.device("cpu"), bars=bars, **settings)
        return run_jobs.run_jobs(jobs, results, how)

    return made
