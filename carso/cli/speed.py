"""The alternatives that `carso doctor --tune` measures, on a shipped defence."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from carso.defence.on_disk import load
from carso.machine.tuning import Action, laid_out, ratio, untuned
from carso.purifiers.vae.vae import VAEPurifier
from carso.randomness import generator

BATCH = 64


def ratios(name: str = "fashion", *, turns: int = 7, compiled: bool = True) -> dict[str, float]:
    """Time of each alternative over the default's, for the gradient that an attack takes (and, for
    compiling, for the decoder's part in it)."""
    with untuned():
        defence, other = load(name, samples=1), load(name, samples=1)
    purifier = defence.purifier
    assert isinstance(purifier, VAEPurifier)
    shape = (BATCH, *purifier.image_shape)
    images = torch.rand(shape, generator=generator(0, "tuning"))

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
    with torch.no_grad():
        condition = purifier.conditioning(defence.representation(images))
    if compiled and (decoder := compiled_decoder(purifier, condition)) is not None:
        found["compiled decoder"] = ratio(*decoder, turns=turns)
    return found


def compiled_decoder(purifier: VAEPurifier, condition: Tensor) -> tuple[Action, Action] | None:
    """A pass through the decoder and back, as it is and compiled; None where that fails."""
    latent = torch.randn(BATCH, purifier.latent, generator=generator(0, "tuning", "decoder"))
    fast = copy.deepcopy(purifier.decoder)
    fast.compile()

    def passed(decoder: nn.Module) -> Action:
        def action() -> None:
            point = condition.clone().requires_grad_(True)
            decoder(latent, point).sum().backward()

        return action

    plain, other = passed(purifier.decoder), passed(fast)
    try:
        other()
    except Exception:  # no compiler, or a torch that cannot: then there is nothing to choose
        return None
    return plain, other
