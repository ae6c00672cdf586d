"""Does the size of the classifier's logits decide what randAA takes from the released output?

    python scripts/vary_logits.py fashion OUT_FOLDER [--scales 1,0.5,0.25] [--images 50]

The last layer of a copy of the classifier is multiplied by a scale. Its labels and its activations
stay as they are, so that the same purifier serves; only the double exponential sees the difference.
Each scale is attacked by `randaa-released` on test images: one record each, in OUT_FOLDER, which is
not made again where it is there.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
from records import in_one_line
from torch import nn

from carso import data
from carso.defence.defence import Carso
from carso.defence.on_disk import load
from carso.errors import CarsoError
from carso.evaluation.evaluate import evaluate


def with_logits_times(network: nn.Module, scale: float) -> nn.Module:
    """A copy of a classifier whose logits are `scale` times as large."""
    found = copy.deepcopy(network)
    last = [layer for layer in found.modules() if isinstance(layer, nn.Linear)]
    if not last:
        raise CarsoError("the classifier has no linear layer to scale")
    with torch.no_grad():
        for parameter in last[-1].parameters():
            parameter.mul_(scale)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("defence")
    parser.add_argument("out", type=Path)
    parser.add_argument("--scales", default="1,0.5,0.25")
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    known = load(asked.defence)
    test = data.load("fashion-embedded").test.balanced(asked.images)
    images, labels = test.batch(slice(None))
    for scale in asked.scales.split(","):
        model = Carso(
            with_logits_times(known.classifier.classifier, float(scale)),
            known.purifier,
            known.samples,
            known.aggregation,
        )
        record = evaluate(
            model, images, labels, eps=known.scenario.threat.eps, attacks=["randaa-released"],
            name=f"{asked.defence}, logits times {scale}",
            out=asked.out / f"{asked.defence}-logits-{scale}.json",
        )  # fmt: skip
        print(record["verdict"], flush=True)


if __name__ == "__main__":
    in_one_line(main)
