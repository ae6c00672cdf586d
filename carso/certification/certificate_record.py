"""One JSON per certification: what was certified, how surely, and what came of each image."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carso.certification.bounds import linf_radius
from carso.certification.certificate import Certificate, certified_accuracy
from carso.errors import CarsoError
from carso.evaluation.statistics import share
from carso.storage import files

FORMAT = 1
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""At which a record states the certified accuracy; the images' radii give any other."""


def assembled(
    found: Sequence[Certificate],
    labels: Tensor,
    *,
    settings: dict[str, Any],
    pixels: int,
    provenance: dict[str, Any],
) -> dict[str, Any]:
    """The record of some images' certificates."""
    radii = torch.tensor([one.radius for one in found], dtype=torch.float64)
    right = torch.tensor([one.prediction for one in found]) == labels
    return {
        "format": FORMAT,
        **settings,
        "pixels": pixels,
        "accuracy": [
            {
                "radius": at,
                "linf": linf_radius(at, pixels),
                **asdict(share(certified_accuracy(radii, right, at).double())),
            }
            for at in RADII
        ],
        "abstained": sum(one.decided != "wrong" and one.radius == 0 for one in found),
        "images": {
            "label": labels.tolist(),
            "selected": [one.selected for one in found],
            "votes": [one.votes for one in found],
            "spent": [one.spent for one in found],
            "decided": [one.decided for one in found],
            "radius": [one.radius for one in found],
        },
        "provenance": provenance,
    }


def record_there(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The record at `path`, if there is one, after a check that it is of the same `settings`: that
    of others is not overwritten."""
    if not path.exists():
        return None
    before, wanted = read_certificates(path), json.loads(json.dumps(settings))
    other = [key for key in wanted if before.get(key) != wanted[key]]
    if other:
        raise CarsoError(
            f"{path} holds certificates with other {', '.join(other)}; write these elsewhere "
            "(--out), or delete it"
        )
    return before


def read_certificates(path: Path) -> dict[str, Any]:
    """A record, after a check that it is one and that its accuracies are those of its images."""
    record = files.read_json(path)
    if not isinstance(record, dict) or record.get("kind") != "certificate":
        raise CarsoError(f"{path} is no record of `carso certify`")
    try:
        images = record["images"]
        radii = torch.tensor(images["radius"], dtype=torch.float64)
        right = torch.tensor(images["selected"]) == torch.tensor(images["label"])
        stated = [(row["radius"], row["value"]) for row in record["accuracy"]]
    except (KeyError, TypeError, ValueError):
        raise CarsoError(f"{path} is a damaged record of `carso certify`") from None
    for at, value in stated:
        if not math.isclose(float(certified_accuracy(radii, right, at).double().mean()), value):
            raise CarsoError(
                f"{path} was edited: its accuracy at radius {at:g} is not that of its images"
            )
    return record
