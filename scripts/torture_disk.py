"""A disk that gets full: one line, nothing saved is lost, and with room again the command ends
with the bits of one that always had it."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from torture_kills import Work, works
from torture_outcomes import Trial, last_line
from torture_subject import Subject, nothing

KIND = "full disk"
ROOM = 2**28
"""Enough for everything, in bytes."""


def mounted(place: Path, size: int, *words: str) -> bool:
    """A file system of this size in memory at `place`; False where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", ",".join([*words, f"size={size}"]), "none", str(place)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def limited(size: int) -> Callable[[], None]:
    """Before a command that may write no file larger than this, where nothing can be mounted."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def filled(subject: Subject, work: Work, size: int) -> Trial:
    """A command on a disk of this size, then again on a large one."""
    disk = subject.fresh("disk")
    disk.mkdir()
    real = mounted(disk, size)
    place = disk / work.place
    try:
        ended = subject.command(work.words(place), nothing if real else limited(size))
        if real:
            mounted(disk, ROOM, "remount")
        again = subject.command(work.words(place))
        outcome = work.result(again, place)
    finally:
        if real:
            subprocess.run(["umount", str(disk)], check=True)
    if ended.traceback:
        outcome = "traceback"
    elif outcome == "equal" and ended.code != 0 and not ended.refused:
        outcome = "unclear"
    kind = "a disk" if real else "files"
    what = f"carso {work.name} into {kind} of {size:,} bytes"
    said = f"exit code {ended.code}: {last_line(ended.err)}; then {last_line(again.err)}"
    return Trial(kind=KIND, what=what, outcome=outcome, said=said)


def bytes_of(path: Path) -> int:
    """What a result takes on a disk, files that are gone at its end not counted."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(file.stat().st_size for file in files)


def trials(subject: Subject, random: Random, *, short: bool) -> Iterator[Trial]:
    """Sizes from nearly nothing to nearly enough."""
    for work in works(subject)[1 if short else 0 :]:
        most = bytes_of(subject.run if work.name == "train" else subject.record)
        for _ in range(1 if short else 10):
            yield filled(subject, work, random.randrange(4096, most) // 4096 * 4096)
