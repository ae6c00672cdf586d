"""An attack on noisy models that averages over those draws which can be broken together.

The idea is DiffHammer's (Wang et al., NeurIPS 2024): the mean over all draws pulls in directions
that cancel where draws have weaknesses of their own. Each draw counts here by how near to a mistake
those draws are whose gradients agree with its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, NamedByFields, verified
from carso.attacks.margin import Descent, Lead, Slope, WorstSoFar, margins, slope_of
from carso.errors import CarsoError
from carso.threats.threat import Threat


def shared_weights(leads: Tensor, gradients: Tensor) -> Tensor:
    """The weight of each draw of each image, (N, B), that add up to one over the draws.

    `leads` are (N, B), `gradients` (N, B, ...). A draw is the nearer to a mistake the smaller its
    lead is beside the spread of the leads. It counts by the nearness of all draws, each in so far
    as its gradient points the same way; opposite ones count for nothing.
    """
    spread = leads.std(dim=0, correction=0).clamp(min=1e-6)
    near = torch.sigmoid(-(leads - leads.mean(dim=0)) / spread)
    flat = torch.nn.functional.normalize(gradients.flatten(2), dim=2)  # (N, B, D)
    alike = torch.einsum("ibd,jbd->ijb", flat, flat).clamp(min=0)
    weights = torch.einsum("ijb,jb->ib", alike, near) * near
    total = weights.sum(dim=0)
    even = torch.full_like(weights, 1 / len(weights))
    return torch.where(total > 0, weights / total.clamp(min=1e-12), even)


def shared_slope(model: Model, lead: Lead, draws: int) -> Slope:
    """The mean lead of `draws` passes, and their gradients weighted by what they share."""
    single = slope_of(model, lead)

    def slope(points: Tensor) -> tuple[Tensor, Tensor]:
        found = [single(points) for _ in range(draws)]
        leads = torch.stack([value for value, _ in found])
        gradients = torch.stack([gradient for _, gradient in found]).nan_to_num(0.0, 0.0, 0.0)
        weights = shared_weights(leads, gradients)[..., None, None, None]
        size = gradients.flatten(2).norm(dim=2).clamp(min=1e-12)[..., None, None, None]
        return leads.mean(dim=0), (weights * gradients / size).sum(dim=0)

    return slope


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedWeakness(NamedByFields):
    """Margin descent on the draws that share a weakness, from the worst example so far."""

    steps: int = 40
    draws: int = 8
    step_share: float = 0.5
    momentum: float = 0.75

    def __post_init__(self) -> None:
        if self.steps < 1 or self.draws < 2:
            raise CarsoError(
                f"a shared weakness needs a step and two draws, got {self.steps} and {self.draws}"
            )

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(eot=self.draws, period=self.steps, direct_steps=self.steps, starts=True)

    def __call__(
        self,
        model: Model,
        images: Tensor,
        labels: Tensor,
        *,
        threat: Threat,
        generator: Generator,
        start: Tensor | None = None,
    ) -> Tensor:
        worst = WorstSoFar(model, images, labels)
        everything = torch.arange(len(images), device=images.device)
        descent = Descent(self.steps, self.step_share, self.momentum)
        slope = shared_slope(model, partial(margins, labels=labels), self.draws)
        begin = threat.random_start(images, generator) if start is None else start
        for found in descent(slope, begin, images, threat):
            worst.offer(found, everything)
        return verified(worst.examples, images, threat)
