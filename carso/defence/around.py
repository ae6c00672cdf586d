"""A new purifier for a classifier, whatever the shapes of its activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from carso.defence.representation import Representation
from carso.purifiers import kinds


def purifier_around(
    classifier: nn.Module,
    image_shape: tuple[int, int, int],
    *,
    layers: Sequence[str],
    kind: str = "vae",
    **settings: Any,
) -> Any:
    """An untrained purifier that reads `classifier` at `layers`; `settings` are those of its kind,
    and where it matters `mean` and `std` of the images' channels."""
    shapes = Representation(classifier, layers).shapes(image_shape)
    return kinds.build(kind, image_shape, layers=layers, shapes=shapes, **settings)
