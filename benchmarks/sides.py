"""What a training step of each purifier takes as images grow: parameters, peak memory, time.

Around a ResNet-20 for images of that side, with random weights. A step is that of the paper's
stage: activations of a batch, the purifier's loss, its gradients. Time is the processor's, of all
threads. Memory is by how much the largest resident size of a process of its own grows beyond a step
at side 16. Where the weights alone would not fit, they are counted without being
made, and there is no step.

    python benchmarks/sides.py [--turns 2] [--json]
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import torch
from measuring import asked, in_own_process, memory_growth, processor_seconds
from torch import Generator

from carso.classifiers.frozen import freeze
from carso.classifiers.resnet import SmallResNet
from carso.defence.around import purifier_around
from carso.defence.representation import Representation
from carso.purifiers.base import TrainablePurifier

SIDES = (32, 64, 128, 224)
LAYERS = ("conv1", "layer2", "layer3")
"""The first of each resolution."""
KINDS: dict[str, dict[str, Any]] = {
    "vae": {"condition": 512, "latent": 128, "decoder_width": 256},
    "unet": {"widths": (24, 48, 96, 128), "blocks": (1, 1, 2, 2)},
}
"""The VAE as the paper has it, the U-Net as `cifar10-resnet20-retrofit`."""
BATCH = 2
MOST_PARAMETERS = 300_000_000
"""With their gradients these are 2.4 GB."""


class TrainingStep:
    """A step of the paper's stage at one side."""

    def __init__(self, kind: str, side: int) -> None:
        torch.manual_seed(0)
        self.network = freeze(SmallResNet(20, 10))
        self.purifier = around(self.network, kind, side)
        self.images = torch.rand(BATCH, 3, side, side)
        self.source = Generator().manual_seed(0)

    def __call__(self) -> None:
        activations = Representation(self.network, LAYERS)(self.images, gradients=False)
        cost = self.purifier.loss(
            self.images, self.images, activations, self.source, beta=1.0, free_bits=0.0
        )
        cost.total.backward()


def around(network: Any, kind: str, side: int) -> TrainablePurifier:
    purifier = purifier_around(network, (3, side, side), layers=LAYERS, kind=kind, **KINDS[kind])
    return purifier.train()


def parameters(kind: str, side: int) -> int:
    """Of the purifier, counted without a value for any of them."""
    with torch.device("meta"):
        purifier = around(freeze(SmallResNet(20, 10)), kind, side)
    return sum(parameter.numel() for parameter in purifier.parameters())


def measured(kind: str, side: int, turns: int) -> dict[str, Any]:
    count = parameters(kind, side)
    found: dict[str, Any] = {"kind": kind, "side": side, "parameters": count}
    if count <= MOST_PARAMETERS:
        step = TrainingStep(kind, side)
        step()
        found["seconds"] = statistics.median(processor_seconds(step) for _ in range(turns))
        found["mib"] = in_own_process(__file__, kind, side)
    return found


def memory_of(kind: str, side: str) -> float:
    TrainingStep(kind, 16)()  # libraries load before it counts
    return memory_growth(lambda: TrainingStep(kind, int(side))())


def main() -> None:
    options = asked(__doc__, turns=2, memory_words=2)
    if options.memory_of:
        print(memory_of(*options.memory_of))
        return
    rows = [measured(kind, side, options.turns) for kind in KINDS for side in SIDES]
    if options.json:
        print(json.dumps({"batch": BATCH, "rows": rows}, indent=1))
        return
    for row in rows:
        taken = f"{row['seconds']:.2f} s, {row['mib']:.0f} MiB" if "mib" in row else "too large"
        print(f"{row['kind']:5} {row['side']:4}  {row['parameters']:>13,} parameters  {taken}")


if __name__ == "__main__":
    main()
