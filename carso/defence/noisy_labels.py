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

Labels = Callable[[Tensor, Generator], Tensor]
"""Noisy images (B, C, H, W), not clipped, and a source of the model's own noise, to labels (B,)."""


def noisy(images: Tensor, sigma: float, source: Generator) -> Tensor:
    """The images with Gaussian noise of deviation `sigma`, wherever that leads."""
    return images + sigma * normal(tuple(images.shape), images, source)


def labels_of(model: nn.Module) -> Labels:
    """How `model` labels noisy images, one draw of its own noise for each: a `Carso` is asked for
    one candidate per image."""
    if isinstance(model, Carso):

        def candidate_labels(images: Tensor, noise: Generator) -> Tensor:
            return model.four_steps(images, view_mean_logits, noise, 1).argmax(dim=1)

        return candidate_labels

    def plain_labels(images: Tensor, noise: Generator) -> Tensor:
        scores: Tensor = model(images)
        return scores.argmax(dim=1)

    return plain_labels
