"""A model under observation: how many passes an attack spends, and what its gradients are worth."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from carso.machine.many_draws import Loss, OverDraws, sum_of_gradients
from carso.threats.threat import Threat

KINDS = ("images", "nan", "infinite", "zero")
"""The rows of `Probe.gradients`: gradients looked at, and how many of them were useless and why."""


class Fooled:
    """Which images any pass of an attack has got wrong, at whatever point of its way in the ball.

    An attack says only which points it asks about, in batches of its own; a point belongs to the
    image that is nearest to it. Some attacks also ask about points outside, which prove nothing.
    """

    def __init__(self, images: Tensor, labels: Tensor, threat: Threat) -> None:
        self.images, self.labels, self.threat = images, labels, threat
        self.ever = torch.zeros(len(images), dtype=torch.bool, device=images.device)

    @torch.no_grad()
    def saw(self, points: Tensor, scores: Tensor) -> None:
        if not len(points):
            return
        owner = torch.cdist(points.flatten(1), self.images.flatten(1)).argmin(dim=1)
        wrong = scores.argmax(dim=1) != self.labels[owner]
        wrong &= self.threat.contains(points, self.images[owner])
        self.ever[owner[wrong]] = True


class Probe(nn.Module):
    """`model`, unchanged, with a ledger of what goes through it.

    `eot` passes in a row make one step of the attack: their gradients are judged by their sum, so
    that one NaN draw is seen to spoil the whole step. Steps are counted modulo `period`, the
    number of steps in one run of the attack, so that restarts add up step by step.
    """

    def __init__(
        self, model: nn.Module, *, eot: int = 1, period: int = 0, fooled: Fooled | None = None
    ) -> None:
        super().__init__()
        self.model, self.eot, self.period, self.fooled = model, eot, period, fooled
        self.forwards = self.backwards = self.outputs = self.not_finite = 0
        self.ledger: list[list[int]] = []
        self.passes = 0
        self.collected: Tensor | None = None

    def forward(self, images: Tensor) -> Tensor:
        self.forwards += len(images)
        if torch.is_grad_enabled() and images.requires_grad:
            images = cast(Tensor, Watch.apply(images, self))  # type: ignore[no-untyped-call]
        scores: Tensor = self.model(images)
        self.answered(images.detach(), scores.detach())
        return scores

    def answered(self, images: Tensor, scores: Tensor) -> None:
        """Enter the scores of one pass."""
        self.outputs += len(scores)
        self.not_finite += int((~scores.isfinite()).any(dim=1).sum())
        if self.fooled is not None:
            self.fooled.saw(images, scores)

    def gradient_over_draws(self, images: Tensor, loss: Loss, draws: int) -> Tensor:
        """That of the model, entered as so many passes."""
        if not isinstance(self.model, OverDraws):
            return sum_of_gradients(self, images, loss, draws)

        def watched(scores: Tensor) -> Tensor:
            self.forwards += len(scores)
            self.answered(images.detach(), scores.detach())
            return loss(scores)

        gradient = self.model.gradient_over_draws(images, watched, draws)
        self.saw(gradient, passes=draws)
        return gradient

    def saw(self, gradient: Tensor, *, passes: int = 1) -> None:
        """Enter the gradient of one pass, or the sum of some."""
        self.backwards += passes * len(gradient)
        if self.collected is not None and self.collected.shape == gradient.shape:
            gradient = self.collected + gradient
        self.passes += passes
        if self.passes % self.eot:
            self.collected = gradient
            return
        self.collected = None
        step = self.passes // self.eot - 1
        if self.period:
            step %= self.period
        while len(self.ledger) <= step:
            self.ledger.append([0] * len(KINDS))
        for kind, count in enumerate(kinds(gradient)):
            self.ledger[step][kind] += count

    @property
    def gradients(self) -> Tensor:
        """Counts (4, steps) in the order of `KINDS`."""
        return torch.tensor(self.ledger, dtype=torch.int64).reshape(-1, len(KINDS)).T.contiguous()


def kinds(gradient: Tensor) -> tuple[int, int, int, int]:
    """Of a batch: how many gradients, how many with a NaN, else an infinity, or all zero."""
    flat = gradient.flatten(1)
    nan = flat.isnan().any(dim=1)
    infinite = flat.isinf().any(dim=1) & ~nan
    zero = (flat == 0).all(dim=1)
    return len(flat), int(nan.sum()), int(infinite.sum()), int(zero.sum())


class Watch(torch.autograd.Function):
    """The identity, which shows the gradient that passes through it to a probe."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, probe: Probe) -> Tensor:
        ctx.probe = probe
        return images.view_as(images)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.probe.saw(gradient.detach())
        return gradient, None
