"""Wrong command lines: commands times mistakes. Each must end with exit code 2 and one line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from torture_outcomes import Trial, last_line
from torture_subject import Ended, Subject, guarded

KIND = "wrong command lines"
Words = list[object]

WHOLE = ("x", "1.5", "", "1e3", "nan")
"""No whole numbers."""
NUMBERS = ("x", "", "nan", "inf", "-0.1", "0", "2")
"""No radius of a ball in [0, 1]."""
NAMES = ("odd", "0", "../x")
DEVICES = ("abacus", "cuda:99", "cpu:x", "")
HUGE = ("1000", "1000000")


def commands(subject: Subject) -> dict[str, Words]:
    """Of each command a line that would do, into places that do not exist yet."""
    run, toml = subject.folder / "run", subject.folder / "mini.toml"
    picture = next(iter(sorted(subject.photos.rglob("*.png"))))
    new = subject.folder / "new"
    return {
        "train": ["train", toml, "--run", new],
        "harden": [
            "harden", toml, "--classifier", run / "classifier.safetensors", "--run", new,
            "--allow-any-accuracy",
        ],
        "predict": ["predict", run, picture],
        "evaluate": ["evaluate", run, "--images", 2, "--out", new.with_suffix(".json")],
        "certify": [
            "certify", run, "--sigma", 0.5, "--images", 2, "--n", 50, "--out",
            new.with_suffix(".json"),
        ],
        "report": ["report", subject.record, "--out", new],
        "reproduce": ["reproduce", "results", "--show", "--out", new],
        "demo": ["demo", "--images", 3, "--out", new],
        "import": ["import", new],
        "layers": ["layers", run / "classifier.safetensors", "--scenario", toml],
        "doctor": ["doctor"],
        "scenarios": ["scenarios"],
    }  # fmt: skip


OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "--seed": WHOLE, "--threads": (*WHOLE, "-1", "100000"), "--device": DEVICES,
        "--devices": (*WHOLE, "0", "-1", *HUGE), "--nodes": (*WHOLE, "0", "-1"),
        "--precision": (*NAMES, "16", "bf16"), "--preset": NAMES, "--data": ("/none", ""),
        "--classifier": (*NAMES, "", "/none.pt", "/none.py", "/none.safetensors"),
        "--on": (*NAMES, "folder:/none", "run"), "--checkpoint-minutes": ("x", "-1", "", "nan"),
        "--run": ("/proc/none/x", "mini.toml", "mini.toml/x"), "--quiet": ("yes",),
    },
    "harden": {
        "--seed": WHOLE, "--threads": (*WHOLE, "-1", "100000"), "--device": DEVICES,
        "--devices": (*WHOLE, "0", "-1", *HUGE), "--nodes": (*WHOLE, "0", "-1"),
        "--precision": (*NAMES, "16"), "--preset": NAMES, "--data": ("/none",),
        "--epochs": (*WHOLE, "0", "-1"), "--eps": NUMBERS,
        "--layers": ("odd", "layer.9", "layer.0,odd", ",,"), "--on": (*NAMES, "folder:/none"),
        "--checkpoint-minutes": ("x", "-1", "", "nan"), "--norm": (*NAMES, "l2", "L7"),
        "--run": ("/proc/none/x", "mini.toml", "mini.toml/x"),
        "--classifier": (*NAMES, "", "/none.pt", "/none.py"),
    },
    "predict": {
        "--samples": (*WHOLE, "0", "-1", "1000000000"), "--seed": WHOLE, "--device": DEVICES,
        "--aggregation": NAMES, "--classifier": ("/none.py", "odd"),
        "--candidates": ("/proc/none/x", "mini.toml", "mini.toml/x"),
    },
    "evaluate": {
        "--images": (*WHOLE, "0", "-1", "999"), "--draws": (*WHOLE, "0", "-1"),
        "--samples": (*WHOLE, "-1"), "--chunk": (*WHOLE, "0", "-1"),
        "--max-batch": (*WHOLE, "0", "-1"), "--seed": WHOLE,
        "--threads": (*WHOLE, "-1", "100000"), "--device": DEVICES,
        "--devices": (*WHOLE, "0", "-1", *HUGE), "--nodes": (*WHOLE, "0", "-1"),
        "--eps": NUMBERS, "--norm": (*NAMES, "linf", "L1"), "--suite": (*NAMES, "standard"),
        "--attacks": (*NAMES, ",,", "transfer,odd", "margin,margin,"), "--split": (*NAMES, "train"),
        "--on": (*NAMES, "cifar100"), "--aggregation": NAMES, "--data": ("/none",),
        "--classifier": ("/none.py", "odd"),
        "--examples": ("/none.safetensors", "odd", "mini.toml", "run/classifier.safetensors"),
        "--save-examples": ("x.txt", "/proc/none/x.safetensors", "run"),
        "--out": ("run", "/proc/none/x.json", "mini.toml/x.json"),
    },
    "certify": {
        "--images": (*WHOLE, "0", "-1", "999"), "--sigma": ("0", "-1", "nan", "inf", "odd"),
        "--n": (*WHOLE, "0", "-1", "5"), "--n0": (*WHOLE, "0", "-1"),
        "--batch": (*WHOLE, "0", "-1"),
        "--alpha": ("0", "1", "-1", "nan", "odd"), "--seed": WHOLE, "--split": (*NAMES, "train"),
        "--on": (*NAMES, "cifar100"), "--devices": (*WHOLE, "0", "-1", *HUGE), "--device": DEVICES,
        "--classifier": ("/none.py", "odd"), "--out": ("run", "/proc/none/x.json"),
    },
    "report": {"--out": ("/proc/none/x", "mini.toml", "mini.toml/x")},
    "reproduce": {
        "--scale": NAMES, "--devices": (*WHOLE, "0", "-1"), "--threads": (*WHOLE, "-1"),
        "--device": DEVICES, "--out": ("/proc/none/x", "mini.toml"), "--precision": NAMES,
    },
    "demo": {
        "--images": (*WHOLE, "0", "2", "-1", "100000"), "--seed": WHOLE,
        "--threads": (*WHOLE, "-1", "100000"), "--out": ("/proc/none/x", "mini.toml"),
    },
    "import": {
        "--run": ("/proc/none/x", "mini.toml"), "--scenario": NAMES, "--base": NAMES,
        "--classifier": ("/none.safetensors",),
    },
    "layers": {
        "--scenario": (*NAMES, "", "/none.toml", "run"), "--preset": NAMES,
        "--shape": ("x", "1,2", "0,16,16", "1,16,16,16", "1,-1,16", "1.5,16,16", ",,"),
    },
    "doctor": {"--data": ("/none", "mini.toml")},
    "scenarios": {},
}  # fmt: skip
"""Wrong values of options; relative paths are in the subject's folder."""


