"""The steps of an attack, seen from outside: whatever it asks gradients for."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from carso.attacks.attack import Model
from carso.attacks.margin import margins


@dataclass(slots=True)
class WatchedModel:
    """A model that keeps the points at which an attack differentiates it, one image at a time."""

    model: Model
    label: Tensor
    """Of the one image that is attacked, (1,)."""
    points: list[Tensor] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    """The lead of the right class at each point, as the attack saw it; below 0 is a mistake."""

    def __call__(self, images: Tensor) -> Tensor:
        scores = self.model(images)
        if images.requires_grad and torch.is_grad_enabled():
            self.points.append(images.detach().clone())
            self.margins.append(float(margins(scores.detach(), self.label)))
        return scores
