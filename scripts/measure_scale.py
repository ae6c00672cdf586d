"""How much computing and memory each scenario takes, counted without doing it.

    python scripts/measure_scale.py docs/results/scale.json

Operations are counted by torch on tensors without storage, for one image, at full size. A
multiply-add counts as two operations. What an evaluation takes is the number of candidates that
its attacks put through the defence: by the definition of AutoAttack, and of our adaptive suite as
it was counted in the record of `fashion`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from records import RESULTS, in_one_line, record
from torch import Generator, Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from carso.classifiers import registry
from carso.classifiers.frozen import freeze
from carso.defence.on_disk import purifier_of
from carso.defence.representation import Representation
from carso.purifiers.reconstruction import reconstruction_cost
from carso.purifiers.vae.loss import kl_to_prior
from carso.scenario.parser import read
from carso.storage import files
from carso.storage.provenance import provenance

SCENARIOS: dict[str, tuple[tuple[int, int, int], int, int]] = {
    "fashion": ((1, 28, 28), 10, 60_000),
    "cifar10-small": ((3, 32, 32), 10, 50_000),
    "cifar10": ((3, 32, 32), 10, 50_000),
    "cifar100": ((3, 32, 32), 100, 50_000),
    "tinyimagenet": ((3, 64, 64), 200, 100_000),
}
"""Image shape, classes, published training images, of which `carso` holds a tenth out."""
HELD_OUT = 0.1
IMAGES = 2
"""Counted together, and divided by: batch norm wants more than one."""
TEST_IMAGES = 10_000
AUTOATTACK = {"attacks": 2, "steps": 100, "eot": 20}
"""AutoAttack rand: APGD on two losses."""


def counted(work: Callable[[], Any]) -> float:
    """Operations per image."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops() / IMAGES


