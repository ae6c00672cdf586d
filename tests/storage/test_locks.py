"""One process at a time works on a folder."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from carso.errors import CarsoError
from carso.storage.locks import exclusive

HOLD = """
import sys, time
from pathlib import Path
from carso.storage.locks import exclusive
with exclusive(Path(sys.argv[1]), "a run"):
    print("held", flush=True)
    time.sleep(60)
"""


def holding(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    process = holding(tmp_path)
    try:
        with (
            pytest.raises(CarsoError, match=rf"process {process.pid} on {platform.node()}"),
            exclusive(tmp_path, "a run"),
        ):
            pass
    finally:
        process.kill()
        process.wait()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    process = holding(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with exclusive(tmp_path, "a run"):
        pass


def test_the_same_process_cannot_take_it_twice(tmp_path: Path) -> None:
    """Two calls of one program, from threads say, spoil each other just as two programs do."""
    with (
        exclusive(tmp_path, "a run"),
        pytest.raises(CarsoError, match="a run is being worked on"),
        exclusive(tmp_path, "a run"),
    ):
        pass
    with exclusive(tmp_path, "a run"):
        pass


def test_waiting_gets_it(tmp_path: Path) -> None:
    process = holding(tmp_path)
    started = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    with exclusive(tmp_path, "a run", wait_seconds=20):
        assert time.perf_counter() - started < 20
    process.wait()


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr("carso.storage.locks.FileLock.acquire", none)
    with pytest.raises(CarsoError, match="cannot lock files"), exclusive(tmp_path, "a run"):
        pass
