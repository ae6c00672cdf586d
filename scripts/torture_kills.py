"""Killed at any moment, and just before every write, a command that is given again ends with the
bits of one that was left alone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from torture_outcomes import Trial, last_line
from torture_subject import Ended, Started, Subject, bits

RANDOM, EXACT = "kills at random moments", "kills just before a write"
CHAIN = 5
"""Kills of one run before it is left to end."""
POINTS = 12
"""Writes of each command, of all that it does, before which it is killed."""
WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "open"}
"""Events of Python by which files change. A rename is what puts a file in its place."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Something to kill: a command, where its result goes, and what that has to be."""

    name: str
    words: Callable[[Path], list[object]]
    place: str
    wanted: dict[str, Any]
    seconds: float

    def result(self, ended: Ended, path: Path) -> str:
        """Whether a command that ended has made what an undisturbed one makes."""
        if ended.traceback:
            return "traceback"
        if ended.code != 0:
            return "unclear"
        return "equal" if bits(path) == self.wanted else "silent"


def works(subject: Subject) -> list[Work]:
    """A training and an evaluation."""
    return [
        Work(
            name="train", words=subject.train, place="killed", wanted=subject.weights,
            seconds=subject.trained.seconds,
        ),
        Work(
            name="evaluate", words=subject.evaluate, place="killed.json", wanted=subject.verdict,
            seconds=subject.evaluated.seconds,
        ),
    ]  # fmt: skip


def writes(place: Path, *, then: Callable[[int, str, str], None]) -> None:
    """Call `then` with the number, the event and the path of each write at `place`, before it."""
    number = 0
    beginning = str(place.with_suffix(""))

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number
        if event not in WRITES:
            return
        if event == "open" and not int(arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        target = os.fspath(arguments[1 if event == "os.rename" else 0])
        if str(target).startswith(beginning):
            number += 1
            then(number, event, str(target))

    sys.addaudithook(watch)


def dying(place: Path, at: int) -> Callable[[], None]:
    """Before a command that is killed when it is about to do its write number `at`."""

    def die(number: int, event: str, target: str) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: writes(place, then=die)


def counted(subject: Subject, work: Work) -> int:
    """How many writes a command does when it is left alone."""
    place, tally = subject.fresh(work.place), subject.folder / "tally"

    def count() -> None:
        file = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        writes(place, then=lambda number, event, target: os.write(file, b".") and None)

    subject.command(work.words(place), count)
    return tally.stat().st_size


def killed_at_random(subject: Subject, work: Work, random: Random, kills: int) -> Iterator[Trial]:
    """One run, killed up to so many times, then left to end."""
    place = subject.fresh(work.place)
    moments = []
    for _ in range(kills):
        delay = random.uniform(0, work.seconds * 0.6)
        running = Started(work.words(place), subject.folder, first=lambda: None)
        if running.wait(delay) is not None:  # it was done before
            break
        running.kill()
        running.wait()
        moments.append(delay)
    ended = subject.command(work.words(place))
    outcome = work.result(ended, place)
    for delay in moments:
        what = f"carso {work.name}, killed after {delay:.2f} of about {work.seconds:.1f} s"
        yield Trial(kind=RANDOM, what=what, outcome=outcome, said=last_line(ended.err))


def killed_at(subject: Subject, work: Work, at: int, total: int) -> Iterator[Trial]:
    """One run, killed before its write number `at`, then left to end."""
    place = subject.fresh(work.place)
    subject.command(work.words(place), dying(place, at))
    ended = subject.command(work.words(place))
    what = f"carso {work.name}, killed before write {at} of {total}"
    outcome = work.result(ended, place)
    yield Trial(kind=EXACT, what=what, outcome=outcome, said=last_line(ended.err))


def trials(subject: Subject, random: Random, *, short: bool) -> Iterator[Trial]:
    """Chains of random kills, and one kill for each of many writes, mixed."""
    tries: list[Callable[[], Iterator[Trial]]] = []
    train, evaluate = works(subject)
    if short:
        yield from killed_at_random(subject, train, random, 1)
        yield from killed_at(subject, evaluate, random.randint(1, 20), 20)
        return
    for work, chains in ((train, 16), (evaluate, 12)):
        random_kills = partial(killed_at_random, subject, work, random, CHAIN)
        tries += [random_kills] * chains
        total = counted(subject, work)
        points = random.sample(range(1, total + 1), min(POINTS, total))
        tries += [partial(killed_at, subject, work, at, total) for at in points]
    random.shuffle(tries)
    for attempt in tries:
        yield from attempt()
