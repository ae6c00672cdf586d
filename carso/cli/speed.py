"""The alternatives that `carso doctor --tune` measures, on a shipped defence."""

from __future__ import annotations

import torch
from torch import Tensor

from carso.defence.on_disk import load
from carso.machine.tuning import Action, compile_parts, laid_out, ratio, untuned
from carso.purifiers.base import as_module
from carso.randomness import generator

BATCH = 64


def ratios(name: str = "fashion", *, turns: int = 7, compiled: bool = True) -> dict[str, float]:
    """Time of each alternative over the default's, for the gradient that an attack takes."""
    with untuned():
        defence, other = load(name, samples=1), load(name, samples=1)
    images = torch.rand((BATCH, *defence.trained_shape), generator=generator(0, "tuning"))

    def gradient() -> None:
        point = images.clone().requires_grad_(True)
        defence.view("mean-logits")(point).sum().backward()

    def low() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            gradient()

    def alone() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        gradient()
        torch.set_num_threads(before)

    found = {"bfloat16": ratio(gradient, low, turns=turns)}
    if torch.get_num_threads() > 1:
        found["one thread"] = ratio(gradient, alone, turns=turns)
    laid_out(other.classifier, "contiguous")

    def gradient_of_other() -> None:
        point = images.clone().requires_grad_(True)
        other.view("mean-logits")(point).sum().backward()

    found["contiguous"] = ratio(gradient, gradient_of_other, turns=turns)
    if compiled and (fast := compiled_gradient(name, images)) is not None:
        found["compiled purifier"] = ratio(gradient, fast, turns=turns)
    return found


def compiled_gradient(name: str, images: Tensor) -> Action | None:
    """The same gradient through a purifier whose parts are compiled; None where that fails."""
    with untuned():
        defence = load(name, samples=1)
    compile_parts(as_module(defence.purifier))

    def gradient() -> None:
        point = images.clone().requires_grad_(True)
        defence.view("mean-logits")(point).sum().backward()

    try:
        gradient()
    except Exception:  # no compiler, or a torch that cannot: then there is nothing to choose
        return None
    return gradient
