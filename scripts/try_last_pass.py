"""Which last pass of the adaptive suite takes most from the weakest images, for as many gradients?

    python scripts/try_last_pass.py OUT [--images 600] [--take 10] [--seeds 2] [--threads 1]

The shipped classifier of `fashion`, validation images. The first attacks of the suite leave some of
them standing; the `--take` weakest of these, with their worst examples, are given to each last
pass. OUT is a JSON of what each leaves of their leads. A pass counts as better if it breaks more of
them, and among equals if their mean lead is smaller.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from records import in_one_line
from torch import Generator, Tensor, nn

from carso import data
from carso.attacks.apgd import APGD
from carso.attacks.attack import Attack, room_for
from carso.attacks.margin import Margin, WorstSoFar
from carso.attacks.probe import Probe
from carso.attacks.refine import Refine
from carso.defence.on_disk import load
from carso.storage import files
from carso.storage.provenance import provenance
from carso.threats.norms import threat_of

LINF = threat_of(norm="Linf", eps=0.1)
PASSES: dict[str, Attack] = {
    "40 steps, 2 targets, 12 shaken starts": Refine(steps=40, targets=2, restarts=12),
    "20 steps, 2 targets, 25 shaken starts": Refine(steps=20, targets=2, restarts=25),
    "80 steps, 2 targets, 6 shaken starts": Refine(steps=80, targets=2, restarts=6),
    "40 steps, 4 targets, 7 shaken starts": Refine(steps=40, targets=4, restarts=7),
    "40 steps, untargeted, 38 shaken starts": Refine(steps=40, targets=0, restarts=38),
    "shaken half as far": Refine(steps=40, targets=2, restarts=12, shake=0.25),
    "shaken all the way": Refine(steps=40, targets=2, restarts=12, shake=1.0),
    "first step twice as long": Refine(steps=40, targets=2, restarts=12, step_share=0.5),
    "targeted APGD-DLR, 100 steps, 2 starts": APGD(
        loss="dlr-targeted", steps=100, targets=9, restarts=2
    ),
}


def weakest(
    model: nn.Module, images: Tensor, labels: Tensor, take: int, source: Generator
) -> tuple[WorstSoFar, Tensor]:
    """The worst examples after the suite's first attacks, and which images stand by least."""
    worst = WorstSoFar(model, images, labels)
    first = (Margin(steps=40), APGD(loss="ce", steps=40), APGD(loss="dlr", steps=40))
    for attack, most in (*((one, len(images)) for one in first), (TARGETED, 4 * take)):
        index = worst.standing
        index = index[worst.margin[index].argsort()[:most]]
        found = attack(model, images[index], labels[index], threat=LINF, generator=source)
        worst.offer(found, index)
    index = worst.standing
    return worst, index[worst.margin[index].argsort()[:take]]


TARGETED = APGD(loss="dlr-targeted", steps=30, targets=9)


def tried(
    attack: Attack, model: nn.Module, worst: WorstSoFar, index: Tensor, seed: int
) -> dict[str, Any]:
    """The leads that one last pass leaves, and what it cost."""
    started, probe = time.perf_counter(), Probe(model)
    more = {"start": worst.examples[index]} if attack.facts.starts else {}
    left = WorstSoFar(model, worst.images[index], worst.labels[index])
    left.offer(worst.examples[index], torch.arange(len(index)))
    with room_for(100):
        found = attack(
            probe, left.images, left.labels, threat=LINF,
            generator=torch.Generator().manual_seed(seed), **more,
        )  # fmt: skip
    left.offer(found, torch.arange(len(index)))
    return {
        "seed": seed,
        "leads": [round(float(lead), 5) for lead in left.margin],
        "broken": int((left.margin < 0).sum()),
        "gradients": probe.backwards / len(index),
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--take", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    split = data.load("fashion-embedded").validation
    images, labels = split.balanced(given.images).batch(slice(None))
    model = load("fashion").classifier.eval()
    worst, index = weakest(model, images, labels, given.take, torch.Generator().manual_seed(0))
    before = [round(float(lead), 5) for lead in worst.margin[index]]
    print(f"{len(worst.standing)} of {len(images)} stand; the weakest by {before}", flush=True)
    found: dict[str, Any] = {"images": given.images, "before": before, "passes": {}}
    for seed in range(given.seeds):
        for name, attack in PASSES.items():
            one = tried(attack, model, worst, index, seed)
            found["passes"].setdefault(name, []).append(one)
            print(f"{name}, seed {seed}: {one}", flush=True)
            files.write_json(given.out, {**found, "provenance": provenance()})


if __name__ == "__main__":
    in_one_line(main)
