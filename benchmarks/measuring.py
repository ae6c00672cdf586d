"""Time and peak memory of an action."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def in_own_process(script: str, *words: object) -> float:
    """The number that `script --memory-of words...` prints."""
    command = [sys.executable, script, "--memory-of", *map(str, words)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def processor_seconds(action: Callable[[], object]) -> float:
    """What an action takes of this process's own time, whatever else the machine does."""
    began = time.process_time()
    action()
    return time.process_time() - began


def memory_growth(action: Callable[[], object]) -> float:
    """By how much the largest resident size of this process grows, in MiB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident
    before = peak_resident()
    action()
    return peak_resident() - before


def peak_resident() -> float:
    """The largest resident size of this process so far, in MiB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024
