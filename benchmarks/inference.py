"""What a prediction costs, against the sum of its parts, and the memory that it takes.

The parts, measured apart and in turns with the whole: N + 1 classifier passes, one conditioning,
N decodings. Memory is the growth of the largest resident size of a process of its own.

    python benchmarks/inference.py [--scenario cifar10-small] [--batch 32] [--samples 8]
"""

from __future__ import annotations

import json
import statistics

import torch
from measuring import asked, in_own_process, memory_growth
from synthetic import random_images

from carso.classifiers import registry
from carso.classifiers.frozen import freeze
from carso.defence.defence import Carso
from carso.defence.on_disk import purifier_of
from carso.machine.timing import seconds
from carso.purifiers.vae.vae import VAEPurifier
from carso.scenario import parser

CPU = torch.device("cpu")
CHUNK = 32
"""Candidates at once, where the memory is measured with chunks."""


def defence_of(name: str, samples: int) -> Carso:
    scenario = parser.read(name)
    data = random_images(scenario.data.set, shape=(3, 32, 32), count=10)
    classifier = registry.placed(freeze(registry.build(scenario.classifier, data)), CPU)
    purifier = purifier_of(scenario, classifier, data.image_shape)
    return Carso(classifier, purifier.deployed(), samples=samples)


@torch.no_grad()
def ratio(name: str, batch: int, samples: int, turns: int) -> float:
    """The whole over the sum of its parts: the median over turns."""
    defence = defence_of(name, samples)
    purifier = defence.purifier
    assert isinstance(purifier, VAEPurifier)
    images = torch.rand(batch, 3, 32, 32)
    activations = defence.representation(images)
    condition = purifier.conditioning(activations)
    repeated = condition.repeat(samples, 1)
    noise = torch.randn(samples * batch, purifier.latent)
    candidates = purifier.decoder(noise, repeated)
    parts = (
        lambda: defence.classifier(images),
        lambda: purifier.conditioning(activations),
        lambda: purifier.decoder(noise, repeated),
        lambda: defence.classifier(candidates),
    )
    for action in (*parts, lambda: defence(images)):
        action()
    return statistics.median(
        seconds(lambda: defence(images)) / sum(seconds(part) for part in parts)
        for _ in range(turns)
    )


def memory_of(name: str, batch: int, samples: int, gradient: bool, chunked: bool) -> float:
    defence = defence_of(name, samples)
    defence.max_batch = CHUNK if chunked else None
    images = torch.rand(batch, 3, 32, 32)
    defence.predict(images[:1])  # libraries load before the count begins

    def action() -> None:
        if gradient:
            images.requires_grad_(True)
            defence.view("mean-logits")(images).sum().backward()
        else:
            defence.predict(images)

    return memory_growth(action)


def main() -> None:
    options = asked(
        __doc__, scenario="cifar10-small", batch=32, samples=8, turns=15, memory_words=5
    )
    if options.memory_of:
        name, *numbers = options.memory_of
        batch, samples, gradient, chunked = (int(word) for word in numbers)
        print(memory_of(name, batch, samples, bool(gradient), bool(chunked)))
        return
    found = {
        "time_over_parts": ratio(options.scenario, options.batch, options.samples, options.turns)
    }
    for gradient in (False, True):
        for chunked in (False, True):
            key = f"{'gradient' if gradient else 'prediction'}_{'chunked' if chunked else 'whole'}"
            numbers = (options.batch, options.samples, int(gradient), int(chunked))
            found[f"{key}_mib"] = in_own_process(__file__, options.scenario, *numbers)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"scenario {options.scenario}, {options.batch} images, N = {options.samples}")
    print(f"time, a multiple of the sum of the parts   {found['time_over_parts']:.3f}")
    for what in ("prediction", "gradient"):
        whole, parts = found[f"{what}_whole_mib"], found[f"{what}_chunked_mib"]
        print(f"peak memory of a {what:10}  whole {whole:7.0f} MiB, chunks of {CHUNK} {parts:7.0f}")


if __name__ == "__main__":
    main()
