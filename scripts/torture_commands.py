"""Wrong command lines: commands times mistakes. Each must end with exit code 2 and one line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from torture_command_table import OPTIONS, TOML_MISTAKES, Words, commands
from torture_outcomes import Trial, last_line
from torture_subject import Ended, Subject, guarded

KIND = "wrong command lines"


def misspelt(lines: dict[str, Words]) -> Iterator[Words]:
    """Mistakes that any command can be called with."""
    for name, words in lines.items():
        yield [name + "x", *words[1:]]
        yield [*words, "--colour"]
        yield [*words, "--seeed", "1"]
        yield [*words, "-q"]
        if name not in ("predict", "report", "play"):  # which take many
            yield [*words, "too", "many"]
        if name not in ("demo", "doctor", "scenarios", "play"):
            yield [name]
        if options := list(OPTIONS[name]):
            yield [*words, options[0]]


def wrong_values(lines: dict[str, Words]) -> Iterator[Words]:
    for name, options in OPTIONS.items():
        for option, values in options.items():
            for value in values:
                yield [*lines[name], option, value]


def wrong_files(subject: Subject, lines: dict[str, Words]) -> Iterator[Words]:
    """Files that are not what they are taken for."""
    place = subject.folder / "wrong"
    place.mkdir(exist_ok=True)
    for path in bad_files(subject, place):
        yield ["report", path, "--out", place / "page"]
        yield ["predict", lines["predict"][1], path]
        yield ["predict", path, lines["predict"][2]]
        yield ["train", path, "--run", place / "new"]
        yield ["evaluate", path, "--images", 2, "--out", place / "new.json"]
        if path.exists():  # else it is a place like any other
            yield ["evaluate", lines["evaluate"][1], "--images", 2, "--out", path]
            yield [*lines["certify"][:-1], path]
        yield ["export", path, "--out", place / "new.onnx"]
        yield ["play", path, "--port", 0]
        yield ["play", "--record", path, "--port", 0]
        yield ["certify", path, "--sigma", 0.5, "--images", 2, "--out", place / "new.json"]
        yield ["layers", path, "--scenario", subject.folder / "mini.toml"]
        yield ["import", path, "--run", place / "new"]
        yield ["evaluate", lines["evaluate"][1], "--images", 2, "--examples", path]
        yield ["harden", subject.folder / "mini.toml", "--classifier", path, "--run", place / "new"]
        yield [*lines["train"], "--classifier", path]
    for number, (old, new) in enumerate(TOML_MISTAKES):
        path = place / f"{number}.toml"
        text = (subject.folder / "mini.toml").read_text()
        assert old in text, old
        path.write_text(text.replace(old, new, 1))
        yield ["train", path, "--run", place / "new"]
    yield ["evaluate", lines["evaluate"][1], "--images", 2, "--out", edited(subject, place)]
    yield ["report", edited(subject, place), "--out", place / "page"]


def bad_files(subject: Subject, place: Path) -> Iterator[Path]:
    """Files of all kinds that hold something else."""
    contents: dict[str, bytes] = {
        "empty.json": b"", "list.json": b"[]", "null.json": b"null", "deep.json": b"[" * 9000,
        "object.json": b"{}", "noise.bin": bytes(range(256)), "noise.safetensors": b"\xff" * 64,
        "noise.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "noise.npy": b"\x93NUMPY\x01\0",
        "noise.toml": b"= =", "noise.pt": b"PK\x03\x04", "noise.py": b"classifier = (",
    }  # fmt: skip
    for name, content in contents.items():
        (place / name).write_bytes(content)
        yield place / name
    (place / "folder").mkdir(exist_ok=True)
    yield place / "folder"
    yield place / "missing"


def edited(subject: Subject, place: Path) -> Path:
    """A record whose accuracy its own images contradict."""
    record: dict[str, Any] = json.loads(subject.record.read_text())
    record["accuracy"]["worst"]["value"] = 0.25
    path = place / "edited.json"
    path.write_text(json.dumps(record))
    return path


def combinations(lines: dict[str, Words]) -> Iterator[Words]:
    """Options that contradict each other."""
    evaluate, reproduce = lines["evaluate"], lines["reproduce"]
    yield [*evaluate, "--bare", "--unhardened"]
    yield [*lines["certify"], "--bare", "--unhardened"]
    yield [*lines["export"], "--unhardened", "--to", "odd"]
    yield [*lines["play"], "odd"]
    yield [*lines["play"], "--unhardened"]
    yield [*evaluate, "--bare", "--aggregation", "mean-logits"]
    yield [*evaluate, "--bare", "--suite", "paper"]
    yield [*evaluate, "--bare", "--attacks", "randaa-released"]
    yield [*evaluate, "--norm", "L2"]
    yield [*evaluate, "--examples", "none.safetensors", "--suite", "quick"]
    yield [*evaluate, "--suite", "quick", "--attacks", "odd"]
    yield [*reproduce, "--jobs"]
    yield [*reproduce, "--retrain", "--records", "x"]
    yield ["reproduce", "odd"]
    yield ["reproduce", "all", "--scale", "odd"]


def table(subject: Subject) -> list[Words]:
    """Every wrong command line."""
    lines = commands(subject)
    return [
        *misspelt(lines),
        *wrong_values(lines),
        *combinations(lines),
        *wrong_files(subject, lines),
    ]


def judged(ended: Ended) -> str:
    """Exit code 2, exactly one line, and that begins with the name of the program."""
    lines = ended.err.strip().splitlines()
    if ended.traceback:
        return "traceback"
    if ended.code == 0:
        return "silent"
    right = ended.code == 2 and len(lines) == 1 and lines[0].startswith("carso: ")
    return "refused" if right else "unclear"


def trials(subject: Subject, random: Random, *, short: bool) -> Iterator[Trial]:
    """Each line of the table, in random order; of the short form a few."""
    chosen = table(subject)
    random.shuffle(chosen)
    for words in chosen[: 8 if short else None]:
        ended = subject.command(words, guarded, seconds=120)
        shown = shlex.join(["carso", *(str(word) for word in words)])
        said = f"exit code {ended.code}: {last_line(ended.err)}"
        what, said = (text.replace(f"{subject.folder}/", "") for text in (shown, said))
        yield Trial(kind=KIND, what=what, outcome=judged(ended), said=said)
        for name in ("new", "new.json", "new.onnx"):
            subject.fresh(name)
