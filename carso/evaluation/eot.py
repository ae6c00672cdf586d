"""Expectation over transformation: how many draws of a noisy model an attack averages."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from carso.attacks.margin import margins
from carso.evaluation.attacked_model import AttackedModel, AttackedView
from carso.evaluation.statistics import cosine
from carso.randomness import generator, seeded

PILOT_IMAGES = 50
"""The first so many images tell how noisy the gradients are."""
GOOD_COSINE = 0.95
MOST = 64


def candidates_needed(
    model: AttackedModel, images: Tensor, labels: Tensor, *, seed: int
) -> tuple[int, float | None]:
    """How many candidates an attack should average in a step, and how alike two gradients are.

    A candidate is one draw of the model: of a defence one purified image, of any other noisy
    module one pass. With c the mean cosine of the gradients of two of them, the mean of n has the
    cosine sqrt(n c / (n c + 1 - c)) with the true gradient; n is the smallest power of two, up to
    `MOST`, that makes it `GOOD_COSINE`. A collapsed latent needs one. So does a model without
    noise, of which nothing is measured: None.
    """
    if not model.noisy_gradient:
        return 1, None
    view = model.view(AttackedView(samples=1))
    gradients = []
    with seeded(seed, "pilot"):
        model.reseed(generator(seed, "pilot").initial_seed())
        for _ in range(2):
            point = images.detach().clone().requires_grad_(True)
            with torch.enable_grad():
                lead = margins(view(point), labels).sum()
            gradients.append(torch.autograd.grad(lead, point)[0])
    alike = float(cosine(*gradients).mean())
    if not alike > 0:
        return MOST, alike
    wanted = GOOD_COSINE**2 / (1 - GOOD_COSINE**2) * (1 - alike) / alike
    return min(MOST, 2 ** max(0, math.ceil(math.log2(max(wanted, 1.0))))), alike
