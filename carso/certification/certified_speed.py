"""How fast draws are made, beside plain passes through the parts of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from carso.certification.certificate import Certificate, Smoothing
from carso.certification.certified_images import Certified
from carso.defence.defence import Carso
from carso.machine.limits import check_fits
from carso.machine.timing import ratio
from carso.randomness import generator

TURNS = 5
BYTES = 32
"""Of each number of a noisy copy: noise and sum in float64, the image, and what reads it."""


def check_batch(image: Tensor, batch: int) -> None:
    """Refuse a batch for which not even the noise has room."""
    check_fits("noisy copies", batch, BYTES * image.numel(), option="--batch")


@torch.no_grad()
def share_of_passes(asked: Certified) -> float:
    """Draws per second over plain forward passes per second: of the classifier up to the last layer
    that is read, the purifier and the classifier again, on a batch that lies ready."""
    model, size = asked.model, asked.smoothing.batch
    votes, noise = asked.votes(0, "speed"), generator(asked.seed, "certificate", "speed")
    ready = votes.noisy(size).to(asked.images.device)

    def parts() -> None:
        with asked.passes:
            if not isinstance(model, Carso):
                model(ready)
                return
            activations, _ = model.representation.seen(ready, logits=model.own_counts)
            model.final_classifier(model.purifier.sample(activations, 1, noise)[0])

    return 1 / ratio(parts, lambda: votes.count(size), turns=TURNS)


def speed(
    found: Sequence[Certificate], smoothing: Smoothing, seconds: float, share: float
) -> dict[str, Any]:
    """What a record says of it; `seconds` are those of all processes together."""
    draws = sum(one.spent for one in found) + smoothing.selection * len(found)
    return {
        "seconds": round(seconds, 1),
        "draws_per_second": round(draws / max(seconds, 1e-9), 1),
        "share_of_plain_passes": round(share, 3),
    }
