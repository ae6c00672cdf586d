"""What a training epoch of the purifier costs, against the least that it could cost.

The floor of a step is one pass of the frozen classifier plus one update of the purifier on
activations that are there already, both measured apart in the same run, in turns with the real
step. Then the same step with PGD-40 made anew, as the paper does it.

    python benchmarks/train_step.py [--scenario cifar10-small] [--steps 12] [--threads 1]
"""

from __future__ import annotations

import dataclasses
import json
import statistics

import torch
from measuring import asked
from synthetic import random_images

from carso.classifiers import registry
from carso.classifiers.frozen import freeze
from carso.machine.timing import seconds
from carso.randomness import generator, seeded
from carso.scenario import parser
from carso.scenario.schema import Scenario
from carso.training.bank import Bank
from carso.training.bank_layout import CHUNK
from carso.training.purifier_stage import PurifierStage
from carso.training.scenario_stages import purifier_stage

CPU = torch.device("cpu")
PAPER = {"steps": 40, "step_size": 0.01}
"""The attacks of the paper."""


def stage_of(scenario: Scenario, count: int) -> PurifierStage:
    data = random_images(scenario.data.set, shape=(3, 32, 32), count=count)
    with seeded(0, "benchmark"):
        classifier = registry.placed(freeze(registry.build(scenario.classifier, data)), CPU)
    return purifier_stage(scenario, data, classifier, CPU)


def with_bank(scenario: Scenario, bank: str, **changes: float) -> Scenario:
    attacks = dataclasses.replace(scenario.purifier.attacks, bank=bank, **changes)
    return dataclasses.replace(
        scenario, purifier=dataclasses.replace(scenario.purifier, attacks=attacks)
    )


def measure(name: str, steps: int, batch: int = 0) -> dict[str, float]:
    scenario = parser.read(name)
    batch = batch or scenario.purifier.training.batch_size
    training = dataclasses.replace(scenario.purifier.training, batch_size=batch)
    scenario = dataclasses.replace(
        scenario, purifier=dataclasses.replace(scenario.purifier, training=training)
    )
    stage = stage_of(with_bank(scenario, "memory"), batch)
    layout = stage.batches.layout()
    shape = (layout.chunks * CHUNK, *stage.data.train.images.shape[1:])
    differences = torch.randint(-127, 128, shape, dtype=torch.int8)  # their making is apart
    stage.batches.bank = Bank(layout, [differences], 0.0)
    anew = stage_of(with_bank(scenario, "off", **PAPER), batch)
    images, _ = stage.data.train.batch(slice(0, batch))
    activations = stage.representation(images, gradients=False)
    source = generator(0, "benchmark")

    def classifier_pass() -> None:
        with torch.no_grad():
            stage.classifier(images)

    def purifier_update() -> None:
        stage.purifier.train()
        stage.learn(images, images, activations, 1.0, source)

    def epoch() -> None:  # of one batch: all that an epoch does with it
        stage.pass_over_images(0, lambda: None)

    def epoch_anew() -> None:
        anew.pass_over_images(0, lambda: None)

    for action in (classifier_pass, purifier_update, epoch):
        action()
    turns = [
        (seconds(classifier_pass) + seconds(purifier_update), seconds(epoch)) for _ in range(steps)
    ]
    beside = [(seconds(epoch), seconds(epoch_anew)) for _ in range(3)]
    floor, real = (statistics.median(column) for column in zip(*turns, strict=True))
    ratios = [real / floor for floor, real in turns]
    return {
        "batch": batch,
        "floor_seconds": floor,
        "with_bank_seconds": real,
        "regenerating_seconds": statistics.median(anew for _, anew in beside),
        "with_bank_over_floor": statistics.median(ratios),
        "regenerating_over_with_bank": statistics.median(anew / bank for bank, anew in beside),
    }


def main() -> None:
    options = asked(__doc__, scenario="cifar10-small", steps=12, batch=0)  # 0: its own
    found = measure(options.scenario, options.steps, options.batch)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"scenario {options.scenario}, batches of {found['batch']}, {options.steps} turns")
    print(f"with the bank, a multiple of the floor    {found['with_bank_over_floor']:.3f}")
    print(f"PGD made anew costs as many times that    {found['regenerating_over_with_bank']:.1f}")


if __name__ == "__main__":
    main()
