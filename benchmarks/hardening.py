"""What a step of hardening costs: its attack, its update, and the attack in bfloat16.

Measured in turns on one batch of the shipped classifier's images. The floor is what the step must
compute: as many gradients through the whole defence as the attack has steps, and one forward and
backward pass for the purifier's weights.

    python benchmarks/hardening.py [--scenario fashion] [--batch 64] [--turns 9] [--json]
"""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

import torch
from measuring import asked

from carso import data
from carso.attacks.pgd import cross_entropy_gradient
from carso.defence.on_disk import stored
from carso.defence.shipped import folder_of
from carso.machine.timing import seconds
from carso.randomness import generator
from carso.scenario import parser
from carso.training.hardening import HardeningStage
from carso.training.scenario_stages import hardening_stage


def new_stage(name: str, precision: str) -> HardeningStage:
    scenario = parser.read(name)
    assert scenario.hardening is not None
    hardening = replace(scenario.hardening, attack_precision=precision, eps_epochs=0.0)
    images = data.load("fashion-embedded")
    classifier = stored(folder_of(name), None, "cpu").classifier
    scenario = replace(scenario, hardening=replace(hardening, start="scratch"))
    return hardening_stage(scenario, images, classifier, torch.device("cpu"), start=None)


def measured(name: str, batch: int, turns: int) -> dict[str, float]:
    plain, low = new_stage(name, "float32"), new_stage(name, "bfloat16")
    images, labels = plain.data.train.batch(slice(0, batch))
    source = generator(0, "benchmark")
    attacked = plain.attacked(images, labels, source)

    def learn() -> None:
        plain.purifier.requires_grad_(True).train()
        loss, cost, _ = plain.loss(images, attacked, labels)
        (loss + plain.hardening.reconstruction * cost).backward()

    def gradients() -> None:
        plain.purifier.requires_grad_(False).eval()
        view = plain.defence.view("mean-logits")
        for _ in range(plain.hardening.attack_steps):
            cross_entropy_gradient(view, images, labels)

    actions = {  # in this order, so that what is compared stands side by side
        "gradients": gradients,
        "learn": learn,
        "step": lambda: plain.update(images, labels, source),
        "attack": lambda: plain.attacked(images, labels, source),
        "attack_bfloat16": lambda: low.attacked(images, labels, source),
    }
    for action in actions.values():
        action()
    found: dict[str, list[float]] = {key: [] for key in actions}
    for _ in range(turns):
        for key, action in actions.items():
            found[key].append(seconds(action))

    def ratio(one: str, *others: str) -> float:
        """The time of one over that of others, turn by turn: the median."""
        over = (sum(turn) for turn in zip(*(found[key] for key in others), strict=True))
        return statistics.median(a / b for a, b in zip(found[one], over, strict=True))

    return {
        "images_per_second": batch / statistics.median(found["step"]),
        "step_over_floor": ratio("step", "gradients", "learn"),
        "attack_over_step": ratio("attack", "step"),
        "bfloat16_over_float32": ratio("attack_bfloat16", "attack"),
    }


def main() -> None:
    options = asked(__doc__, scenario="fashion", batch=64, turns=9)
    found = measured(options.scenario, options.batch, options.turns)
    if options.json:
        print(json.dumps({"scenario": options.scenario, "batch": options.batch, **found}, indent=1))
        return
    print(f"{options.scenario}, {options.batch} images a step")
    print(f"  images per second                {found['images_per_second']:.0f}")
    print(f"  a step over its floor            {found['step_over_floor']:.3f}")
    print(f"  its attack, share of the step    {found['attack_over_step']:.3f}")
    print(f"  attack in bfloat16 over float32  {found['bfloat16_over_float32']:.3f}")


if __name__ == "__main__":
    main()
