"""How much the classifier's own logits count in use, chosen on validation images.

A hardened purifier gives robustness and takes some clean accuracy; the weight of the anchor moves
between the two. Of the weights tried, the one is taken that stands best under attack among those
that cost no more than `CLEAN_LOSS` of the classifier's own clean accuracy.
"""

from __future__ import annotations

from typing import Any

import torch

from carso.data import ImageData
from carso.defence.defence import Carso
from carso.randomness import generator
from carso.threats.threat import Threat
from carso.training.accuracies import accuracy, accuracy_under_pgd
from carso.training.validation_attack import VALIDATION_ATTACK, candidates_needed, judged

FACTORS = (1, 2, 3, 4, 6, 8)
"""Weights that are tried, in units of the one that the purifier was hardened with."""
CLEAN_LOSS = 0.002


def choose(
    defence: Carso, data: ImageData, *, threat: Threat, count: int, seed: int, device: torch.device
) -> dict[str, Any]:
    """The weight to use, and the figures that it was chosen by: clean accuracy on all validation
    images, accuracy under attack on `count` of them."""
    own = accuracy(defence.classifier, data.validation, device)
    few = data.validation.balanced(min(count, len(data.validation)))
    start, tried = defence.anchor, []
    candidates = candidates_needed(defence, few, device)
    for factor in FACTORS:
        defence.anchor = factor * start
        defence.seed(seed)
        source = generator(seed, "anchor")
        tried.append(
            {
                "anchor": defence.anchor,
                "clean": accuracy(defence, data.validation, device),
                "attacked": judged(
                    defence, few, device, threat=threat, source=source, candidates=candidates
                )[1],
            }
        )
    chosen = best(tried, own)
    defence.anchor = chosen["anchor"]
    return {
        "anchor": chosen["anchor"],
        "classifier_clean": own,
        "classifier_attacked": accuracy_under_pgd(
            defence.classifier,
            few,
            device,
            threat=threat,
            source=generator(seed, "anchor"),
            attack=VALIDATION_ATTACK,
        ),
        "tried": tried,
        "images": {"clean": len(data.validation), "attacked": len(few)},
    }


def best(tried: list[dict[str, float]], own: float) -> dict[str, float]:
    """The most robust weight that hardly costs clean accuracy; else the one that costs least."""
    cheap = [row for row in tried if row["clean"] >= own - CLEAN_LOSS]
    if cheap:
        return max(cheap, key=lambda row: (row["attacked"], row["clean"]))
    return max(tried, key=lambda row: (row["clean"], row["attacked"]))