def saved(work: Callable[[], Any], known: set[int]) -> float:
    """Bytes per image that a pass keeps for its way back, without the weights."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = work()
    del result
    return sum(kept.values()) / IMAGES


def measure(name: str) -> dict[str, Any]:
    """All that can be counted of one scenario."""
    shape, classes, published = SCENARIOS[name]
    training_images = round(published * (1 - HELD_OUT))
    scenario = read(name)
    statistics = {"mean": (0.5,) * shape[0], "std": (0.25,) * shape[0]}
    with torch.device("meta"):
        network = registry.wide_resnet(
            scenario.classifier, classes=classes, channels=shape[0], **statistics
        )
        classifier = freeze(network)
        purifier = purifier_of(scenario, classifier, shape, **statistics)
        images = torch.rand(IMAGES, *shape)
    source = Generator()
    representation = Representation(classifier, purifier.layers)
    activations = representation(images, gradients=False)

    def attack_classifier() -> None:
        point = images.clone().requires_grad_(True)
        classifier(point).sum().backward()

    def loss() -> Tensor:
        result = purifier.reconstruct(images, activations, source)
        cost = reconstruction_cost(result.logits, images).sum()
        return cost + kl_to_prior(result.mean, result.logvar).sum()

    def attack_defence(samples: int) -> Callable[[], None]:
        def work() -> None:
            point = images.clone().requires_grad_(True)
            candidates = purifier.sample(representation(point), samples, source)
            classifier(candidates.flatten(0, 1)).sum().backward()

        return work

    def harden() -> None:
        with torch.no_grad():
            seen = representation(images)
        classifier(purifier.sample(seen, 1, source).flatten(0, 1)).sum().backward()

    attacks, training = scenario.purifier.attacks, scenario.purifier.training
    hardening = scenario.hardening or read(name, preset="hardened").hardening
    assert attacks is not None
    assert training is not None
    assert hardening is not None
    samples = scenario.defence.samples
    learning = sum(p.numel() for p in purifier.parameters())
    weights = {p.untyped_storage()._cdata for p in purifier.parameters()}
    activation_bytes = saved(loss, weights)
    forward = counted(lambda: classifier(images))
    one_attack = counted(attack_classifier)
    step = counted(lambda: loss().backward())  # type: ignore[no-untyped-call]
    hardening_step = counted(harden)
    known = weights | {p.untyped_storage()._cdata for p in network.state_dict().values()}

    def candidate() -> Tensor:
        point = images.clone().requires_grad_(True)
        return classifier(purifier.sample(representation(point), 1, source).flatten(0, 1))

    purifier.requires_grad_(False)  # an attack moves the image only
    attack_bytes = saved(candidate, known)
    gradients = {n: counted(attack_defence(n)) for n in (1, 2, samples)}
    per_image_bank = (2 * attacks.steps + 2) * one_attack
    return {
        "classifier": {
            "parameters": sum(p.numel() for p in network.parameters()),
            "forward": forward,
            "gradient": one_attack,
        },
        "purifier": {
            "parameters": learning,
            "layers": len(purifier.layers),
            "step": step,
            "activation_bytes": activation_bytes,
            "activations_read_bytes": sum(a.nbytes for a in activations) / IMAGES,
        },
        "defence": {"samples": samples, "gradient": {str(n): v for n, v in gradients.items()}},
        "training": {
            "images": training_images,
            "published_images": published,
            "keeps_bank": attacks.bank != "off",
            "epochs": training.epochs,
            "batch_size": training.batch_size,
            "bank": training_images * per_image_bank,
            "bank_bytes": 4 * training_images * torch.Size(shape).numel(),
            "made_anew": training.epochs * training_images * attacks.fraction * per_image_bank / 4,
            "purifier": training.epochs * training_images * (forward + step),
            # weights, gradients, two moments of RAdam, the slow weights of Lookahead
            "state_bytes": 4 * (5 * learning + sum(p.numel() for p in network.parameters())),
        },
        "hardening": {
            "epochs": hardening.epochs,
            "attack_steps": hardening.attack_steps,
            "step": hardening_step,
            "activation_bytes": attack_bytes,
            "whole": hardening.epochs
            * training_images
            * (hardening.attack_steps * gradients[1] + hardening_step),
        },
        "evaluation": {
            "randaa": TEST_IMAGES * passes_of_randaa() * gradients[samples],
            "adaptive": TEST_IMAGES * adaptive_work(gradients[1], gradients[2]),
        },
    }


def passes_of_randaa() -> int:
    """Gradients of the defence with all its candidates that AutoAttack rand takes for an image."""
    return AUTOATTACK["attacks"] * AUTOATTACK["steps"] * AUTOATTACK["eot"]


def passes_of_adaptive() -> dict[int, float]:
    """By the number of candidates, the gradients that the adaptive suite took for an image of
    `fashion`; those of the classifier alone, which cost least, are counted as of one candidate."""
    found = record(RESULTS / "fashion-adaptive.json")
    passes = {1: 0.0, 2: 0.0}
    for attack in found["attacks"]:
        if attack["passes"]["backward"]:
            many = re.search(r"(\d+) candidates?", attack["through"])
            candidates = int(many[1]) if many else 1
            passes[candidates] += attack["passes"]["backward"] / found["data"]["count"]
    return passes


def adaptive_work(one: float, two: float) -> float:
    """Operations of the suite for an image; queries without a gradient are left out."""
    passes = passes_of_adaptive()
    return passes[1] * one + passes[2] * two


def standing() -> float:
    """The share of images that the suite's first attack left standing."""
    found = record(RESULTS / "fashion-adaptive.json")
    return float(found["attacks"][1]["attacked"] / found["data"]["count"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    files.write_json(
        given.out,
        {
            "scenarios": {name: measure(name) for name in SCENARIOS},
            "test_images": TEST_IMAGES,
            "adaptive_gradients_per_image": {str(n): v for n, v in passes_of_adaptive().items()},
            "standing_after_the_first": standing(),
            "randaa_gradients_per_image": passes_of_randaa(),
            "provenance": provenance(),
        },
    )


if __name__ == "__main__":
    in_one_line(main)
