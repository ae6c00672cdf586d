"""Expectation over transformation: how many draws of a noisy model an attack averages."""

from __future__ import annotations

from torch import Tensor

from carso.attacks.averaging import draws_needed, gradient_likeness
from carso.evaluation.attacked_model import AttackedModel, AttackedView
from carso.randomness import generator, seeded

PILOT_IMAGES = 50
"""The first so many images tell how noisy the gradients are."""
MOST = 64


def candidates_needed(
    model: AttackedModel, images: Tensor, labels: Tensor, *, seed: int
) -> tuple[int, float | None]:
    """How many candidates an attack should average in a step, and how alike two gradients are.

    A candidate is one draw of the model: of a defence one purified image, of any other noisy
    module one pass. A collapsed latent needs one. So does a model without noise, of which nothing
    is measured: None.
    """
    if not model.stochastic:
        return 1, None
    view = model.view(AttackedView(samples=1))
    with seeded(seed, "pilot"):
        model.reseed(generator(seed, "pilot").initial_seed())
        alike = gradient_likeness(view, images, labels)
    return draws_needed(alike, most=MOST), alike
