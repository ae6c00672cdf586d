"""Hardening at a temperature, and the order in which a new purifier learns."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.errors import CarsoError
from carso.randomness import generator
from carso.scenario.hardening_settings import HardeningSettings
from carso.training.hardening import HardeningStage
from carso.training.loop import Quiet, train_in_memory
from carso.training.temperature import fitted_temperature, most_likely

Make = Callable[..., HardeningStage]

pytestmark = pytest.mark.usefixtures("short_validation")


def batch(data: ImageData) -> tuple[Tensor, Tensor]:
    images, labels = data.train.batch(slice(0, 16))
    return images, labels


def test_the_loss_is_of_the_logits_over_the_temperature(new_stage: Make, bars: ImageData) -> None:
    images, labels = batch(bars)
    found = {}
    for temperature in (1.0, 4.0):
        stage = new_stage(temperature=temperature)
        stage.purifier.requires_grad_(True).eval()
        stage.defence.noise = generator(0)
        loss, _, logits = stage.loss(images, images, labels)
        found[temperature] = logits
        torch.testing.assert_close(loss, F.cross_entropy(logits, labels))
    torch.testing.assert_close(found[4.0] * 4, found[1.0])


def test_the_training_attack_is_of_the_logits_over_the_temperature(
    new_stage: Make, bars: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = batch(bars)
    seen: list[Tensor] = []
    real = F.cross_entropy

    def listening(scores: Tensor, *given: Tensor, **more: str) -> Tensor:
        seen.append(scores.detach())
        return real(scores, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(F, "cross_entropy", listening)
    for temperature in (1.0, 8.0):
        stage = new_stage(temperature=temperature, attack_steps=1)
        stage.attacked(images, labels, generator(1))
    torch.testing.assert_close(8 * seen[1], seen[0])


@pytest.mark.parametrize("wanted", [0.3, 1.0, 7.0])
def test_the_fitted_temperature_is_the_one_that_the_labels_were_drawn_at(wanted: float) -> None:
    source = Generator().manual_seed(0)
    logits = 3 * torch.randn(20_000, 5, generator=source)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=source).flatten()
    assert most_likely(wanted * logits, labels) == pytest.approx(wanted, rel=0.05)


def test_a_temperature_of_zero_is_found_on_clean_validation_images(
    new_stage: Make, learnt: nn.Module, bars: ImageData
) -> None:
    stage = new_stage(temperature=0.0)
    found = fitted_temperature(freeze(learnt), bars.validation, torch.device("cpu"))
    assert stage.temperature == found
    images, labels = bars.validation.batch(slice(None))
    logits = learnt(images).detach()

    def cost(temperature: float) -> float:
        return float(F.cross_entropy(logits / temperature, labels))

    assert cost(found) <= min(cost(0.9 * found), cost(1.1 * found))


def test_at_first_it_only_learns_to_rebuild_clean_images(
    new_stage: Make, bars: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = new_stage(epochs=2, reconstruct_epochs=1.0)
    assert stage.steps() == 3
    attacks: list[int] = []
    attacked = stage.attacked

    def counted(images: Tensor, labels: Tensor, source: Generator) -> Tensor:
        attacks.append(stage.step)
        return attacked(images, labels, source)

    monkeypatch.setattr(stage, "attacked", counted)
    history = train_in_memory(stage, Quiet())
    assert attacks == [3, 4, 5]
    assert [row["gradient_passes"] for row in history] == [48, 48 * 3]


def test_no_word_of_the_classifier_teaches_while_it_rebuilds(
    new_stage: Make, bars: ImageData
) -> None:
    images, labels = batch(bars)
    gradients = []
    for weight in (1.0, 2.0):
        stage = new_stage(reconstruct_epochs=1.0, reconstruction=weight, rate=1e-12)
        stage.update(images, labels, generator(0))
        gradients.append(
            [p.grad.clone() for p in stage.purifier.parameters() if p.grad is not None]
        )
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(2 * one, two)


def test_the_radius_grows_after_that(new_stage: Make) -> None:
    stage = new_stage(threat=0.2, reconstruct_epochs=1.0, eps_epochs=2.0)
    radii = []
    for step in range(3, 12):
        stage.step = step
        radii.append(stage.threat_now().eps)
    expected = [0.2 * min(1.0, number / 6) for number in range(1, 10)]
    assert radii == pytest.approx(expected)


def test_the_precision_of_its_attacks_is_measured_before_it_has_rebuilt_anything(
    new_stage: Make,
) -> None:
    asked = new_stage(reconstruct_epochs=1.0, eps_epochs=2.0, attack_precision="auto")
    assert asked.precision in ("float32", "bfloat16")
    assert 0 < asked.threat_now().eps < asked.threat.eps


def test_it_must_have_something_to_learn_from() -> None:
    with pytest.raises(CarsoError, match="reconstruction must be above 0 with reconstruct_epochs"):
        HardeningSettings(
            epochs=1, attack_step_size=0.1, reconstruct_epochs=0.5, reconstruction=0.0
        )
