"""What `carso doctor --self-test` tries: each thing that a run does, once, on a shipped defence.

It shows that the code runs on a machine's devices and gives finite numbers. How good they are is
not looked at. Nothing of it is kept.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

import carso
from carso import data
from carso.cli.doctor_command import WORKS
from carso.errors import CarsoError

DEFENCE = "fashion-retrofit"
EPS = 0.1
IMAGES = 10
PATIENCE = 120
"""Seconds for two processes to start, meet and end; where one hangs, this ends it."""


def self_test(device: torch.device) -> Iterator[tuple[str, str]]:
    """Each thing as it was tried: that it works, or in one line why it does not."""
    steps: dict[str, Callable[[], None]] = {
        f"forward on {device}": lambda: forward(device),
        f"gradient on {device}": lambda: gradient(device),
        f"hardening step on {device}": lambda: hardening_step(device),
        f"evaluation step on {device}": lambda: evaluation_step(device),
    }
    where = "cuda" if device.type == "cuda" and torch.cuda.device_count() > 1 else "cpu"
    steps[f"two processes on {where}"] = lambda: two_processes(where)
    for name, step in steps.items():
        yield name, tried(step)


def tried(step: Callable[[], None]) -> str:
    """How one step ended; whatever goes wrong in it belongs into the report."""
    try:
        step()
    except Exception as error:
        words = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return f"{type(error).__name__}: {words}"[:300]
    return WORKS


def batch(device: torch.device) -> tuple[Tensor, Tensor]:
    """An image of each class."""
    images, labels = data.load("fashion-embedded").test.balanced(IMAGES).batch(slice(None))
    return images.to(device), labels.to(device)


def forward(device: torch.device) -> None:
    """Log-probabilities, which on another device are nearly those on the CPU."""
    found = []
    for place in (device, torch.device("cpu")):
        defence = carso.load(DEFENCE, samples=2).to(place)
        with torch.no_grad():
            found.append(defence(batch(place)[0]).exp())
    if found[0].device.type != device.type:
        raise CarsoError(f"the answer is on {found[0].device}")
    apart = float((found[0].cpu() - found[1]).abs().max())
    if not apart < 0.05:
        raise CarsoError(f"probabilities differ from the CPU's by {apart:.3g}")


def gradient(device: torch.device) -> None:
    """The gradient that an attack takes."""
    points = batch(device)[0].requires_grad_(True)
    carso.load(DEFENCE, samples=1).to(device).view("mean-logits")(points).sum().backward()
    if points.grad is None or not bool(points.grad.isfinite().all() & (points.grad != 0).any()):
        raise CarsoError("the gradient is zero, or not finite")


def hardening_step(device: torch.device) -> None:
    """A hardening of one batch, with its attack before and its validation after it."""
    from dataclasses import replace

    images = data.load("fashion-embedded")
    few = replace(images, train=images.train.balanced(IMAGES))
    classifier = carso.load(DEFENCE).classifier.classifier
    made = carso.harden(
        classifier, few, eps=EPS, layers=carso.load(DEFENCE).purifier.layers, steps=1, epochs=1,
        batch_size=IMAGES, validation_images=IMAGES, device=device, quiet=True,
    )  # fmt: skip
    if not bool(made.predict_proba(batch(device)[0]).isfinite().all()):
        raise CarsoError("the hardened defence answers with numbers that are not finite")


def evaluation_step(device: torch.device) -> None:
    """An attack on the whole defence, its verdict and its diagnoses."""
    defence = carso.load(DEFENCE, samples=2).to(device)
    images, labels = (part.cpu() for part in batch(device))
    carso.evaluate(
        defence, images, labels, eps=EPS, attacks=["transfer"], samples=1, draws=2, device=device,
        quiet=True,
    )  # fmt: skip


def two_processes(where: str) -> None:
    """An evaluation shared by two processes, as a user would start it."""
    with tempfile.TemporaryDirectory() as folder:
        command = (
            f"-m carso evaluate {DEFENCE} --on fashion-embedded --images 4 --chunk 2 --draws 1 "
            f"--samples 1 --attacks transfer --device {where} --devices 2 --oversubscribe "
            f"--threads 1 --quiet --out record.json"
        )
        ended = subprocess.run(
            [sys.executable, *command.split()],
            cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        if ended.returncode or not (Path(folder) / "record.json").is_file():
            lines = ended.stderr.strip().splitlines() or ["it wrote no record"]
            raise CarsoError(f"exit code {ended.returncode}: {lines[-1]}")
