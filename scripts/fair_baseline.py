"""The fair baseline of a hardened defence: its classifier with as much adversarial training.

    python scripts/fair_baseline.py RUN OUT [--data DIR] [--rate 0.025] [--by-time] [--before RUN]
        [--precision bf16-mixed] [--classifier FILE] [--compile]

RUN is a folder with a hardened defence (or a shipped name). Its classifier goes on training on PGD
examples of 4 steps, as `fashion` was trained, with the hardening's augmentation and batches and
at least its number of gradient passes; each is through the classifier, not the whole defence. The
epoch is chosen in the same way: the one that stands best under the attack on validation images.
A pass through the classifier alone is cheaper; `--by-time` gives it as many epochs as take the time
of the hardening, by steps of both that are timed in turns before it begins (kept in OUT/time.json).
`--epochs` gives it so many. Where the hardening began from another, `--before` counts the passes of
that as well: its run, or its JSON in docs/results/trials; it may be given more than once.
`--classifier` is the file of a classifier that its defence does not hold. `--precision bf16-mixed`
trains in bfloat16, as hardening attacks where that is faster; `--compile` trains the network as
torch.compile makes it, which wants a C++ compiler and is a third faster for a ResNet-20.
(With the two large steps that hardening takes, a classifier learns to hide its gradients from them:
see the lab log.) OUT is then evaluated by `carso evaluate OUT --bare`. A stopped run goes on when
called again.
"""

from __future__ import annotations

import argparse
import copy
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from records import in_one_line
from torch import Tensor

from carso.classifiers.brought import load_classifier
from carso.data import ImageData
from carso.defence.on_disk import Stored, stored
from carso.defence.shipped import folder_of
from carso.distributed.launchers import PRECISIONS
from carso.distributed.processes import Processes
from carso.errors import CarsoError
from carso.machine.progress import progress
from carso.machine.timing import ratio
from carso.randomness import generator
from carso.scenario.classifier_training_settings import ClassifierTrainingSettings
from carso.scenario.hardening_settings import HardeningSettings
from carso.scenario.schema import Scenario
from carso.scenario.tables import distinct
from carso.storage import files, tensor_files
from carso.storage.provenance import provenance
from carso.training import loop
from carso.training.accuracies import accuracy_under_pgd
from carso.training.classifier_stage import ClassifierStage
from carso.training.hardening import HardeningStage
from carso.training.loop import Row
from carso.training.run_files import finish
from carso.training.scenario_stages import hardening_stage
from carso.training.train import load_data
from carso.training.validation_attack import VALIDATION_ATTACK

CPU = torch.device("cpu")
STEPS = 4
STEP_SIZE = 0.4
"""In units of eps."""
TURNS = 15
"""Of a step of the hardening and one of the baseline, where they are timed."""


def settings(
    hardening: HardeningSettings,
    scenario: Scenario,
    *,
    passes: float,
    images: int,
    rate: float,
    epochs: int = 0,
) -> ClassifierTrainingSettings:
    """Adversarial training that takes at least as many gradient passes as the hardening did, or so
    many `epochs`."""
    own = scenario.classifier.training
    return ClassifierTrainingSettings(
        method="pgd",
        epochs=epochs or math.ceil(passes / (images * (STEPS + 1))),
        batch_size=hardening.batch_size,
        learning_rate=rate,
        weight_decay=own.weight_decay if own else 5e-4,
        attack_steps=STEPS,
        attack_step_size=STEP_SIZE * scenario.threat.eps,
        average=own.average if own else 0.998,
        augment=hardening.augment,
    )


class Baseline(ClassifierStage):
    """Keeps the epoch that stands best on validation images, as hardening does."""

    def __init__(self, *given: Any, validation_images: int, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.validation_images = validation_images
        self.best: dict[str, Tensor] = {}
        self.best_accuracy = -1.0

    def validate(self) -> Row:
        found = accuracy_under_pgd(
            self.averaged,
            self.data.validation.balanced(self.validation_images),
            self.device,
            threat=self.threat,
            source=generator(self.seed, self.name, "validation"),
            attack=VALIDATION_ATTACK,
        )
        if found >= self.best_accuracy:
            self.best_accuracy = found
            self.best = {k: v.clone() for k, v in self.averaged.state_dict().items()}
        return {**super().validate(), "validation_adaptive_accuracy": found}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "best": self.best, "best_accuracy": self.best_accuracy}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.best, self.best_accuracy = dict(state["best"]), state["best_accuracy"]


def earlier(name: str) -> dict[str, Any]:
    """The record of a hardening that another began from."""
    own = Path(name)
    found: dict[str, Any] = files.read_json(
        own if own.is_file() else folder_of(name) / "hardening.json"
    )
    return found


