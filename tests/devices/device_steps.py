"""What every command does inside, once each, on the pretended device: `python device_steps.py`
prints for each step that it works, or the error.

A process of its own runs it: the device's name is torch's for as long as a process lives.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from deployed_steps import DEPLOYED_STEPS
from device_images import COUNT, batch, everything_is_on, few
from pretended_device import pretended, report, set_up

import carso
from carso.attacks.pgd import PGD
from carso.cli import self_test
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import (
    Effort,
    Suite,
    apgd,
    black_box,
    fab,
    margin,
    pgd_eot,
    random_points,
    refine,
)
from carso.scenario.parser import read
from carso.training.loop import Quiet
from carso.training.train import train_classifier

EPS, ATTACKED = 0.1, 2
LAYERS = ("init_conv", "layer.0.block.0.conv_1")


def fitted(kind: str, **shape: Any) -> Callable[[torch.device], None]:
    """`carso.fit`: batches with attacks, steps of the paper's training, validation."""

    def step(device: torch.device) -> None:
        made = carso.fit(
            carso.load("fashion-retrofit").classifier.classifier, few(), layers=LAYERS, eps=EPS,
            epochs=1, batch_size=COUNT, steps=1, device=device, kind=kind, quiet=True, **shape,
        )  # fmt: skip
        everything_is_on(device, made)

    return step


def hardened(scenario: str, **settings: Any) -> Callable[[torch.device], None]:
    """`carso.harden`: an attack on the whole defence, a step against it, validation."""

    def step(device: torch.device) -> None:
        made = carso.harden(
            carso.load("fashion-retrofit").classifier.classifier, few(), layers=LAYERS, eps=EPS,
            epochs=1, batch_size=COUNT, validation_images=COUNT, device=device, quiet=True,
            scenario=scenario, **settings,
        )  # fmt: skip
        everything_is_on(device, made)

    return step


def classifier_trained(device: torch.device) -> None:
    """The first stage of `carso train`: an epoch against attacks, a checkpoint, validation."""
    scenario = read("fashion")
    training = replace(scenario.classifier.training, epochs=1, batch_size=COUNT, attack_steps=1)
    scenario = replace(scenario, classifier=replace(scenario.classifier, training=training))
    with tempfile.TemporaryDirectory() as folder:
        made = train_classifier(scenario, few(), Path(folder), device, Quiet())
        assert (Path(folder) / "classifier.safetensors").is_file()
    assert {one.device.type for one in made.parameters()} == {device.type}


def evaluated(device: torch.device) -> None:
    """`carso.evaluate`: each kind of attack, the verdict, every diagnosis."""
    one, fixed = AttackedView(samples=1), AttackedView(samples=1, fixed=True)
    attacks = (
        margin(1, 1, None), apgd("ce", 2, fixed), apgd("dlr", 1, one),
        apgd("dlr-targeted", 1, AttackedView(name="logsumexp", samples=2), targets=1),
        fab(1, 1, fixed), refine(1, 1, 1, one), black_box(2), random_points(2),
        replace(pgd_eot(0, 1), attack=PGD(steps=1, step_size=0.01, random_start=False, eot=2)),
    )  # fmt: skip
    suite = Suite(
        name="each",
        attacks=attacks,
        effort=Effort(images=ATTACKED, steps=1, queries=1, eps=(0.0,)),
        independent=True,
    )
    images, labels = (part[:ATTACKED] for part in batch())
    carso.evaluate(
        carso.load("fashion-retrofit", samples=2).to(device), images, labels, eps=EPS, suite=suite,
        samples=1, draws=1, device=device, quiet=True,
    )  # fmt: skip


def certified(device: torch.device) -> None:
    """`carso.certify`: the votes are those of the CPU."""
    images, labels = (part[:2] for part in batch())
    made = [
        carso.certify(
            carso.load("fashion-certified").to(place), images, labels, sigma=0.5, draws=12,
            selection=4, batch=4, device=place,
        )["images"]
        for place in (device, torch.device("cpu"))
    ]  # fmt: skip
    assert made[0] == made[1]


STEPS: dict[str, Callable[[torch.device], None]] = {
    "doctor: forward": self_test.forward,
    "doctor: gradient": self_test.gradient,
    "train a classifier": classifier_trained,
    "fit vae": fitted("vae"),
    "fit unet": fitted("unet"),
    "fit flow": fitted("flow"),
    "harden vae": hardened("fashion-retrofit"),
    "harden unet": hardened("fashion-retrofit-unet"),
    "harden with a guide": hardened("fashion-retrofit-unet", guide=1.0, reconstruct_epochs=0.0),
    "harden in L2": hardened("fashion-retrofit", norm="L2"),
    "harden against noise": hardened("fashion-certified"),
    "evaluate": evaluated,
    "certify": certified,
    **DEPLOYED_STEPS,
}


def main() -> None:
    set_up()
    found = {}
    with pretended() as device, warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for name, step in STEPS.items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            try:
                step(device)
                found[name] = "works"
            except Exception:
                found[name] = traceback.format_exc(limit=-6)
    report({"steps": found, "warnings": [str(one.message) for one in heard]})


if __name__ == "__main__":
    main()
