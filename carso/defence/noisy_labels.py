"""The one door through which a defence takes images that are not in [0, 1]: Gaussian noise on them.

Everywhere else such images are refused. Training for certificates and certificates themselves are
about noise that nothing cuts, so here they pass as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator, Tensor, nn

from carso.defence.aggregation import view_mean_logits
from carso.defence.defence import Carso
from carso.randomness import normal

Scores = Callable[[Tensor, Generator], Tensor]
"""Noisy images (B, C, H, W), not clipped, and a source of the model's own noise, to (B, K)."""
Labels = Callable[[Tensor, Generator], Tensor]
"""The same, to labels (B,)."""


def noisy(images: Tensor, sigma: float, source: Generator) -> Tensor:
    """The images with Gaussian noise of deviation `sigma`, wherever that leads."""
    return images + sigma * normal(tuple(images.shape), images, source)


def scores_of(model: nn.Module) -> Scores:
    """The logits that `model` gives to noisy images, one draw of its own noise for each: a `Carso`
    is asked for one candidate per image."""
    if isinstance(model, Carso):
        return lambda images, noise: model.four_steps(images, view_mean_logits, noise, 1)
    return lambda images, noise: model(images)


def labels_of(model: nn.Module) -> Labels:
    """How `model` labels noisy images, one draw of its own noise for each."""
    scores = scores_of(model)
    return lambda images, noise: scores(images, noise).argmax(dim=1)
