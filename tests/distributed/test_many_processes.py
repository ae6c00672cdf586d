"""Many processes do what one does: the same losses, the same record; one that dies ends the run."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from support import HARDENING, OWN, mini, write_photos

from carso.storage import files, tensor_files

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)

AUGMENTED = OWN.replace("epochs = 1", "epochs = {epochs}") + 'augment = "flip-shift"\n'
OPTIONS = """
cutmix = 0.5
clean_share = 0.25
weight_perturbation = 0.01
label_smoothing = 0.1
attack_steps_end = 3
"""
HARDER = HARDENING.replace("epochs = 1", "epochs = 3\nrate = 0.01" + OPTIONS)
TOLERANCE = {"classifier": 2e-4, "purifier": 2e-4, "hardening": 1e-3}
"""RAdam moves from its sixth step on, so the last losses tell whether gradients were summed."""
STAGES = tuple(TOLERANCE)
PATIENCE = 900
EPOCHS = 20
"""Enough to be killed among them."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two classes of 33 images each, so that a last batch is short."""
    return write_photos(tmp_path_factory.mktemp("photos"), 33)


def small(photos: Path, epochs: int = 1) -> str:
    """A scenario whose classifier is trained for `epochs`, its purifier for three."""
    return mini(photos, name="small", classifier=AUGMENTED.format(epochs=epochs), epochs=3)


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def carso(
    folder: Path, *words: str, launcher: tuple[str, ...] = ("-m",)
) -> "subprocess.CompletedProcess[str]":
    """A command as a user gives it, in a process of its own."""
    command = [sys.executable, *launcher, "carso", *words, "--threads", "1"]
    result = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stderr
    assert "find_unused_parameters" not in result.stderr
    return result


@pytest.fixture(scope="module")
def runs(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same scenario run by one and by three processes, by two of torchrun, and by one of
    torchrun on each of two nodes, which here are one machine."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "small.toml").write_text(small(photos) + HARDER)
    for count in (1, 3):
        words = ("train", "small.toml", "--run", f"run{count}", "--devices", str(count))
        carso(folder, *words, "--oversubscribe")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "--")
    carso(folder, "train", "small.toml", "--run", "torchrun", "--devices", "2", launcher=torchrun)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    nodes = [
        ("-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1",
         "--master-addr=127.0.0.1", f"--master-port={port}", "-m", "--")
        for rank in (0, 1)
    ]  # fmt: skip
    words = ("train", "small.toml", "--run", "nodes", "--devices", "1", "--nodes", "2")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda launcher: carso(folder, *words, launcher=launcher), nodes))
    return folder


def test_a_hardening_with_a_guide_has_the_losses_of_one_process(
    photos: Path, tmp_path: Path
) -> None:
    top, _, _ = mini(photos, name="guided").partition("[purifier]")
    unet = '[purifier]\nkind = "unet"\nwidths = [4, 8]\nblocks = [0, 1]\nnoise = 0\nskips = false\n'
    guide = HARDENING.replace("epochs = 1", "epochs = 3\nrate = 0.01\nguide = 1\nguide_epochs = 1")
    (tmp_path / "guided.toml").write_text(top + unet + guide)
    losses = []
    for count in ("1", "2"):
        words = ("train", "guided.toml", "--run", f"run{count}", "--devices", count)
        carso(tmp_path, *words, "--oversubscribe")
        losses.append(files.read_json(tmp_path / f"run{count}" / "hardening.json")["first_losses"])
    assert len(losses[0]) > 6  # in both phases
    assert losses[1] == pytest.approx(losses[0], rel=TOLERANCE["hardening"])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("other", ["run3", "torchrun", "nodes"])
def test_many_processes_have_the_losses_of_one(runs: Path, other: str, stage: str) -> None:
    one = files.read_json(runs / "run1" / f"{stage}.json")
    many = files.read_json(runs / other / f"{stage}.json")
    assert one["identity"]["data"] == many["identity"]["data"]
    assert len(one["first_losses"]) > 2
    assert many["first_losses"] == pytest.approx(one["first_losses"], rel=TOLERANCE[stage])
    assert many["history"][0]["epoch"] == 1


@pytest.mark.parametrize("other", ["run3", "torchrun", "nodes"])
def test_many_processes_end_with_the_classifier_of_one(runs: Path, other: str) -> None:
    """Weights and batch-norm statistics; an attack's signs make more than this of a rounding, but
    only now and then."""
    one = tensor_files.load(runs / "run1" / "classifier.safetensors")
    many = tensor_files.load(runs / other / "classifier.safetensors")
    assert one.keys() == many.keys()
    for name, value in one.items():
        difference = (value.double() - many[name].double()).norm()
        assert difference <= 1e-2 * value.double().norm() + 1e-4, name


