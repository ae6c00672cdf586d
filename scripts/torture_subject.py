"""What `torture.py` torments: a tiny run and a tiny record, by commands in processes of their own.

Every command runs in a fork of a process that has imported everything, since a start of Python
and torch would take longer than the command. The fork is a process like any other: it can be
killed, it can be refused a lock, and its memory is its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records import ROOT

SIDE = 16
"""Of the images, in pixels."""
EPOCHS = 3
"""Of the purifier, so that there is a checkpoint, one before it, and work left."""
VOLATILE = {
    "provenance", "seconds", "bank_seconds", "images_per_second", "made", "since", "sha256",
    "weights", "elapsed", "checksum",
}  # fmt: skip
"""Keys of JSON files that say when and how fast, or repeat the bits of another file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    """Its exit code; of a signal, that with a minus."""
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> list[str]:
        """What it said on the standard error, without progress."""
        return [line for line in self.err.splitlines() if line.startswith("carso: ")]

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.err

    @property
    def refused(self) -> bool:
        """Exit code 2, and after what was said of progress one clear line."""
        last = next(reversed(self.err.strip().splitlines()), "")
        return self.code == 2 and last.startswith("carso: ") and not self.traceback


class Started:
    """A command that is running in a fork."""

    def __init__(self, words: Iterable[object], folder: Path, *, first: Callable[[], None]) -> None:
        """`first` is called in the fork before the command."""
        self.scratch = folder / f".said-{time.monotonic_ns()}"
        self.scratch.mkdir()
        self.began = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            run_here([str(word) for word in words], folder, self.scratch, first)

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> Ended | None:
        """How it ended, within so many seconds if they are given; else None."""
        while True:
            ended, status = os.waitpid(self.process, 0 if seconds is None else os.WNOHANG)
            if ended:
                break
            if time.monotonic() - self.began > (seconds or 0):
                return None
            time.sleep(0.002)
        texts = [(self.scratch / name).read_text(errors="replace") for name in ("out", "err")]
        shutil.rmtree(self.scratch)
        return Ended(
            code=os.waitstatus_to_exitcode(status),
            out=texts[0],
            err=texts[1],
            seconds=time.monotonic() - self.began,
        )


def run_here(words: list[str], folder: Path, scratch: Path, first: Callable[[], None]) -> None:
    """The command in this process, which ends with it."""
    from carso.cli.main import main

    code = 1
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(scratch / name, os.O_WRONLY | os.O_CREAT), number)
        os.chdir(folder)
        sys.argv = ["carso", *words]
        first()
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def nothing() -> None:
    """Before a command that is left alone."""


def guarded() -> None:
    """Before a command that may not do what it is asked: no more memory, time or processes than a
    refusal needs."""
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and Path(str(arguments[0])).name != "git":
            sys.stderr.write("it started another process\n")
            sys.stderr.flush()
            os._exit(99)

    sys.addaudithook(watch)


class Subject:
    """A folder with images, a scenario, and what undisturbed commands make of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        sys.path.append(str(ROOT / "tests"))
        from support import HARDENING, mini, write_photos

        self.photos = write_photos(folder / "photos")
        shrink(self.photos)
        text = mini(self.photos, epochs=EPOCHS).replace(
            "[purifier.attacks]", '[purifier.attacks]\nbank = "disk"'
        )
        (folder / "mini.toml").write_text(text + HARDENING.replace("epochs = 1", "epochs = 2"))
        preload()
        shortened()
        self.trained = self.undisturbed(self.train(folder / "run"))
        self.run = folder / "run"
        self.record = folder / "record.json"
        self.evaluated = self.undisturbed(self.evaluate(self.record))
        self.weights = bits(self.run)
        self.verdict = bits(self.record)
        checkpoint_each_step()

    def train(self, run: Path) -> list[object]:
        return ["train", self.folder / "mini.toml", "--run", run, "--threads", 1, "--device", "cpu"]

    def evaluate(self, out: Path, run: Path | None = None) -> list[object]:
        return [
            "evaluate", run or self.folder / "run", "--images", 2, "--draws", 2, "--samples", 1,
            "--chunk", 1, "--threads", 1, "--device", "cpu", "--out", out,
        ]  # fmt: skip

    def predict(self, run: Path) -> list[object]:
        picture = next(iter(sorted(self.photos.rglob("*.png"))))
        return ["predict", run, picture, "--json", "--device", "cpu"]

    def command(
        self, words: Iterable[object], first: Callable[[], None] = nothing, seconds: float = 1800
    ) -> Ended:
        """The command, to its end; one that takes longer than `seconds` is killed."""
        running = Started(words, self.folder, first=first)
        ended = running.wait(seconds)
        if ended is None:
            running.kill()
            ended = running.wait()
        assert ended is not None
        return ended

    def undisturbed(self, words: list[object]) -> Ended:
        ended = self.command(words)
        if ended.code != 0:
            raise SystemExit(f"carso {' '.join(map(str, words))}: {ended.err}")
        return ended

    def fresh(self, name: str) -> Path:
        """A path in the folder with nothing at it, nor at the parts of a record there."""
        path = self.folder / name
        for old in (path, path.with_suffix(".parts")):
            shutil.rmtree(old, ignore_errors=True)
            if old.is_file():
                old.unlink()
        return path


def shrink(photos: Path) -> None:
    """Smaller images, for shorter runs."""
    from PIL import Image

    for path in photos.rglob("*.png"):
        with Image.open(path) as picture:
            small = picture.resize((SIDE, SIDE))
        small.save(path)


def shortened() -> None:
    """The suite `quick` with two short attacks and hardly any diagnostics, in this process and its
    forks."""
    from carso.evaluation.attacked_model import AttackedView
    from carso.evaluation.planned_attacks import Effort, Suite, margin
    from carso.evaluation.suites import SUITES

    def shortest(seed: int, samples: int) -> Suite:
        view = AttackedView(samples=samples)
        effort = Effort(images=2, steps=1, queries=1, eps=(0.0,))
        return Suite(name="quick", attacks=(margin(1, 1, view),), effort=effort)

    SUITES["quick"] = shortest


def checkpoint_each_step() -> None:
    """Let trainings of this process's forks write a checkpoint after every step, not only every few
    minutes, which they would not last."""
    from carso.training import loop

    loop.run.__kwdefaults__["minutes"] = 0.0


def preload() -> None:
    """Import what commands import, in one thread, so that forks find it."""
    import torch

    import carso

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(carso.__path__, "carso."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("torch._dynamo", "lightning_fabric", "torch.utils.tensorboard", "pyautoattack"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    warmed()


def warmed() -> None:
    """Do once what every command does first, and let the collector leave alone what there is by
    then: a fork would copy all that it looks at."""
    from carso.cli.options import app

    with contextlib.redirect_stdout(io.StringIO()):
        app(["scenarios", "--json"], standalone_mode=False)
    gc.collect()
    gc.freeze()


def bits(path: Path) -> dict[str, Any]:
    """What a run or a record amounts to: weights as bytes, JSON without times."""
    if path.is_file():
        return {path.suffix: stable(json.loads(path.read_text()))}
    found: dict[str, Any] = {}
    for file in sorted(path.glob("*")):
        if file.suffix == ".safetensors":
            found[file.name] = file.read_bytes()
        elif file.suffix == ".json" and not file.name.startswith("."):
            found[file.name] = stable(json.loads(file.read_text()))
    return found


def stable(value: Any) -> Any:
    """A JSON value without what differs from time to time."""
    if isinstance(value, dict):
        return {key: stable(inner) for key, inner in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [stable(inner) for inner in value]
    return value