def passes_of(record: dict[str, Any]) -> float:
    """The gradient passes of a hardening."""
    return sum(float(row["gradient_passes"]) for row in record["history"])


def step_over_step(stage: HardeningStage, baseline: Baseline) -> float:
    """The time of a step of the hardening over that of one of the baseline, in turns."""
    images, labels = stage.data.train.batch(slice(stage.hardening.batch_size))
    source = generator(stage.seed, "timing")
    return ratio(
        lambda: baseline.update(images, labels, source),
        lambda: stage.update(images, labels, source),
        turns=TURNS,
    )


def under_way(found: Stored, data: ImageData, precision: str) -> HardeningStage:
    """The hardening of a defence as most of its steps are: nothing grows, all is painted."""
    assert found.scenario.hardening is not None
    steady = replace(
        found.scenario.hardening,
        start="scratch",
        eps_epochs=0.0,
        reconstruct_epochs=0.0,
        guide_epochs=0.0,
        unpainted_epochs=0.0,
        attack_precision=precision,
    )
    return hardening_stage(
        replace(found.scenario, hardening=steady), data, found.classifier, CPU, start=None
    )


def epochs_by_time(
    found: Stored, data: ImageData, record: dict[str, Any], baseline: Baseline, kept: Path
) -> int:
    """The epochs of a baseline that take as long as those of the hardening in `record`. Measured
    once, so that a run that goes on has as many; what it is measured on is spent."""
    if not kept.exists():
        precision = record["identity"].get("attacks", "float32")
        over = step_over_step(under_way(found, data, precision), baseline)
        files.write_json(
            kept,
            {
                "hardening_epochs": len(record["history"]),
                "step_over_step": over,
                "turns": TURNS,
                "provenance": provenance(),
            },
        )
    timed = files.read_json(kept)
    return math.ceil(timed["hardening_epochs"] * timed["step_over_step"])


def new_baseline(
    found: Stored, data: ImageData, training: ClassifierTrainingSettings, precision: str
) -> Baseline:
    """The training of a copy of the classifier, at its very start."""
    network = copy.deepcopy(found.classifier.classifier)
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    threat, hardening = found.scenario.threat, found.scenario.hardening
    assert hardening is not None
    return Baseline(
        network,
        data,
        training=training,
        threat=threat,
        seed=found.scenario.seed,
        validation_images=hardening.validation_images,
        device=CPU,
        identity={
            "stage": "fair baseline",
            "start": tensor_files.fingerprint(network.state_dict()),
            "data": data.fingerprint,
            "settings": {"training": distinct(training), "threat": distinct(threat)},
            **({} if precision == "32-true" else {"precision": precision}),
        },
        processes=Processes(precision=precision),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rate", type=float, default=0.025)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--by-time", action="store_true")
    parser.add_argument("--before", action="append", default=[])
    parser.add_argument("--classifier", type=Path)
    parser.add_argument("--precision", choices=PRECISIONS, default="32-true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.by_time and (given.epochs or given.before):
        raise CarsoError("--by-time counts the epochs itself: leave out --epochs and --before")
    folder = folder_of(given.run)
    found = stored(folder, load_classifier(given.classifier) if given.classifier else None, CPU)
    hardening = found.scenario.hardening
    if hardening is None:
        raise CarsoError(f"{folder} is not hardened")
    record = files.read_json(folder / "hardening.json")
    hardened = passes_of(record) + sum(passes_of(earlier(name)) for name in given.before)
    data = load_data(found.scenario, given.data)
    if data.fingerprint != record["data"]["fingerprint"]:
        raise CarsoError(f"{folder} was hardened on other images than {data.name} here")
    training = settings(
        hardening,
        found.scenario,
        passes=hardened,
        images=len(data.train),
        rate=given.rate,
        epochs=given.epochs,
    )
    if given.by_time:
        timed = new_baseline(found, data, training, given.precision)
        epochs = epochs_by_time(found, data, record, timed, given.out / "time.json")
        training = replace(training, epochs=epochs)
    baseline = new_baseline(found, data, training, given.precision)
    if given.compile:
        baseline.classifier.compile(dynamic=False)
    with progress() as bars:
        history = loop.run(baseline, given.out / "classifier", bars)
    shutil.copyfile(folder / "defence.json", given.out / "defence.json")
    finish(given.out, baseline, baseline.best, history, scenario=found.scenario, data=data)
    own = len(history) * len(data.train) * (training.attack_steps + 1)
    print(f"gradient passes: {own} here, {hardened:.0f} in the hardening")


if __name__ == "__main__":
    in_one_line(main)
