"""Time and peak memory of an action, and the options of the scripts that measure them."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch


def asked(doc: str, *, memory_words: int = 0, **defaults: int | str) -> argparse.Namespace:
    """The options of a script: these, --threads and --json; and, where a process of its own
    measures memory, --memory-of with so many words."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name, value in {**defaults, "threads": 0}.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--json", action="store_true")
    if memory_words:
        parser.add_argument("--memory-of", nargs=memory_words, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    return options


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
