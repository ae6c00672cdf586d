"""What `carso doctor --tune` measures on a shipped defence, and how to ask for what is faster.

Nothing of it is kept: what decides a result stands in a scenario or on the command line.
"""

from __future__ import annotations

import torch
from torch import nn

from carso import data
from carso.defence.on_disk import Deployed, load
from carso.machine.timing import WORTH, Action, ratio
from carso.randomness import generator

BATCH = 64
HOW = {
    "bfloat16": 'attack_precision = "bfloat16" in the [hardening] of a scenario file',
    "one thread": "--threads 1",
    "contiguous": "defence.classifier.to(memory_format=torch.contiguous_format), in Python",
}
"""How to ask for each alternative."""


def ratios(name: str = "fashion", *, turns: int = 7) -> dict[str, float]:
    """Time of each alternative over the default's, for the gradient that an attack takes."""
    defence, other = load(name, samples=1), load(name, samples=1)
    contiguous(other.classifier)
    shape = (BATCH, *data.facts(defence.scenario.data.set).image_shape)
    images = torch.rand(shape, generator=generator(0, "tuning"))

    def gradient(of: Deployed = defence) -> None:
        point = images.clone().requires_grad_(True)
        of.view("mean-logits")(point).sum().backward()

    def low() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            gradient()

    def alone() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        gradient()
        torch.set_num_threads(before)

    alternatives: dict[str, Action] = {"bfloat16": low}
    if torch.get_num_threads() > 1:
        alternatives["one thread"] = alone
    alternatives["contiguous"] = lambda: gradient(other)
    return {kind: ratio(gradient, how, turns=turns) for kind, how in alternatives.items()}


def contiguous(module: nn.Module) -> None:
    """Lay the module's weights out the other way than `carso.load` does."""
    module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def suggestions(found: dict[str, float]) -> list[str]:
    """A line for each alternative that is worth asking for, which says how."""
    worth = [kind for kind, value in found.items() if value < WORTH]
    lines = [f"{kind} takes {found[kind]:.2f} of the default's time: {HOW[kind]}" for kind in worth]
    return lines or ["the defaults are as fast here as what else there is"]