def measured(record: dict[str, Any]) -> dict[str, Any]:
    """A record without times and provenance."""
    result = {key: value for key, value in record.items() if key != "provenance"}
    result["attacks"] = [{**attack, "seconds": 0} for attack in record["attacks"]]
    return result


def children(of: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(of)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def killed(folder: Path, *words: str, ready: Callable[[], bool], victim: str = "second") -> str:
    """Kill a process of a run by two once `ready`; what the run says when it ends."""
    command = [sys.executable, "-m", "carso", *words, "--devices", "2", "--threads", "1"]
    run = subprocess.Popen(
        command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    begun = time.monotonic()
    while not ready():
        assert run.poll() is None
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.05)
    (other,) = children(run.pid)
    os.kill(run.pid if victim == "first" else other, signal.SIGKILL)
    end = time.monotonic() + 60
    _, said = run.communicate(timeout=60)
    while victim == "first" and alive(other):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert run.returncode == (-signal.SIGKILL if victim == "first" else 3)
    return said


@pytest.fixture(scope="module")
def undisturbed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The classifier of a run by two processes of which none was killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "small.toml").write_text(small(photos, epochs=EPOCHS))
    carso(folder, "train", "small.toml", "--run", "run", "--devices", "2")
    return (folder / "run" / "classifier.safetensors").read_bytes()


@pytest.mark.parametrize("victim", ["first", "second"])
def test_a_process_that_is_killed_ends_the_run_which_then_goes_on(
    photos: Path, undisturbed: bytes, tmp_path: Path, victim: str
) -> None:
    (tmp_path / "small.toml").write_text(small(photos, epochs=EPOCHS))
    note = tmp_path / "run" / "classifier" / "checkpoint.json"
    words = ("train", "small.toml", "--run", "run")
    said = killed(tmp_path, *words, ready=note.exists, victim=victim)
    assert "another process of this run has ended" in said
    assert "goes on from its last checkpoint" in said
    done = len(files.read_json(note)["history"])
    assert 1 <= done < EPOCHS
    said = carso(tmp_path, *words, "--devices", "2").stderr
    assert f"classifier epoch {done + 1}:" in said
    assert f"classifier epoch {done}:" not in said
    assert (tmp_path / "run" / "classifier.safetensors").read_bytes() == undisturbed


STILLBORN = """
import os, signal, sys
if os.environ.get("LOCAL_RANK", "0") != "0":
    os.kill(os.getpid(), signal.SIGKILL)
from carso.cli.main import main
main()
"""


def test_a_process_that_dies_before_it_joins_ends_the_run(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(small(photos))
    (tmp_path / "stillborn.py").write_text(STILLBORN)
    words = ("train", "small.toml", "--run", "run", "--devices", "2", "--threads", "1")
    result = subprocess.run(
        [sys.executable, "stillborn.py", *words],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 3
    assert "another process of this run has ended" in result.stderr


def test_a_mistake_is_said_once_by_however_many(tmp_path: Path) -> None:
    (tmp_path / "lost.toml").write_text(small(tmp_path / "nowhere"))
    words = ("train", "lost.toml", "--run", "run", "--devices", "3", "--threads", "1",
             "--oversubscribe")  # fmt: skip
    result = subprocess.run(
        [sys.executable, "-m", "carso", *words],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("carso: ")]
    assert "nowhere" in line


def test_an_evaluation_is_the_same_however_many_processes_share_it(runs: Path) -> None:
    """Three chunks, the last one short: of two processes, one has more; of these, one is killed."""
    words = ("evaluate", "run1", "--suite", "quick", "--images", "5", "--chunk", "2")
    parts = runs / "record2.parts"
    said = killed(runs, *words, *files_of(2), ready=lambda: any(parts.glob("chunk-*")))
    assert "another process of this run has ended" in said
    assert any(parts.glob("chunk-*"))
    assert not (runs / "record2.json").exists()
    records = {}
    for count in (1, 2, 3):
        printed = carso(runs, *words, *files_of(count), "--devices", str(count),
                        "--oversubscribe").stdout  # fmt: skip
        assert printed.count(f"record: record{count}.json") == 1
        assert not (runs / f"record{count}.parts").exists()
        records[count] = measured(files.read_json(runs / f"record{count}.json"))
    assert records[1]["images"]["worst_attack"]
    assert json.dumps(records[1]) == json.dumps(records[2]) == json.dumps(records[3])
    one, three = (tensor_files.load(runs / f"{count}.safetensors") for count in (1, 3))
    assert torch.equal(one["examples"], three["examples"])


def files_of(count: int) -> tuple[str, ...]:
    return ("--out", f"record{count}.json", "--save-examples", f"{count}.safetensors")


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
