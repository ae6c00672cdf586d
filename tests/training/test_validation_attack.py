"""The short verdict on a defence in training."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from carso.data import ImageData
from carso.randomness import generator
from carso.training.hardening import HardeningStage
from carso.training.validation_attack import MOST, by_samples, candidates_needed, judged


def test_numbers_of_candidates_are_compared_on_the_same_examples(
    new_stage: Callable[..., HardeningStage], bars: ImageData, short_validation: None
) -> None:
    defence = new_stage().judged
    few, threat = bars.validation.balanced(8), new_stage().threat
    defence.seed(0)
    found = by_samples(
        defence, few, counts=(defence.samples, 1), threat=threat, source=generator(0, "x")
    )
    defence.seed(0)
    own = defence.samples
    accuracy, attacked = judged(
        defence, few, torch.device("cpu"), threat=threat, source=generator(0, "x")
    )
    assert set(found) == {own, 1}
    assert defence.samples == own
    assert 0 <= attacked <= accuracy
    assert all(
        0 <= value <= 1 and value * len(few) == int(value * len(few)) for value in found.values()
    )
    assert attacked <= found[own] + 1e-9  # which asks nothing of the clean image


def test_an_attack_on_a_noisy_defence_averages_more_candidates(
    new_stage: Callable[..., HardeningStage], bars: ImageData
) -> None:
    """Behind noise that decides the image, the gradient of one candidate says little."""
    defence, few = new_stage().judged, bars.validation.balanced(8)
    defence.seed(0)
    calm = candidates_needed(defence, few, torch.device("cpu"))

    def noise_alone(activations: list[Tensor], samples: int, noise: Generator) -> Tensor:
        count = activations[0].shape[0]
        drawn = torch.randn(samples, count, *bars.image_shape, generator=noise)
        strength = sum(a.flatten(1).mean(dim=1) for a in activations)
        return torch.sigmoid(10 * drawn * strength.view(1, -1, 1, 1, 1))

    defence.purifier.sample = noise_alone  # type: ignore[method-assign]
    assert candidates_needed(defence, few, torch.device("cpu")) == MOST > calm
