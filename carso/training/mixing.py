"""CutMix: images with a piece of another in them, and labels that say how much of each there is.

Labels of a batch are class numbers (B,), or shares of the classes (B, K) where it is mixed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from carso.attacks.margin import margins


def cut_mixed(
    images: Tensor, labels: Tensor, *, classes: int, share: float, source: Generator
) -> tuple[Tensor, Tensor]:
    """The batch, in a `share` of the calls mixed: into each image a box of another is put, of a
    size that is uniform as a share of the area (Yun et al. 2019, here with a box for each image).
    The labels are then shares of the classes, by the pixels that each has."""
    if torch.rand(1, generator=source) >= share:
        return images, labels
    count, _, height, width = images.shape
    other = torch.randperm(count, generator=source)
    side = torch.rand(count, 1, generator=source).sqrt()  # of the image's own, so area is uniform
    middles = torch.rand(2, count, 1, generator=source)
    inside = [
        between(length, middle, side)
        for length, middle in zip((height, width), middles, strict=True)
    ]
    box = (inside[0][:, :, None] & inside[1][:, None, :]).to(images.device)  # (B, H, W)
    mixed = torch.where(box[:, None], images[other.to(images.device)], images)
    brought = box.flatten(1).float().mean(dim=1, keepdim=True)  # (B, 1)
    own = F.one_hot(labels, classes).float()
    return mixed, (1 - brought) * own + brought * own[other.to(own.device)]


def between(length: int, middle: Tensor, side: Tensor) -> Tensor:
    """Which of `length` places lie within half a `side` of `middle`, both as shares of it."""
    places = (torch.arange(length) + 0.5) / length
    return (places - middle).abs() < side / 2


def mostly(labels: Tensor) -> Tensor:
    """The class numbers (B,): of mixed images, the class with the greatest share."""
    return labels if labels.ndim == 1 else labels.argmax(dim=1)


def leads(scores: Tensor, labels: Tensor) -> Tensor:
    """The lead of the right class over the best other one, (B,). Of mixed images it is that of
    their classes, by share, over the best class that is not in them."""
    if labels.ndim == 1:
        return margins(scores, labels)
    right = (labels.to(scores) * scores).sum(dim=1)
    return right - scores.masked_fill(labels > 0, -torch.inf).amax(dim=1)
