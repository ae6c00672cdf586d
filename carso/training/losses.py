"""What adversarial trainings minimise, and the attacks that belong to it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from carso.attacks.gradient import Model, verified
from carso.threat import Linf


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
    threat: Linf,
    steps: int,
    step_size: float,
    generator: Generator,
) -> Tensor:
    """PGD on the divergence from the clean prediction: the inner problem of TRADES (Zhang et al.
    2019)."""
    with torch.no_grad():
        clean = model(images)
    attacked = threat.random_start(images, generator)
    for _ in range(steps):
        attacked.requires_grad_(True)
        (gradient,) = torch.autograd.grad(divergence(clean, model(attacked)), attacked)
        attacked = threat.project(attacked.detach() + step_size * gradient.sign(), images)
    return verified(attacked, images, threat)
