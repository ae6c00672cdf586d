"""How time and memory of a prediction and of a gradient grow, one thing at a time.

With the number of candidates, the batch, the side of the images, and the number of layers that the
purifier reads; each over the first of its row, measured in turns. Memory is the growth of the
largest resident size of a process of its own.

    python benchmarks/growth.py [--scenario fashion] [--turns 3] [--json]
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, replace

import torch
from measuring import asked, in_own_process, memory_growth
from synthetic import random_images

from carso.classifiers import registry
from carso.classifiers.frozen import freeze
from carso.defence.around import purifier_around
from carso.defence.defence import Carso
from carso.machine.timing import seconds
from carso.scenario import parser


@dataclass(frozen=True)
class Setting:
    """What a prediction is made with."""

    samples: int = 8
    batch: int = 16
    side: int = 32
    layers: int = 8


ROWS = {
    "samples": (1, 2, 4, 8, 16),
    "batch": (4, 8, 16, 32),
    "side": (16, 32, 64),
    "layers": (1, 2, 4, 8),
}
ACTIONS = ("prediction", "gradient")


class AttackedModel:
    """A defence with random weights, and images for it."""

    def __init__(self, name: str, setting: Setting) -> None:
        scenario = parser.read(name)
        shape = (3, setting.side, setting.side)
        data = random_images("cifar10", shape=shape, count=10)
        network = registry.placed(
            freeze(registry.build(scenario.classifier, data)), torch.device("cpu")
        )
        purifier = purifier_around(
            network,
            shape,
            layers=registry.layers_of(scenario.classifier)[: setting.layers],
            condition=scenario.purifier.own.condition,
            latent=scenario.purifier.own.latent,
            decoder_width=scenario.purifier.own.decoder_width,
        )
        self.defence = Carso(network, purifier.deployed(), samples=setting.samples)
        self.images = torch.rand(setting.batch, *shape)

    def prediction(self) -> None:
        self.defence.predict(self.images)

    def gradient(self) -> None:
        point = self.images.clone().requires_grad_(True)
        self.defence.view("mean-logits")(point).sum().backward()


def grown(name: str, row: str, turns: int) -> list[dict[str, float]]:
    """Seconds (the median over turns) and memory at each value of one thing."""
    settings = [replace(Setting(), **{row: value}) for value in ROWS[row]]
    subjects = [AttackedModel(name, setting) for setting in settings]
    found: list[dict[str, float]] = []
    for action in ACTIONS:
        for subject in subjects:
            getattr(subject, action)()
    times = {
        action: [[seconds(getattr(s, action)) for s in subjects] for _ in range(turns)]
        for action in ACTIONS
    }
    for place, value in enumerate(ROWS[row]):
        entry: dict[str, float] = {row: value}
        for action in ACTIONS:
            entry[f"{action}_time"] = statistics.median(
                turn[place] / turn[0] for turn in times[action]
            )
            entry[f"{action}_mib"] = in_own_process(__file__, name, row, value, action)
        found.append(entry)
    return found


def memory_of(name: str, row: str, value: str, action: str) -> float:
    AttackedModel(name, Setting(samples=1, batch=2)).prediction()  # libraries load before it counts
    subject = AttackedModel(name, replace(Setting(), **{row: int(value)}))
    return memory_growth(getattr(subject, action))


def main() -> None:
    options = asked(__doc__, scenario="fashion", turns=3, memory_words=4)
    if options.memory_of:
        print(memory_of(*options.memory_of))
        return
    found = {row: grown(options.scenario, row, options.turns) for row in ROWS}
    if options.json:
        print(json.dumps({"scenario": options.scenario, "rows": found}, indent=1))
        return
    for row, entries in found.items():
        for entry in entries:
            cells = [f"{a} {entry[f'{a}_time']:.2f}x {entry[f'{a}_mib']:.0f} MiB" for a in ACTIONS]
            print(f"{row} = {entry[row]:<4g}  {'   '.join(cells)}")


if __name__ == "__main__":
    main()
