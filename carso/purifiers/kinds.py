"""From the kind of a purifier to one that is built, untrained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from carso.purifiers.unet.unet import UNetPurifier
from carso.purifiers.vae.vae import VAEPurifier


def unet(image_shape: tuple[int, int, int], *, mean: object, std: object, **settings: Any) -> Any:
    """The U-Net sees no images, and so has nothing to standardise."""
    return UNetPurifier(image_shape, **settings)


KINDS: dict[str, Any] = {"vae": VAEPurifier, "unet": unet}
"""Each takes an image's shape, and by keyword the layers that it reads, the shapes of their
activations without the batch, mean and std of the images' channels, and the settings of its kind.
"""


def build(
    kind: str,
    image_shape: tuple[int, int, int],
    *,
    layers: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    **settings: Any,
) -> Any:
    """A purifier of this kind for activations of these `shapes`; `mean` and `std` of the images
    matter in training only."""
    make = KINDS[kind]
    return make(image_shape, layers=layers, shapes=shapes, mean=mean, std=std, **settings)
