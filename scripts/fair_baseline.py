"""The fair baseline of a hardened defence: its classifier with as much adversarial training.

    python scripts/fair_baseline.py RUN OUT [--data DIR] [--rate 0.1]

RUN is a folder with a hardened defence (or a shipped name). Its classifier goes on training on PGD
examples, with the steps, batches, augmentation and number of epochs of the hardening, so that it
gets the same number of gradient passes; each is through the classifier, not the whole defence.
OUT is then evaluated by `carso evaluate OUT --bare`. A stopped run goes on when called again.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch

from carso import files, tensor_files
from carso.deployed import folder_of, stored
from carso.errors import CarsoError
from carso.progress import progress
from carso.scenario import Scenario
from carso.scenario_file import digest
from carso.training import stage
from carso.training.classifier import ClassifierStage
from carso.training.run import finish, load_data
from carso.training_settings import ClassifierTraining, Hardening


def settings(
    hardening: Hardening, scenario: Scenario, *, epochs: int, rate: float
) -> ClassifierTraining:
    """Adversarial training that costs what the hardening did."""
    own = scenario.classifier.training
    if hardening.loss == "trades":
        raise CarsoError('a hardening with loss = "trades" has no counterpart here')
    return ClassifierTraining(
        method="pgd",
        epochs=epochs,
        batch_size=hardening.batch_size,
        learning_rate=rate,
        weight_decay=own.weight_decay if own else 5e-4,
        attack_steps=hardening.attack_steps,
        attack_step_size=hardening.attack_step_size,
        average=hardening.average,
        augment=hardening.augment,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rate", type=float, default=0.1)
    given = parser.parse_args()
    folder = folder_of(given.run)
    found = stored(folder, None, "cpu")
    hardening = found.scenario.hardening
    if hardening is None:
        raise CarsoError(f"{folder} is not hardened")
    record = files.read_json(folder / "hardening.json")
    training = settings(hardening, found.scenario, epochs=len(record["history"]), rate=given.rate)
    data = load_data(found.scenario, given.data)
    if data.fingerprint != record["data"]["fingerprint"]:
        raise CarsoError(f"{folder} was hardened on other images than {data.name} here")
    start = tensor_files.fingerprint(found.classifier.classifier.state_dict())
    network = found.classifier.classifier
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    baseline = ClassifierStage(
        network,
        data,
        training=training,
        threat=found.scenario.threat,
        seed=found.scenario.seed,
        device=torch.device("cpu"),
        identity={
            "stage": "fair baseline",
            "start": start,
            "data": data.fingerprint,
            "settings": digest([str(training), str(found.scenario.threat)]),
        },
    )
    given.out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "defence.json", given.out / "defence.json")
    with progress() as bars:
        history = stage.run(baseline, given.out / "classifier", bars)
    finish(
        given.out,
        baseline,
        baseline.averaged.state_dict(),
        history,
        scenario=found.scenario,
        data=data,
    )
    hardened = sum(row["gradient_passes"] for row in record["history"])
    own = len(history) * len(data.train) * (training.attack_steps + 1)
    print(f"gradient passes: {own} here, {hardened:.0f} in the hardening")


if __name__ == "__main__":
    main()
