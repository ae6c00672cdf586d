"""A classifier that cannot change, whoever calls `train()` or an optimiser."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.parameter import is_lazy

from carso.arguments import shown
from carso.errors import CarsoError, CarsoTypeError


class Frozen(nn.Module):
    """`classifier` in evaluation mode for good, its parameters without gradients."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier
        self.requires_grad_(False)  # a scripted module has no such method of its own
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
    return classifier if isinstance(classifier, Frozen) else Frozen(usable(classifier))


def usable(classifier: nn.Module) -> nn.Module:
    """`classifier`, if it is one that can be run; of a compiled one, the module that was compiled.

    What `torch.compile` makes does not show its layers, and computes the same.
    """
    if not isinstance(classifier, nn.Module):
        raise CarsoTypeError(
            "a classifier is a torch.nn.Module from images in [0, 1] to logits, got "
            f"{shown(classifier)}"
        )
    classifier = uncompiled(classifier)
    for module in classifier.modules():
        if isinstance(module, GraphModule) and "train" in vars(module):
            raise CarsoError(
                "the classifier is a program of torch.export, which has no evaluation mode: give "
                "the module that it was made of"
            )
    for name, tensor in [*classifier.named_parameters(), *classifier.named_buffers()]:
        if is_lazy(tensor):
            raise CarsoError(
                f"the classifier is lazy, {name} has no shape yet: run it on a batch of images once"
            )
    return classifier


def refuse_meta(classifier: nn.Module) -> None:
    """One line for a classifier that has shapes and no values: its size can be counted, it cannot
    be run."""
    for name, tensor in [*classifier.named_parameters(), *classifier.named_buffers()]:
        if tensor.is_meta:
            raise CarsoError(
                f"the classifier is on the meta device, {name} has no values: load its weights"
            )


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` was given, of what it made; any other as it is."""
    return dict(module.named_children()).get("_orig_mod", module)


def refuse_precision(classifier: nn.Module) -> None:
    """One line for a classifier in another precision than float32, in which all is trained and
    judged."""
    for name, parameter in classifier.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise CarsoError(
                f"the classifier computes in {parameter.dtype} ({name}), and float32 is wanted: "
                "give it as classifier.float()"
            )
