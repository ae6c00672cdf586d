"""Scores of a defence as an ordinary module: what an attacker differentiates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Generator, Tensor, nn
from torch.autograd.function import once_differentiable

from carso.arguments import whole
from carso.defence.aggregation import Reduction, view
from carso.machine.many_draws import Loss, sum_of_gradients
from carso.purifiers.checks import check_candidates
from carso.randomness import only

if TYPE_CHECKING:
    from carso.defence.defence import Carso

CANDIDATES_AT_ONCE = 128
"""In gradients over many draws. On a CPU more of them take longer each, and more memory."""
SATURATING = ("log-prob", "released")
"""Views whose gradient is exactly zero or NaN on most images, so that skipping those pays."""


class View(nn.Module):
    """The scores called `name` of `defence`, which attack libraries take unchanged."""

    def __init__(
        self,
        defence: Carso,
        name: str,
        *,
        draws: int = 1,
        samples: int | None = None,
        fixed: bool = False,
    ) -> None:
        super().__init__()
        draws = whole("draws of a view", draws, least=1)
        own = defence.samples if samples is None else samples
        each = whole("samples of a view", own, least=1)
        self.defence, self.name = defence, name
        self.reduction = averaged(view(name, defence.aggregate), draws)
        self.samples = draws * each
        self.fixed = defence.noise.get_state() if fixed else None
        self.frugal = name in SATURATING

    def forward(self, images: Tensor) -> Tensor:
        if self.fixed is None:
            return self.scores(images)
        with self.defence.turn:
            self.defence.noise.set_state(self.fixed)
            return self.scores(images)

    def scores(self, images: Tensor) -> Tensor:
        """One answer, with the noise that the defence is about to draw."""
        limit = self.defence.max_batch
        fits = limit is None or len(images) * self.samples <= limit
        if self.frugal and fits and torch.is_grad_enabled() and images.requires_grad:
            self.defence.check(images)
            return cast(Tensor, Frugal.apply(images, self))  # type: ignore[no-untyped-call]
        return self.defence.scores(images, self.reduction, self.samples)

    def gradient_over_draws(self, images: Tensor, loss: Loss, draws: int) -> Tensor:
        """The sum, over so many draws, of the gradients of a loss at `images`; from one pass
        through the representation, and in the memory of a few draws."""
        if self.fixed is not None or self.frugal or self.defence.max_batch is not None:
            return sum_of_gradients(self, images, loss, draws)
        self.defence.check(images)
        point, own_counts = images.detach().requires_grad_(True), self.defence.own_counts
        with torch.enable_grad():
            activations, own = self.defence.representation.seen(point, logits=own_counts)
        seen = [*activations, *([] if own is None else [own])]
        if not all(one.requires_grad for one in seen):
            return sum_of_gradients(self, images, loss, draws)
        found = [torch.zeros_like(one) for one in seen]
        at_once = max(1, CANDIDATES_AT_ONCE // (len(images) * self.samples))
        for first in range(0, draws, at_once):
            leaves = [one.detach().requires_grad_(True) for one in seen]
            count = min(at_once, draws - first)
            with torch.enable_grad():
                parts = self.of_draws(leaves[: len(activations)], leaves[len(activations) :], count)
                lost = torch.stack([loss(scores) for scores in parts]).sum()
            gradients = torch.autograd.grad(lost, leaves, materialize_grads=True)
            for total, part in zip(found, gradients, strict=True):
                total += part
        return torch.autograd.grad(seen, point, found)[0]

    def of_draws(
        self, activations: Sequence[Tensor], own: Sequence[Tensor], draws: int
    ) -> list[Tensor]:
        """Scores (B, K) of so many draws, from the activations and the classifier's `own` logits
        where they count."""
        defence, samples = self.defence, draws * self.samples
        candidates = defence.purifier.sample(activations, samples, defence.noise)
        logits = defence.classify(candidates, own[0] if own else None)
        return [self.reduction(part) for part in logits.chunk(draws)]


def averaged(reduction: Reduction, draws: int) -> Reduction:
    """The mean of `reduction` over `draws` equal parts of the candidates."""
    if draws == 1:
        return reduction

    def mean(logits: Tensor) -> Tensor:
        return torch.stack([reduction(part) for part in logits.chunk(draws)]).mean(dim=0)

    return mean


class Frugal(torch.autograd.Function):
    """The four steps, with a way back for those images only where there is something to learn.

    Where the gradient at an image's logits is NaN, or exactly zero, so it is at every pixel:
    eval-mode networks mix no images, and each pixel's gradient sums over all logits. Those images
    get it without a backward pass; the others are computed again with gradients.
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, view: View) -> Tensor:
        ctx.view, ctx.images = view, images.detach()
        ctx.before = view.defence.noise.get_state()
        logits = logits_of(view, ctx.images, view.defence.noise)
        with torch.enable_grad():
            ctx.logits = logits.requires_grad_(True)
            ctx.scores = view.reduction(ctx.logits)
        return cast(Tensor, ctx.scores.detach())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (at_logits,) = torch.autograd.grad(ctx.scores, ctx.logits, gradient, retain_graph=True)
        broken = at_logits.isnan().any(dim=2).any(dim=0)  # (B,)
        zero = (at_logits == 0).all(dim=2).all(dim=0)
        at_images = torch.zeros_like(ctx.images)
        at_images[broken] = torch.nan
        live = (~(broken | zero)).nonzero().flatten()
        if len(live):
            images = ctx.images[live].requires_grad_(True)
            noise = Generator(ctx.view.defence.noise.device)
            noise.set_state(ctx.before)
            with torch.enable_grad(), only(live, len(ctx.images)):
                logits = logits_of(ctx.view, images, noise)
            (at_images[live],) = torch.autograd.grad(logits, images, at_logits[:, live])
        return at_images, None


def logits_of(view: View, images: Tensor, noise: Generator) -> Tensor:
    """Steps 1 to 3: logits (N, B, K)."""
    defence = view.defence
    activations, own = defence.representation.seen(images, logits=defence.own_counts)
    candidates = defence.purifier.sample(activations, view.samples, noise)
    check_candidates(candidates, images, view.samples)
    return defence.classify(candidates, own)
