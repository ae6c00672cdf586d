"""Wrong calls of the Python interface: functions times wrong arguments. Each must raise a
`CarsoError` of one line."""

from __future__ import annotations

import contextlib
import io
import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn
from torture_outcomes import Trial, last_line
from torture_subject import SIDE, Subject

KIND = "wrong calls"
SECONDS = 60
"""A call that works as long, in seconds of a processor, is no refusal."""
NAN = math.nan

COUNTS = (0, -1, 2.5, "2", NAN, [1])
RADII = (0, -0.1, 2.0, NAN, math.inf, "0.1", [0.1])
SEEDS = (1.5, "0", NAN, [0])
DEVICES = ("abacus", "cuda:99", 3.5, [])
LAYERS = ("0", (), [], ["odd"], [0], 3, ["1", "odd"])
PRECISIONS = (torch.float64, torch.float16)
Wrong = dict[str, tuple[Any, ...]]


def images(count: int = 2, channels: int = 1, side: int = SIDE) -> torch.Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(0))


def network(**where: Any) -> nn.Module:
    """A classifier of two classes; `where` are torch's dtype and device."""
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(1, 2, 3, **where),
        nn.Flatten(),
        nn.Linear(2 * (SIDE - 2) ** 2, 2, **where),
    )


class Detached(nn.Module):
    """Its output has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).detach()  # type: ignore[no-any-return]


def bad_classifiers() -> tuple[Any, ...]:
    return (
        None, "fashion", 3, lambda x: x, nn.Linear, network, nn.Identity(),
        nn.Sequential(nn.Flatten(), nn.LazyLinear(2)), network(device="meta"),
        network(dtype=torch.float64), network(dtype=torch.bfloat16),
        nn.Sequential(nn.Flatten(), nn.Linear(7, 2)),
    )  # fmt: skip


def bad_images() -> tuple[Any, ...]:
    good = images()
    return (
        None, "x", 3, [0.5], good.tolist(), good[0], good[:0], (good * 255).byte(), good * 255,
        good - 1, good * NAN, good.double(), good.half(), good.numpy(), images(channels=3),
        images(side=7), good.to("meta"), good.bool(), good.to_sparse(),
    )  # fmt: skip


def bad_labels() -> tuple[Any, ...]:
    return (
        None, "01", 3, torch.tensor([0]), torch.tensor([0, 9]), torch.tensor([-1, 0]),
        torch.tensor([0.5, 1]), torch.tensor([[0, 1]]), torch.tensor([NAN, 0.0]),
        torch.zeros(0, dtype=torch.int64), torch.tensor([0, 1], device="meta"),
    )  # fmt: skip


TRAINING: Wrong = {
    "layers": LAYERS, "eps": RADII, "norm": ("odd", 2, None, ""), "seed": SEEDS,
    "device": DEVICES, "threat": ("Linf", 0.1), "epochs": COUNTS, "batch_size": COUNTS,
    "samples": COUNTS, "steps": (-1, 2.5, "2", NAN),
    "kind": ("odd", 3, "no_module:Mine"), "epoch": (1,), "latnet": (8,), "latent": COUNTS,
    "out": (3, b"x", "/proc/none/run", ["x"]), "quiet": ("yes", 1, None),
    "check_accuracy": ("no", 0, None), "display": (3, "bar"),
}  # fmt: skip


def table(subject: Subject) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every wrong call, in words and as a function without arguments."""
    import carso
    from carso import data

    whole = data.load(str(subject.photos))
    around = {"classifier": network(), "data": whole, "layers": ["1"], "eps": 0.1, "epochs": 1,
              "check_accuracy": False}  # fmt: skip
    short = {"condition": 16, "latent": 8, "decoder_width": 16}
    program = torch.export.export(network(), (images(),)).module()
    brought: Wrong = {
        "classifier": (*bad_classifiers(), Detached(), program),
        "data": (None, "fashion", images(), 3),
    }
    yield from varied(
        "carso.fit", carso.fit, {**around, **short, "steps": 1},
        {**brought, **TRAINING, "rate": (0, -1, NAN, "x"), "fraction": (-1, 2, NAN, "x")},
    )  # fmt: skip
    yield from varied(
        "carso.harden", carso.harden, {**around, "scenario": str(subject.folder / "mini.toml")},
        {**brought, **TRAINING, "scenario": ("odd", 3, "", None), "start": ("x", 3),
         "aggregation": ("odd", 3)},
    )  # fmt: skip
    # Of the others an evaluation makes what the model takes.
    other_images = tuple(
        value for value in bad_images() if getattr(value, "dtype", None) not in PRECISIONS
    )
    asked = {"model": network(), "images": images(), "labels": torch.tensor([0, 1]), "eps": 0.1,
             "suite": "quick"}  # fmt: skip
    yield from varied(
        "carso.evaluate", carso.evaluate, asked,
        {"model": (*bad_classifiers()[:9], Detached), "images": other_images,
         "labels": bad_labels(), "eps": RADII, "norm": ("odd", 2, None), "seed": SEEDS,
         "device": DEVICES, "draws": COUNTS, "samples": (-1, 2.5, "2", NAN), "chunk": COUNTS,
         "suite": ("odd", 3), "attacks": ("margin", ["odd"], [3], 3),
         "out": (3, subject.run, "/proc/none/x.json"), "threat": ("Linf", 0.1),
         "examples": (3, "/none.safetensors", subject.run, subject.run / "classifier.safetensors"),
         "quiet": ("yes", 1), "again": ("yes", 1), "name": (3, ["x"]), "classes": ("ab", 3, [1, 2]),
         "backward": (3, "x", lambda x: x), "chnuk": (3,), "counted": (3, "bar"),
         "save_examples": (3, "/proc/none/x.safetensors", "x.txt")},
    )  # fmt: skip
    yield from varied(
        "carso.load", carso.load, {"name": str(subject.run)},
        {"name": (3, None, "odd", "", b"fashion", ["fashion"], subject.photos, "fashin"),
         "device": DEVICES, "hardened": ("yes", 3), "samples": COUNTS, "max_batch": COUNTS,
         "aggregation": ("odd", 3, None), "anchor": (-1, NAN, "x", math.inf), "seed": SEEDS,
         "sampels": (3,), "classifier": bad_classifiers()[1:5]},
    )  # fmt: skip
    defence = carso.load(str(subject.run))
    yield from varied(
        "carso.Carso", carso.Carso,
        {"classifier": defence.classifier, "purifier": defence.purifier},
        {"classifier": bad_classifiers()[:6], "purifier": (None, 3, "vae", nn.Identity()),
         "samples": COUNTS, "aggregation": ("odd", 3, None), "anchor": (-1, NAN, "x"),
         "max_batch": COUNTS, "seed": SEEDS, "final_classifier": ("x", 3)},
    )  # fmt: skip
    yield from varied(
        "defence.save", defence.save, {"folder": subject.folder / "saved"},
        {"folder": (3, None, b"x", subject.run, subject.record, "/proc/none/x", ["x"])},
    )  # fmt: skip
    yield from varied(
        "carso.certify", carso.certify,
        {"model": network(), "images": images(), "labels": torch.tensor([0, 1]), "sigma": 0.1,
         "draws": 10, "selection": 10},
        {"model": bad_classifiers()[:9], "images": other_images, "labels": bad_labels(),
         "sigma": (*RADII[3:], 0, -1), "seed": SEEDS, "device": DEVICES, "draws": COUNTS,
         "out": (3, subject.run, "/proc/none/x.json"), "sgima": (1,)},
    )  # fmt: skip
    for name in ("__call__", "predict", "predict_proba", "purify", "explain"):
        yield from varied(f"defence.{name}", getattr(defence, name), {}, {"images": bad_images()})
    yield from varied(
        "defence.view", defence.view, {"name": "mean-logits"},
        {"name": ("odd", 3, None), "draws": COUNTS, "samples": COUNTS},
    )  # fmt: skip
    yield from varied("defence.seed", defence.seed, {}, {"seed": SEEDS})
    yield from on_data(subject)


