"""Image files in, labels out: what `carso predict` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from carso.data.image_files import read_image
from carso.defence.on_disk import load

Draw = Callable[[str, Tensor, Tensor], None]
"""Given a file name, an image (C, H, W) and its candidates (N, C, H, W), may draw them."""


def predict_files(
    name: str,
    paths: Sequence[Path],
    *,
    device: str = "cpu",
    draw: Draw,
    options: dict[str, Any],
) -> list[dict[str, Any]]:
    """One row per image; `draw` is told the candidates of each.

    Each image is predicted alone and with the noise started anew, so that its answer does not
    depend on the other images.
    """
    seed = options.get("seed", 0)
    defence = load(name, device=device, **options)
    shape = defence.trained_shape
    rows = []
    read = [(path, read_image(path, shape)) for path in paths]  # all are checked before any work
    for number, (path, image) in enumerate(read, start=1):
        pixels = image[None].to(device)
        defence.seed(seed)
        found = defence.explain(pixels)
        label = int(found.labels)
        draw(f"{number}-{path.stem}.png", pixels[0], found.candidates[:, 0])
        rows.append(
            {
                "image": str(path),
                "label": defence.classes[label],
                "probability": float(found.log_probabilities[0, label].exp()),
                "samples": defence.samples,
                "agreeing": int((found.votes == label).sum()),
                "classifier_alone": defence.classes[int(found.own_labels)],
            }
        )
    return rows
