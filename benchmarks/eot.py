"""What a gradient over 20 draws of the defence's noise costs, and the memory that it takes.

Three ways, measured in turns: one representation pass shared by all draws
(`View.gradient_over_draws`), 20 separate passes, and `pyautoattack`'s loop (`eot_iter=20`).
All sum the same losses. A draw is one candidate, or the defence's own number of them.

    python benchmarks/eot.py [--batch 16] [--draws 20]
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from measuring import asked, in_own_process, memory_growth
from pyautoattack.autopgd_base import APGDAttack

import carso
from carso import data
from carso.machine.many_draws import sum_of_gradients
from carso.machine.timing import seconds

WAYS = ("shared", "separate", "pyautoattack")


def actions(batch: int, draws: int, samples: int) -> dict[str, Callable[[], object]]:
    """One step of an attack, three ways."""
    defence = carso.load("fashion")
    images, labels = data.load("fashion-embedded").test.balanced(batch).batch(slice(None))
    single = defence.view("mean-logits", samples=samples)
    loss = partial(F.cross_entropy, target=labels, reduction="sum")
    attack = APGDAttack(single, n_iter=1, eps=0.1, eot_iter=draws, device="cpu")
    attack.init_hyperparam(images)
    return {
        "shared": lambda: single.gradient_over_draws(images, loss, draws),
        "separate": lambda: sum_of_gradients(single, images, loss, draws),
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
