"""What the folder of a defence says of it: its scenario, and what images it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carso.data import ImageData, ImageFacts
from carso.defence.shipped import description_file
from carso.errors import CarsoError
from carso.scenario.schema import Scenario
from carso.scenario.tables import as_table
from carso.storage import json_schema


def describe(scenario: Scenario, data: ImageData | ImageFacts) -> dict[str, Any]:
    """What `load` must know besides the weights."""
    return {
        "scenario": as_table(scenario),
        "classifier": "trained by this run",
        "images": {
            "shape": list(data.image_shape),
            "classes": list(data.classes),
            "mean": list(data.mean),
            "std": list(data.std),
        },
    }


def read_description(folder: Path) -> dict[str, Any]:
    """What `describe` wrote, after a check that it is that."""
    path = description_file(folder)
    table = json_schema.read(path, "the description of a defence")
    shape = table["images"]["shape"]
    if len(shape) != 3 or min(shape) < 1:
        raise CarsoError(f"{path} is not the description of a defence: images.shape is no C, H, W")
    return table


def facts_of(table: dict[str, Any]) -> ImageFacts:
    """What the description of a defence says of its images."""
    images = table["images"]
    return ImageFacts(
        image_shape=tuple(images["shape"]),
        classes=tuple(images["classes"]),
        mean=tuple(images["mean"]),
        std=tuple(images["std"]),
    )
