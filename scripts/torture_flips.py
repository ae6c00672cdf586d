"""Bytes of files that are read back are changed: the next command must notice, or not be harmed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from torture_kills import writes
from torture_outcomes import Trial, last_line
from torture_subject import Ended, Subject, bits

KIND = "damaged files"
BYTES = 8
MOST = 130
"""Trials of a whole round, of all that there are."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Files as some command left them, and the command that reads them next."""

    name: str
    saved: Path
    """A copy of the folder, to damage again and again."""
    place: Path
    """Where the command looks for it."""
    words: list[object]
    result: Callable[[Ended], Any]
    wanted: Any
    also: tuple[Path, ...] = ()
    """What else has to be away before the command."""

    def files(self) -> list[Path]:
        """Those that carso wrote to read them again."""
        found = [path for path in sorted(self.saved.rglob("*")) if path.is_file()]
        return [p for p in found if not p.name.startswith(".") and "tensorboard" not in str(p)]


def stopped(subject: Subject, words: list[object], place: Path, before: str, times: int) -> None:
    """Let a command die when it is about to write `before` for the so manieth time."""

    def die_there() -> None:
        met = 0

        def die(number: int, event: str, target: str) -> None:
            nonlocal met
            met += event == "os.rename" and target.endswith(before)
            if met == times:
                os.kill(os.getpid(), signal.SIGKILL)

        writes(place, then=die)

    subject.command(words, die_there)


def states(subject: Subject) -> Iterator[State]:
    """Every place from which something is read back."""
    run, record = subject.folder / "damaged", subject.folder / "damaged.json"
    for stage, times in (("purifier", 2), ("hardening", 1)):
        subject.fresh("damaged")
        stopped(subject, subject.train(run), run, f"{stage}/losses.csv", times)
        yield State(
            name=f"training stopped in {stage}", saved=kept(run, f"stopped-{stage}"), place=run,
            words=subject.train(run), result=lambda ended: bits(run), wanted=subject.weights,
        )  # fmt: skip
    whole = subject.folder / "run"
    predicted = subject.command(subject.predict(whole)).out
    yield State(
        name="finished run, predicting", saved=kept(whole, "predicting"), place=run,
        words=subject.predict(run), result=lambda ended: ended.out, wanted=predicted,
    )  # fmt: skip
    yield State(
        name="finished run, training again", saved=kept(whole, "training"), place=run,
        words=subject.train(run), result=lambda ended: bits(run), wanted=subject.weights,
    )  # fmt: skip
    parts = record.with_suffix(".parts")
    subject.fresh("damaged.json")
    stopped(subject, subject.evaluate(record), record, ".safetensors", 8)
    yield State(
        name="evaluation stopped", saved=kept(parts, "parts"), place=parts,
        words=subject.evaluate(record), result=lambda ended: bits(record), wanted=subject.verdict,
        also=(record,),
    )  # fmt: skip
    yield from of_records(subject)


def of_records(subject: Subject) -> Iterator[State]:
    """A finished record, to be reported and to be asked for again."""
    page, place = subject.folder / "page", subject.folder / "records"
    place.mkdir(exist_ok=True)
    record = place / "record.json"
    shutil.copy(subject.record, record)
    saved = kept(place, "one-record")
    words: list[object] = ["report", record, "--out", page]

    def pages(ended: Ended) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(page.glob("*"))}

    wanted = pages(subject.command(words))
    yield State(
        name="record, reported", saved=saved, place=place, words=words, result=pages, wanted=wanted,
        also=(page,),
    )  # fmt: skip
    asked = subject.evaluate(record)
    yield State(
        name="record, asked for again", saved=saved, place=place, words=asked,
        result=lambda ended: ended.out, wanted=subject.command(asked).out,
    )  # fmt: skip


def kept(place: Path, name: str) -> Path:
    """A copy of a folder, without locks."""
    copy = place.parent / "states" / name
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place, copy, ignore=shutil.ignore_patterns(".lock*"))
    return copy


def flipped(content: bytes, random: Random) -> bytes:
    """Eight bytes changed, anywhere."""
    damaged = bytearray(content)
    for place in random.sample(range(len(damaged)), min(BYTES, len(damaged))):
        damaged[place] ^= random.randint(1, 255)
    return bytes(damaged)


def other_digit(content: bytes, random: Random) -> bytes:
    """One digit changed to another: still JSON."""
    match = random.choice(list(re.finditer(rb"(?<=[0-9.])[0-9]", content)))
    damaged = bytearray(content)
    damaged[match.start()] = 48 + (content[match.start()] - 48 + random.randint(1, 9)) % 10
    return bytes(damaged)


def cut(content: bytes, random: Random) -> bytes:
    """The end is missing."""
    return content[: random.randrange(len(content))]


DAMAGES = {"8 bytes changed": flipped, "a digit changed": other_digit, "cut short": cut}


def damaged(subject: Subject, state: State, file: Path, damage: str, random: Random) -> Trial:
    """One file of a state damaged, and the next command."""
    for old in (state.place, *state.also):
        shutil.rmtree(old, ignore_errors=True)
        if old.is_file():
            old.unlink()
    shutil.copytree(state.saved, state.place)
    name = file.relative_to(state.saved)
    target = state.place / name
    whole = target.read_bytes()
    target.write_bytes(DAMAGES[damage](whole, random))
    ended = subject.command(state.words)
    if ended.traceback:
        outcome = "traceback"
    elif ended.code != 0:
        outcome = "refused" if ended.refused else "unclear"
    elif state.result(ended) != state.wanted:
        outcome = "silent"
    elif ended.said:
        outcome = "mended"
    elif target.is_file() and target.read_bytes() == whole:
        outcome = "silent"  # it was repaired without a word
    else:
        outcome = "unharmed"
    what = f"{state.name}: {name}: {damage}"
    return Trial(kind=KIND, what=what, outcome=outcome, said=last_line(ended.err))


def trials(subject: Subject, random: Random, *, short: bool) -> Iterator[Trial]:
    """Each file of each state, damaged in each way; of the short form a few."""
    tries = [
        (state, file, damage)
        for state in (of_records(subject) if short else states(subject))
        for file in state.files()
        for damage in DAMAGES
        if damage != "a digit changed" or (file.suffix == ".json" and b"1" in file.read_bytes())
    ]
    random.shuffle(tries)
    for state, file, damage in tries[: 3 if short else MOST]:
        yield damaged(subject, state, file, damage, random)
