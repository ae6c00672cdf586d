"""Step 1: what a frozen classifier thinks of an image, layer by layer."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from carso.arguments import names
from carso.classifiers.frozen import freeze, refuse_meta, refuse_precision, uncompiled
from carso.data import ImageData
from carso.errors import CarsoError, reason

INPUT = "input"
"""The layer that is the image itself, for a purifier that reads what the classifier reads. A layer
of the classifier that has this name goes before it."""
HOOKS = threading.Lock()
"""torch numbers hooks without a lock: two that are registered at once could get one number."""


class AllSeen(Exception):
    """Ends a pass through a classifier of which the rest is not needed."""


class Seen:
    """The activations that one pass has shown so far, each with how often it was written before."""

    def __init__(self, layers: int, *, stops: bool) -> None:
        """`stops` ends the pass when each of the `layers` has been seen."""
        self.layers, self.stops, self.calls = layers, stops, 0
        self.found: dict[int, tuple[Tensor, int]] = {}

    def keep(self, index: int, activation: Tensor) -> None:
        self.found[index] = activation, version(activation)
        self.calls += 1
        if self.stops and len(self.found) == self.layers:
            raise AllSeen(self)


class Representation(nn.Module):
    """Activations of `classifier` at named layers, in one pass and in the order asked for.

    An activation may be an image (B, C, H, W), tokens (B, T, C) or a vector (B, F).
    """

    def __init__(self, classifier: nn.Module, layers: Sequence[str]) -> None:
        super().__init__()
        layers = names("layers", layers)
        if not layers:
            raise CarsoError("a representation needs at least one layer of the classifier")
        self.classifier = freeze(classifier)
        self.layers = layers
        network = self.classifier.classifier
        self.observed = [None if is_input(network, n) else find(network, n) for n in self.layers]
        # An activation that a later in-place operation overwrites must be copied in time; whether
        # one does is known from modules, or found out by the first pass.
        self.copies = any(getattr(m, "inplace", False) for m in self.classifier.modules())
        self.once: bool | None = None  # whether each layer runs once in a pass; found out by one

    def forward(self, images: Tensor, *, gradients: bool = True) -> list[Tensor]:
        """The activations; with `gradients=False` they are cut from the images' graph."""
        with torch.set_grad_enabled(gradients and torch.is_grad_enabled()):
            return self.seen(images, logits=False)[0]

    def with_logits(self, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """The activations, and the classifier's own logits from the same pass."""
        activations, logits = self.seen(images, logits=True)
        assert logits is not None
        return activations, logits

    def seen(self, images: Tensor, *, logits: bool) -> tuple[list[Tensor], Tensor | None]:
        """The activations, and the classifier's own logits where they are wanted.

        Where not, the pass ends at the last layer that is read, once an earlier pass has shown
        that each of the layers runs once.
        """
        seen, own = self.watched(images, stops=bool(self.once) and not logits)
        self.once = seen.calls == len(self.layers)
        return [seen.found[i][0] for i in range(len(self.layers))], own if logits else None

    def look(self, images: Tensor) -> None:
        """Find out by one image how the layers run, if no pass has shown it yet: two passes that
        must do the same, one of them on a way back, are then not the first."""
        if self.once is None:
            self(images[:1].detach(), gradients=False)

    def watched(self, images: Tensor, *, stops: bool) -> tuple[Seen, Tensor | None]:
        """What a pass shows, and the logits of one that was not stopped."""
        seen = Seen(len(self.layers), stops=stops)
        own: Tensor | None = None
        try:
            with self.watching(seen):
                for index, module in enumerate(self.observed):
                    if module is None:
                        seen.keep(index, self.activation(images, self.layers[index]))
                own = self.classifier(images)
        except AllSeen as signal:
            if signal.args[0] is not seen:
                raise
        if any(version(activation) != before for activation, before in seen.found.values()):
            self.copies = True
            return self.watched(images, stops=stops)
        missing = [name for i, name in enumerate(self.layers) if i not in seen.found]
        if missing:
            raise CarsoError(f"the classifier never runs layer {missing[0]!r} on these images")
        return seen, own

    @contextmanager
    def watching(self, seen: Seen) -> Iterator[None]:
        """Hooks that fill `seen`, for the length of a `with` block and never longer.

        Other threads may run the same modules meanwhile, with hooks of their own: a hook minds the
        passes of its own thread only.
        """
        thread = threading.get_ident()
        hooks = []
        try:
            for index, module in enumerate(self.observed):

                def keep(_: nn.Module, __: Any, output: Any, index: int = index) -> None:
                    if threading.get_ident() == thread:
                        seen.keep(index, self.activation(output, self.layers[index]))

                if module is None:
                    continue
                with HOOKS:
                    hooks.append(module.register_forward_hook(keep))
            yield
        finally:
            with HOOKS:
                for hook in hooks:
                    hook.remove()

    def activation(self, output: Any, name: str) -> Tensor:
        """The output of a layer, after a check that a purifier could read it."""
        if not isinstance(output, Tensor) or output.ndim not in (2, 3, 4):
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise CarsoError(
                f"layer {name!r} gives {shape}; a layer of the representation gives a tensor "
                "(B, C, H, W), (B, T, C) or (B, F)"
            )
        # Tensors of inference mode do not tell whether they were overwritten.
        return output.clone() if self.copies or output.is_inference() else output

    def shapes(self, image_shape: Sequence[int]) -> list[tuple[int, ...]]:
        """The shape of each activation, without the batch, for images of `image_shape`."""
        reference = next(self.classifier.parameters(), torch.empty(0))
        probe = torch.zeros(1, *image_shape, device=reference.device, dtype=reference.dtype)
        return [tuple(a.shape[1:]) for a in self(probe, gradients=False)]


def check_fit(classifier: nn.Module, data: ImageData, *, layers: Sequence[str]) -> None:
    """One clear line for a classifier that does not take these images, knows other classes, or has
    no gradient."""
    refuse_meta(classifier)
    representation = Representation(classifier, layers)
    refuse_precision(classifier)
    reference = next(classifier.parameters(), torch.empty(0))
    probe = torch.zeros(2, *data.image_shape, device=reference.device, dtype=reference.dtype)
    try:
        with torch.enable_grad():
            _, logits = representation.with_logits(probe.requires_grad_(True))
    except CarsoError:
        raise
    except Exception as error:  # whatever a module of the user's may raise
        raise CarsoError(
            f"the classifier takes no images of shape {data.image_shape} (C, H, W): {reason(error)}"
        ) from None
    if not isinstance(logits, Tensor):
        raise CarsoError(f"a classifier gives a tensor of logits, got {type(logits).__name__}")
    if logits.shape != (2, len(data.classes)):
        raise CarsoError(
            f"the classifier gives {tuple(logits.shape)} for 2 images of {len(data.classes)} "
            "classes; one logit per class is wanted"
        )
    if not logits.requires_grad:
        raise CarsoError(
            "the logits of this classifier have no gradient, and a purifier is trained by it: give "
            "one that computes them without no_grad, argmax or whole numbers"
        )


def version(tensor: Tensor) -> int:
    """How often `tensor` was written in place, where torch counts it."""
    return 0 if tensor.is_inference() else tensor._version


def refuse_hidden(name: str, modules: dict[str, nn.Module]) -> None:
    """One line for a layer inside something that does not run it as a module."""
    parts = name.split(".")
    for depth in range(len(parts)):
        outer = modules[".".join(parts[:depth])]
        if isinstance(outer, torch.jit.ScriptModule):
            raise CarsoError(
                f"layer {name!r} is inside a scripted module (torch.jit), which shows nothing of "
                "what happens in it: give the classifier as it was before"
            )
        if uncompiled(outer) is not outer:
            raise CarsoError(
                f"layer {name!r} is inside a module that torch.compile made, which shows nothing "
                "of what happens in it: give that part of the classifier as it was before"
            )


def is_input(classifier: nn.Module, name: str) -> bool:
    """Whether `name` means the image, rather than a layer of `classifier`."""
    return name == INPUT and name not in dict(classifier.named_modules())


def find(classifier: nn.Module, name: str) -> nn.Module:
    """The layer called `name`, or an error that lists the nearest names."""
    modules: dict[str, nn.Module] = dict(classifier.named_modules())
    if name and name in modules:
        refuse_hidden(name, modules)
        return modules[name]
    known = [other for other in modules if other]
    if not known:
        raise CarsoError(f"the classifier has no layer {name!r}: it is a single one")
    near = difflib.get_close_matches(name, known, n=3) or known[:3]
    raise CarsoError(
        f"the classifier has no layer {name!r}; the nearest are {', '.join(map(repr, near))}"
    )