def on_data(subject: Subject) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls for data, weights and threats."""
    import carso
    from carso import data

    pixels = torch.zeros(20, 1, 8, 8, dtype=torch.uint8)
    labels = torch.arange(20) % 2
    yield from varied(
        "data.load", data.load, {"name": "fashion-embedded"},
        {"name": (3, None, "odd", "", "folder:/none", ["x"], b"x", str(subject.folder / "cache"))},
    )  # fmt: skip
    yield from varied(
        "data.load", data.load, {"name": "fashion-embedded"},
        {"root": (3, Path("/none"), "/none", subject.record), "download": ("yes", 1), "rot": (1,)},
    )  # fmt: skip
    yield from varied(
        "data.from_tensors", data.from_tensors, {"images": pixels, "labels": labels},
        {"images": (None, "x", pixels.float(), pixels[0], pixels[:3], pixels.numpy()),
         "labels": (None, "x", labels.float(), labels[:3], labels - 1, labels.tolist()),
         "classes": (("a",), "ab" * 9, 3, ("a", "a"))},
    )  # fmt: skip
    yield from varied(
        "carso.load_classifier", carso.load_classifier, {},
        {"name": (3, None, "odd", "", "/none.py", subject.run, b"x")},
    )  # fmt: skip
    weights = subject.run / "classifier.safetensors"
    yield from varied(
        "carso.load_weights", carso.load_weights, {"module": network(), "path": weights},
        {"module": (network(), None, 3), "path": (3, None, "/none.pt", subject.run, "x.txt")},
    )  # fmt: skip
    for kind in (carso.Linf, carso.L2):
        radii = RADII if kind is carso.Linf else tuple(r for r in RADII if r != 2.0)
        yield from varied(f"carso.{kind.__name__}", kind, {}, {"eps": radii})
    yield from varied(
        "carso.Representation", carso.Representation, {"classifier": network(), "layers": ["1"]},
        {"layers": LAYERS, "classifier": (None, 3, "x")},
    )  # fmt: skip


def varied(
    name: str, function: Callable[..., object], right: dict[str, Any], wrong: Wrong
) -> Iterator[tuple[str, Callable[[], object]]]:
    """The call with one argument wrong at a time."""
    for argument, values in wrong.items():
        for value in values:
            if name.startswith("defence.") and not right:
                yield f"{name}({in_words(value)})", lambda value=value: function(value)
            else:
                given = {**right, argument: value}
                yield (
                    f"{name}(..., {argument}={in_words(value)})",
                    lambda given=given: function(**given),
                )


def in_words(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        sparse = "sparse " if value.is_sparse else ""
        kind = f"{value.device.type} {sparse}{value.dtype}".replace("torch.", "")
        plain = value.numel() and not (value.is_sparse or value.is_meta)
        ends = f" from {value.min():.3g} to {value.max():.3g}" if plain else ""
        return f"<{kind} {tuple(value.shape)}{ends}>"
    if isinstance(value, nn.Module):
        first = next(value.parameters(), None)
        lazy = isinstance(first, nn.UninitializedParameter)
        about = "no weights" if first is None else "lazy" if lazy else in_words(first)
        return f"<{type(value).__name__}: {about}>"
    if callable(value):
        return f"<{value.__name__}>"
    return " ".join(repr(value).split())[:60]


def outcome(call: Callable[[], object]) -> tuple[str, str]:
    """How a call ended, and what it said."""
    from carso.errors import CarsoError

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"it works after {SECONDS} seconds")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call()
        return "silent", "taken without a word"
    except CarsoError as error:
        text = str(error)
        return ("refused" if len(text.splitlines()) == 1 else "unclear"), last_line(text)
    except TimeoutError as error:
        return "silent", str(error)
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {last_line(str(error))}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def trials(subject: Subject, random: Random, *, short: bool) -> Iterator[Trial]:
    """Each call of the table, in random order; of the short form a few."""
    chosen = list(table(subject))
    random.shuffle(chosen)
    for words, call in chosen[: 30 if short else None]:
        ended, said = outcome(call)
        what = words.replace(f"{subject.folder}/", "")
        yield Trial(kind=KIND, what=what, outcome=ended, said=said.replace(str(subject.folder), ""))
