"""Are gradients the slope of the answers, and are there slopes at all? Finite differences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from carso.attacks.margin import TINY, margins
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext
from carso.evaluation.statistics import percent
from carso.randomness import generator, seeded, uniform

SCALES = (1 / 16, 1 / 4)
"""Lengths of a step, as shares of eps."""
KEPT = (0.5, 2.0)
"""What an honest gradient promises of a step is kept within a factor of two, at one scale."""
MISLED = 0.25
"""Of the standing images."""
MOST = 50
"""Images that take part."""
POINTS = 16
"""On the way from an image to twice eps, in a random direction."""
HALVINGS = 8
"""Of the part of the way in which the margin changes most: to a two-thousandth of eps."""
JUMP = 0.25
"""Of the margin; a larger change in so short a part is a jump."""
OFTEN = 0.25
"""Of the standing images."""
ANOTHER = "The attacks followed the gradient of another model: its own are not looked at."


def slope(context: DiagnosticContext) -> Diagnosis:
    """A step along the gradient against what the gradient promised of it."""
    if "backward" in context.evaluation.model.description():
        return Diagnosis(name="slope", ok=None, verdict=ANOTHER)
    with noise_held(context) as (model, images, labels):
        if not len(images):
            return nothing_stands("slope")
        margin, gradient = lead_and_gradient(model, images, labels)
        usable = gradient.isfinite().flatten(1).all(dim=1) & (gradient != 0).flatten(1).any(dim=1)
        kept = torch.stack(
            [
                promise_kept(context, model, (images, labels), margin, gradient, scale)
                for scale in SCALES
            ]
        )  # (scales, B)
    honest = ((kept > KEPT[0]) & (kept < KEPT[1])).any(dim=0) & usable
    misled, none = (float((~each).double().mean()) for each in (honest, usable))
    middle = [float(one[usable].median()) if bool(usable.any()) else 0.0 for one in kept]
    words = (
        f"Steps of eps/16 and eps/4 along the gradient lower the margin of {len(images)} standing "
        f"images by {middle[0]:.2f} and {middle[1]:.2f} of what it promises."
    )
    if misled > MISLED:
        words += (
            f" On {percent(misled)} of the images no step keeps its promise: the gradient is not "
            "the slope of the answers, and misleads who follows it."
        )
    figures = {"kept": middle, "misled": misled, "without_gradient": none, "images": len(images)}
    return Diagnosis(name="slope", ok=misled <= MISLED, verdict=words, figures=figures)


def jumps(context: DiagnosticContext) -> Diagnosis:
    """Whether the scores change by jumps, of which no gradient knows."""
    if "backward" in context.evaluation.model.description():
        return Diagnosis(name="jumps", ok=None, verdict=ANOTHER)
    eps = context.evaluation.threat.eps
    with noise_held(context) as (model, images, labels):
        if not len(images):
            return nothing_stands("jumps")
        away = uniform(images, generator(context.evaluation.seed, "jumps"))
        away = context.evaluation.threat.ascend(away, 1.0)

        @torch.no_grad()
        def lead(lengths: Tensor) -> Tensor:
            step = lengths.to(images).view(-1, 1, 1, 1)
            return margins(model((images + step * away).clamp(0, 1)), labels)

        ways = torch.linspace(0, 2 * eps, POINTS).unsqueeze(1).repeat(1, len(images))
        leads = torch.stack([lead(way) for way in ways])  # (points, B)
        where = (leads[1:] - leads[:-1]).abs().argmax(dim=0).cpu()
        low, high = (ways.gather(0, (where + i).unsqueeze(0))[0] for i in (0, 1))
        before, after = lead(low), lead(high)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            found = lead(middle)
            first = (found - before).abs() >= (after - found).abs()
            before, after = torch.where(first, before, found), torch.where(first, found, after)
            low, high = (
                torch.where(first.cpu(), low, middle),
                torch.where(first.cpu(), middle, high),
            )
    size = (after - before).abs() / leads[0].abs().median().clamp(min=TINY)
    share = float((size > JUMP).double().mean())
    words = (
        f"On the way to twice eps in a random direction the margin jumps by over {percent(JUMP)} "
        f"of its size on {percent(share)} of {len(images)} standing images."
    )
    if share > OFTEN:
        words += (
            f" The median jump is {float(size.median()):.2f} of the margin, at "
            f"{float(low.median()) / eps:.2f} eps: something switches there that no gradient shows."
        )
    figures = {"share": share, "median_jump": float(size.median()), "images": len(images)}
    return Diagnosis(name="jumps", ok=share <= OFTEN, verdict=words, figures=figures)


@contextmanager
def noise_held(context: DiagnosticContext) -> Iterator[tuple[nn.Module, Tensor, Tensor]]:
    """The model with the same noise in every pass, and some images that stand."""
    evaluation = context.evaluation
    standing = (context.results.final.right[: context.count] > 0).nonzero().flatten()[:MOST]
    images, labels = context.images[standing], context.labels[standing]
    with seeded(evaluation.seed, "diagnosis", "held"):
        evaluation.model.reseed(generator(evaluation.seed, "diagnosis", "held").initial_seed())
        model = evaluation.model.view(replace(context.mean_logits, fixed=True)).eval()
        yield model, images.to(evaluation.device), labels.to(evaluation.device)


def nothing_stands(name: str) -> Diagnosis:
    return Diagnosis(name=name, ok=True, verdict="No image stands, so none is left to look at.")


def lead_and_gradient(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The margin (B,) and its gradient (B, C, H, W)."""
    point = images.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        margin = margins(model(point), labels)
    (gradient,) = torch.autograd.grad(margin.sum(), point)
    return margin.detach(), gradient


@torch.no_grad()
def promise_kept(
    context: DiagnosticContext,
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    margin: Tensor,
    gradient: Tensor,
    scale: float,
) -> Tensor:
    """By how much a step lowers the margin, as a share of what the gradient says, (B,)."""
    images, labels = batch
    threat = context.evaluation.threat
    point = (images - threat.ascend(gradient.nan_to_num(), scale * threat.eps)).clamp(0, 1)
    promised = (gradient * (images - point)).flatten(1).sum(dim=1)
    return (margin - margins(model(point), labels)) / promised.clamp(min=TINY)