def misspelt(lines: dict[str, Words]) -> Iterator[Words]:
    """Mistakes that any command can be called with."""
    for name, words in lines.items():
        yield [name + "x", *words[1:]]
        yield [*words, "--colour"]
        yield [*words, "--seeed", "1"]
        yield [*words, "-q"]
        if name not in ("predict", "report"):  # which take many
            yield [*words, "too", "many"]
        if name not in ("demo", "doctor", "scenarios"):
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


TOML_MISTAKES = (
    ("eps = 0.1", "eps = 8"), ("eps = 0.1", "eps = 0"), ("eps = 0.1", 'eps = "a"'),
    ("eps = 0.1", "esp = 0.1"), ("eps = 0.1", "eps = nan"), ("depth = 10", "depth = 11"),
    ("depth = 10", "depth = 0"), ("width = 1", "width = 0"), ("width = 1", "width = 1.5"),
    ("width = 1", 'layers = ["odd"]'), ("width = 1", 'layers = "odd"'), ("strides", "stride"),
    ("strides = [2, 2, 2]", "strides = []"), ("strides = [2, 2, 2]", "strides = 2"),
    ("epochs = 1", "epochs = 0"), ("epochs = 1", "epochs = -1"), ("epochs = 1", "epochs = 1.5"),
    ("batch_size = 16", "batch_size = 0"), ("batch_size = 16", 'batch_size = "16"'),
    ("attack_steps = 1", "attack_steps = -1"), ("latent = 8", "latent = 0"),
    ("condition = 16", "condition = -1"), ("fraction = 0.5", "fraction = 2"),
    ("fraction = 0.5", "fraction = -1"), ("[purifier]", "[purifer]"),
    ("[purifier]", '[purifier]\nkind = "odd"'), ("[purifier]", '[purifier]\nkind = "no:Where"'),
    ("[classifier]", '[classifier]\nkind = "odd"'), ("[data]", "[dta]"),
    ("plateau_rate = 1e-3", "plateau_rate = -1"), ("plateau_rate = 1e-3", "plateau_rate = nan"),
    ("beta_end = 0", "beta_end = -1"), ('name = "mini"', "name = 3"), ('name = "mini"', "odd = 1"),
    ("[hardening]", "[hardning]"), ('start = "scratch"', 'start = "odd"'),
    ("validation_images = 8", "validation_images = 0"), ('bank = "disk"', 'bank = "odd"'),
)  # fmt: skip


def combinations(lines: dict[str, Words]) -> Iterator[Words]:
    """Options that contradict each other."""
    evaluate, reproduce = lines["evaluate"], lines["reproduce"]
    yield [*evaluate, "--bare", "--unhardened"]
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
        ended = subject.command(words, guarded, seconds=900)
        shown = shlex.join(["carso", *(str(word) for word in words)])
        said = f"exit code {ended.code}: {last_line(ended.err)}"
        what, said = (text.replace(f"{subject.folder}/", "") for text in (shown, said))
        yield Trial(kind=KIND, what=what, outcome=judged(ended), said=said)
        for name in ("new", "new.json"):
            subject.fresh(name)
