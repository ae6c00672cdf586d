"""The three files in which the authors publish a purifier, and what each is of."""

from __future__ import annotations

from torch import nn

from carso.purifiers.base import TrainablePurifier
from carso.purifiers.vae.vae import VAEPurifier

PARTS = {
    "repr_compressors": "the layerwise encoders",
    "repr_fcn_compressor": "the fully connected encoder",
    "decoder": "the decoder",
}
"""How the names of a purifier's three files end, after the base name and an underscore."""


def published_parts(purifier: TrainablePurifier) -> dict[str, nn.Module]:
    """The part of the paper's purifier that each file is of; it has the file's keys."""
    assert isinstance(purifier, VAEPurifier), "the paper's scenarios have the paper's purifier"
    conditioning = purifier.conditioning
    found = (conditioning.layerwise, conditioning.fully_connected, purifier.decoder)
    return dict(zip(PARTS, found, strict=True))
