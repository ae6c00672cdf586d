"""The classifier inside a wrapper, and its gradient at what it is shown there."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.classifiers.frozen import Frozen
from carso.randomness import global_generators_kept


class InnerClassifier(NamedTuple):
    """A part of a model that makes scores of images itself, and its name as in `named_modules`."""

    name: str
    part: nn.Module


class Within(nn.Module):
    """The logits of a `part` of `model` at what it is shown there; on the way back, as if that
    were the image itself (BPDA with the identity)."""

    def __init__(self, model: nn.Module, part: nn.Module) -> None:
        super().__init__()
        self.model, self.part = model, part

    def forward(self, images: Tensor) -> Tensor:
        shown: list[Tensor] = []

        def watch(part: nn.Module, given: tuple[Any, ...]) -> None:
            if given and is_like(given[0], images):
                shown.append(given[0].detach())

        handle = self.part.register_forward_pre_hook(watch)
        try:
            with torch.no_grad():
                self.model(images.detach())
        finally:
            handle.remove()
        scores = torch.cat([self.part(carried(one, images)) for one in shown])
        return scores.view(-1, len(images), scores.shape[1]).mean(dim=0)


def carried(shown: Tensor, images: Tensor) -> Tensor:
    """What was `shown`, with the gradient of `images`, which may be of another size."""
    carrier = images
    if shown.shape[2:] != images.shape[2:]:
        carrier = F.interpolate(images, size=shown.shape[2:], mode="bilinear", align_corners=False)
    carrier = carrier.repeat(len(shown) // len(images), shown.shape[1] // images.shape[1], 1, 1)
    return shown + carrier - carrier.detach()


def classifier_within(model: nn.Module, images: Tensor) -> InnerClassifier | None:
    """The part that makes scores of images and sees, or says, another thing than the whole: of
    wrappers in wrappers the innermost. None where there is none."""
    model = model.classifier if isinstance(model, Frozen) else model  # named as its user names it
    seen = classifications_within(model, images)
    whole = seen.pop("", None)
    if whole is None:
        return None
    found, name = whole, ""
    for part, made in seen.items():  # a module comes before its parts
        if made.scores.shape[1] != whole.scores.shape[1] or alike(made, found):
            continue
        if not name or (part.startswith(f"{name}.") and goes_deeper(made, images)):
            found, name = made, part
    return InnerClassifier(name, model.get_submodule(name)) if name else None


class Classification(NamedTuple):
    """What a part was shown, and the scores that it made of it."""

    shown: Tensor
    scores: Tensor


def classifications_within(model: nn.Module, images: Tensor) -> dict[str, Classification]:
    """By its name, each part that makes scores of something like images, a part of another after
    that; the whole is called ""."""
    seen: dict[str, Classification] = {}
    names = [name for name, _ in model.named_modules()]

    def watch(name: str) -> Any:
        def hook(module: nn.Module, given: Any, made: Any) -> None:
            if name not in seen and given and is_classification(given[0], made, images):
                seen[name] = Classification(given[0].detach(), made.detach())

        return hook

    handles = []
    try:
        handles = [part.register_forward_hook(watch(name)) for name, part in model.named_modules()]
        with torch.no_grad(), global_generators_kept():
            model(images)
    except RuntimeError:  # scripted modules take no hooks
        return {}
    finally:
        for handle in handles:
            handle.remove()
    return {name: seen[name] for name in names if name in seen}


def alike(first: Classification, second: Classification) -> bool:
    return same(first.shown, second.shown) and same(first.scores, second.scores)


def goes_deeper(inner: Classification, images: Tensor) -> bool:
    """Whether a part of a classifier is one of images itself. The last layers of a network are
    none: what they see has other channels or is small."""
    sizes = zip(inner.shown.shape[2:], images.shape[2:], strict=True)
    return inner.shown.shape[1] == images.shape[1] and all(2 * ours >= own for ours, own in sizes)


def is_classification(given: Any, made: Any, images: Tensor) -> bool:
    """Whether a part makes one row of scores of each image-like thing."""
    rows = isinstance(made, Tensor) and made.ndim == 2 and made.is_floating_point()
    return rows and is_like(given, images) and len(given) == len(made)


def is_like(given: Any, images: Tensor) -> bool:
    """Whether it is images, or some of each, of any size and of as many channels or a multiple."""
    if not isinstance(given, Tensor) or given.ndim != 4 or not len(given):
        return False
    return len(given) % len(images) == 0 and given.shape[1] % images.shape[1] == 0


def same(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and bool(torch.equal(first, second))
