"""What a gradient over 20 draws of the defence's noise costs, and the memory that it takes.

Three ways, measured in turns: one representation pass shared by all draws (`view(draws=20)`), 20
separate passes, and the loop inside `pyautoattack` (`eot_iter=20`). A draw is either one candidate
(what the adaptive attacks take) or the defence's own number of candidates.

    python benchmarks/eot.py [--batch 16] [--draws 20]
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measuring import asked, in_own_process, memory_growth
from pyautoattack.autopgd_base import APGDAttack

import carso
from carso import data
from carso.machine.timing import seconds

WAYS = ("shared", "separate", "pyautoattack")


def actions(batch: int, draws: int, samples: int) -> dict[str, Callable[[], object]]:
    """One step of an attack, three ways."""
    defence = carso.load("fashion")
    images, labels = data.load("fashion-embedded").test.balanced(batch).batch(slice(None))
    shared = defence.view("mean-logits", draws=draws, samples=samples)
    single = defence.view("mean-logits", samples=samples)

    def gradient(model: torch.nn.Module) -> torch.Tensor:
        point = images.clone().requires_grad_(True)
        loss = F.cross_entropy(model(point), labels, reduction="sum")
        return torch.autograd.grad(loss, point)[0]

    attack = APGDAttack(single, n_iter=1, eps=0.1, eot_iter=draws, device="cpu")
    attack.init_hyperparam(images)
    return {
        "shared": lambda: gradient(shared),
        "separate": lambda: sum(gradient(single) for _ in range(draws)),
        "pyautoattack": lambda: attack.attack_single_run(images, labels),  # two such gradients
    }


def times(batch: int, draws: int, samples: int, turns: int) -> dict[str, float]:
    """Seconds of each way: the median over turns."""
    ways = actions(batch, draws, samples)
    ways["shared"]()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, action in ways.items():
            found[name].append(seconds(action) / (2 if name == "pyautoattack" else 1))
    return {name: statistics.median(values) for name, values in found.items()}


def measured(batch: int, draws: int, samples: int, turns: int) -> dict[str, float]:
    taken = times(batch, draws, samples, turns)
    return {
        "shared_over_separate": taken["shared"] / taken["separate"],
        "shared_over_pyautoattack": taken["shared"] / taken["pyautoattack"],
        **{f"{way}_mib": in_own_process(__file__, way, batch, draws, samples) for way in WAYS},
    }


def main() -> None:
    options = asked(__doc__, batch=16, draws=20, turns=5, memory_words=4)
    if options.memory_of:
        way, *numbers = options.memory_of
        batch, draws, samples = (int(word) for word in numbers)
        ways = actions(batch, draws, samples)
        actions(1, 1, 1)["shared"]()  # libraries load before the count begins
        print(memory_growth(ways[way]))
        return
    sizes = {"one_candidate": 1, "eight_candidates": 8}
    found = {
        name: measured(options.batch, options.draws, samples, options.turns)
        for name, samples in sizes.items()
    }
    if options.json:
        print(json.dumps({"batch": options.batch, "draws": options.draws, **found}, indent=1))
        return
    for name, values in found.items():
        print(f"{options.batch} images, {options.draws} draws of {name.replace('_', ' ')}")
        print(f"  time over separate passes       {values['shared_over_separate']:.3f}")
        print(f"  time over pyautoattack's loop   {values['shared_over_pyautoattack']:.3f}")
        for way in WAYS:
            print(f"  peak memory, {way:13} {values[f'{way}_mib']:7.0f} MiB")


if __name__ == "__main__":
    main()
