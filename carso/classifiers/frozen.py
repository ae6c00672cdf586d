"""A classifier that cannot change, whoever calls `train()` or an optimiser."""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn


class Frozen(nn.Module):
    """`classifier` in evaluation mode for good, its parameters without gradients."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier.requires_grad_(False)
        self.train(False)

    def forward(self, images: Tensor) -> Tensor:
        # An enclosing module's `requires_grad_`, or the user's own handle on the classifier,
        # goes past the methods below.
        if any(p.requires_grad for p in self.parameters()):
            self.requires_grad_(False)
        if any(m.training for m in self.modules()):
            self.train(False)
        return self.classifier(images)  # type: ignore[no-any-return]

    def train(self, mode: bool = True) -> Self:
        return super().train(False)  # batch-norm statistics must never move

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        return super().requires_grad_(False)


def freeze(classifier: nn.Module) -> Frozen:
    """`classifier` frozen; one that is frozen already is returned as it is."""
    return classifier if isinstance(classifier, Frozen) else Frozen(classifier)
