"""Is a purifier of the user's own one, and does it give what it should? One clear line if not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from carso.arguments import shown
from carso.errors import CarsoError, CarsoTypeError
from carso.purifiers.base import Purifier


def refuse_no_purifier(purifier: Any) -> None:
    """Refuse what lacks a part of the protocol."""
    for part in ("layers", "image_shape", "sample"):
        if not hasattr(purifier, part):
            raise CarsoTypeError(
                "a purifier has layers, image_shape and sample(activations, samples, generator); "
                f"{shown(purifier)} has no {part}"
            )


def refuse_other_precision(purifier: Purifier, *classifiers: nn.Module) -> None:
    """A purifier reads the activations of the classifiers as they are: one precision for all."""
    parts = [*classifiers, *([purifier] if isinstance(purifier, nn.Module) else [])]
    found = {
        parameter.dtype: None
        for part in parts
        for parameter in part.parameters()
        if parameter.is_floating_point()
    }
    if len(found) > 1:
        names = " and ".join(str(dtype) for dtype in found)
        raise CarsoError(
            f"classifier and purifier must compute in one precision, got {names}: convert one of "
            "them, e.g. by classifier.float()"
        )


def check_candidates(candidates: Any, images: Tensor, samples: int) -> None:
    """Candidates for `images` are (N, B, C, H, W) in [0, 1]. NaN passes: it is counted, and
    reported where the answers are."""
    if not isinstance(candidates, Tensor):
        raise CarsoTypeError(f"a purifier gives a tensor of candidates, got {shown(candidates)}")
    wanted = (samples, *images.shape)
    if tuple(candidates.shape) != wanted:
        raise CarsoError(
            f"a purifier gives candidates (N, B, C, H, W), here {wanted}, got "
            f"{tuple(candidates.shape)}"
        )
    low, high = (float(bound) for bound in torch.aminmax(candidates.detach()))
    if low < 0 or high > 1:
        raise CarsoError(
            f"a purifier gives candidates in [0, 1], got values in [{low:.9g}, {high:.9g}]"
        )
