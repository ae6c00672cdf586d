"""Under a real Slurm, two nodes do what one process does, and one that is killed ends the job."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import HARDENING, OWN, mini, write_photos

from carso.storage import files


def idle_nodes() -> int:
    if shutil.which("sinfo") is None:
        return 0
    found = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True
    )
    return found.stdout.split().count("idle")


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        idle_nodes() < 2,
        reason="no Slurm with two idle nodes (scripts/slurm_on_one_machine.sh makes one)",
    ),
]

JOB = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
{srun} {python} -m carso train small.toml --device cpu --threads 1 --run {run} {devices}
echo "code $?"
"""
SRUN, TWO = "srun --kill-on-bad-exit=1", "--devices 1 --nodes 2"
EPOCHS = 30


def prepare(folder: Path, *, epochs: int) -> None:
    """`small.toml`, whose classifier is trained for `epochs`."""
    write_photos(folder / "photos", 33)
    classifier = OWN.replace("epochs = 1", f"epochs = {epochs}")
    text = mini(folder / "photos", name="small", classifier=classifier, epochs=3) + HARDENING
    (folder / "small.toml").write_text(text)


def submit(
    folder: Path, run: str, *, srun: str = SRUN, devices: str = TWO, wait: bool = True
) -> Path:
    """Hand a job in; the file that it prints to."""
    (folder / "job.sh").write_text(
        JOB.format(srun=srun, python=sys.executable, run=run, devices=devices)
    )
    out = folder / f"{time.monotonic_ns()}.out"
    words = ["sbatch", *(["--wait"] if wait else []), f"--output={out}", "job.sh"]
    subprocess.run(words, cwd=folder, check=True, timeout=300, capture_output=True)
    return out


def test_two_nodes_have_the_losses_of_one_process(tmp_path: Path) -> None:
    prepare(tmp_path, epochs=1)
    two = submit(tmp_path, "two").read_text()
    assert "code 0" in two
    one = submit(tmp_path, "one", srun="", devices="").read_text()
    assert "code 0" in one
    for stage in ("classifier", "purifier", "hardening"):
        losses = [files.read_json(tmp_path / run / f"{stage}.json") for run in ("one", "two")]
        wanted, found = (each["first_losses"] for each in losses)
        assert found == pytest.approx(wanted, rel=1e-3)


def test_many_processes_without_srun_are_refused(tmp_path: Path) -> None:
    prepare(tmp_path, epochs=1)
    said = submit(tmp_path, "none", srun="", devices="--devices 2").read_text()
    assert "are started by srun" in said
    assert "code 2" in said


def test_a_task_that_is_killed_ends_the_job_which_then_goes_on(tmp_path: Path) -> None:
    prepare(tmp_path, epochs=EPOCHS)
    out = submit(tmp_path, "killed", wait=False)
    note = tmp_path / "killed" / "classifier" / "checkpoint.json"
    end = time.monotonic() + 120
    while not note.exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    found = subprocess.run(
        ["pgrep", "--newest", "-f", "carso train small.toml .*--run killed"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    os.kill(int(found.stdout), signal.SIGKILL)
    end = time.monotonic() + 60
    while "code" not in out.read_text():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert "code 0" not in out.read_text()
    done = len(files.read_json(note)["history"])
    assert 1 <= done < EPOCHS
    again = submit(tmp_path, "killed").read_text()
    assert "code 0" in again
    assert f"classifier epoch {done + 1}:" in again
    assert f"classifier epoch {done}:" not in again
