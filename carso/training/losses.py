"""What adversarial trainings minimise, and the attacks that belong to it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from carso.attacks.attack import Model
from carso.attacks.pgd import ascent
from carso.threats.threat import Threat
from carso.training.mixing import leads


def divergence(clean: Tensor, attacked: Tensor) -> Tensor:
    """KL(clean || attacked) of two predictions, averaged over the batch."""
    return F.kl_div(
        attacked.log_softmax(dim=1),
        clean.log_softmax(dim=1),
        reduction="batchmean",
        log_target=True,
    )


def disagreement_attack(
    model: Model,
    images: Tensor,
    *,
    threat: Threat,
    steps: int,
    step_size: float,
    generator: Generator,
) -> Tensor:
    """PGD on the divergence from the clean prediction: the inner problem of TRADES (Zhang et al.
    2019)."""
    with torch.no_grad():
        clean = model(images)

    def loss(attacked: Tensor) -> Tensor:
        return divergence(clean, model(attacked))

    return climb(loss, images, threat=threat, steps=steps, step_size=step_size, generator=generator)


def margin_attack(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    steps: int,
    step_size: float,
    generator: Generator,
) -> Tensor:
    """PGD on the lead of the right class. In few steps it is stronger than one on a cross-entropy
    whose logits are divided by a temperature: that spreads its effort over all other classes."""

    def loss(attacked: Tensor) -> Tensor:
        return wrong(model(attacked), labels, margin=True)

    return climb(loss, images, threat=threat, steps=steps, step_size=step_size, generator=generator)


def wrong(logits: Tensor, labels: Tensor, *, margin: bool) -> Tensor:
    """How wrong the images of a batch are, in all: by the lead of other classes (`margin`), or by
    the cross-entropy."""
    if margin:
        return -leads(logits, labels).sum()
    return F.cross_entropy(logits, labels, reduction="sum")


def climb(
    loss: Callable[[Tensor], Tensor],
    images: Tensor,
    *,
    threat: Threat,
    steps: int,
    step_size: float,
    generator: Generator,
) -> Tensor:
    """The images after some steps up a loss, from a random start in the ball."""

    def gradient(attacked: Tensor) -> Tensor:
        attacked = attacked.detach().requires_grad_(True)
        (found,) = torch.autograd.grad(loss(attacked), attacked)
        return found

    start = threat.random_start(images, generator)
    return ascent(gradient, start, images, threat=threat, steps=steps, step_size=step_size)


def feature_distance(seen: list[Tensor], wanted: list[Tensor]) -> Tensor:
    """The mean squared distance of activations, each layer in units of its own size."""
    distances = [
        F.mse_loss(a, b) / b.square().mean().clamp(min=1e-12)
        for a, b in zip(seen, wanted, strict=True)
    ]
    return torch.stack(distances).mean()


def alikeness(one: Tensor, other: Tensor, *, wanted: float) -> Tensor:
    """What two candidates of every image lack of a mean difference of `wanted`: it keeps the noise
    alive, as free bits do in a posterior. Summed over the pixels and weighed like ten of them."""
    apart = (one - other).abs().flatten(start_dim=1)
    return 10 * apart.shape[1] * F.relu(wanted - apart.mean(dim=1)).mean()
