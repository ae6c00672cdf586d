"""BPDA (Athalye et al. 2018): the scores of one model with the gradient of another."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from carso.defence.defence import Carso
from carso.evaluation.attacked_model import AttackedModel, AttackedView
from carso.evaluation.inner_classifier import InnerClassifier


class StraightThrough(torch.autograd.Function):
    """The first of two tensors, with a way back through the second alone."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, other: Tensor) -> Tensor:
        return scores.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, gradient


class SubstituteGradient(nn.Module):
    """The scores of `model`; on the way back, the gradient of `other` at the same images.

    Both begin with the same state of torch's global generator: where they draw alike, `other` is
    differentiated at the noise that `model` has met.
    """

    def __init__(self, model: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.model, self.other = model, other

    def forward(self, images: Tensor) -> Tensor:
        following = torch.is_grad_enabled() and images.requires_grad
        before = torch.get_rng_state()
        with torch.no_grad():
            scores: Tensor = self.model(images.detach())
        if not following:
            return scores
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        other = self.other(images)
        torch.set_rng_state(after)
        found = StraightThrough.apply(scores, other)  # type: ignore[no-untyped-call]
        return cast(Tensor, found)


class WithBackward:
    """A model that is judged by itself and attacked by the gradients of another."""

    def __init__(self, model: AttackedModel, other: AttackedModel) -> None:
        self.model, self.other, self.name = model, other, model.name
        self.stochastic = model.stochastic
        self.inner: InnerClassifier | None = None  # the user knows better where a gradient is
        self.classifier: nn.Module = model.classifier
        if model.defence is None:
            self.classifier = SubstituteGradient(model.classifier, other.classifier)

    @property
    def defence(self) -> Carso | None:
        return self.model.defence

    @property
    def noisy_gradient(self) -> bool:
        return self.model.noisy_gradient or self.other.noisy_gradient

    def view(self, through: AttackedView) -> nn.Module:
        return SubstituteGradient(self.model.view(through), self.other.view(through))

    def answers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.answers(images)

    def reseed(self, seed: int) -> None:
        self.other.reseed(seed)
        self.model.reseed(seed)

    def description(self) -> dict[str, Any]:
        return {**self.model.description(), "backward": self.other.name}

    def components(self) -> dict[str, Any]:
        theirs = {f"backward {name}": part for name, part in self.other.components().items()}
        return {**self.model.components(), **theirs}
