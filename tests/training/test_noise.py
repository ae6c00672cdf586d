"""Training for certificates: Gaussian noise in place of attacks, on purifiers and classifiers."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.defence.around import purifier_around
from carso.defence.defence import Carso
from carso.defence.noisy_labels import labels_of, noisy
from carso.defence.on_disk import stored
from carso.errors import CarsoError
from carso.randomness import generator, seeded
from carso.scenario.classifier_training_settings import ClassifierTrainingSettings
from carso.scenario.hardening_settings import HardeningSettings
from carso.scenario.parser import read
from carso.threats.l2 import L2
from carso.training.hardening import HardeningStage
from carso.training.loop import Quiet, train_in_memory
from carso.training.noise_accuracy import accuracy_under_noise
from carso.training.recipes import hardening_of_file, with_sigma
from carso.training.train import train

CPU = torch.device("cpu")
NOISE: dict[str, Any] = {"against": "noise", "sigma": 0.3, "attack_step_size": 0.0}
Make = Callable[..., HardeningStage]


def test_noise_is_gaussian_and_nothing_is_clipped(new_stage: Make, bars: ImageData) -> None:
    stage = new_stage(**NOISE)
    images, labels = bars.train.batch(slice(None))
    found = stage.attacked(images, labels, generator(0, "test"))
    assert float(found.min()) < -0.3
    assert float((found - images).std()) == pytest.approx(0.3, rel=0.05)
    assert float((found - images).mean()) == pytest.approx(0, abs=0.02)


def test_sigma_grows_where_asked(new_stage: Make, bars: ImageData) -> None:
    stage = new_stage(**NOISE, eps_epochs=1.0)
    images, labels = bars.train.batch(slice(None))
    first = stage.attacked(images, labels, generator(0, "test")) - images
    stage.step = 1_000_000
    last = stage.attacked(images, labels, generator(0, "test")) - images
    torch.testing.assert_close(first * stage.steps(), last)


def test_hardening_on_noise_helps_under_noise_and_leaves_the_classifier(
    new_stage: Make, learnt: nn.Module
) -> None:
    stage = new_stage(**NOISE, epochs=12, rate=0.03, average=0.0)
    history = train_in_memory(stage, Quiet())
    assert history[-1]["validation_noise_accuracy"] > history[0]["validation_noise_accuracy"] + 0.05
    assert "validation_adaptive_accuracy" not in history[0]
    assert history[0]["gradient_passes"] == 48  # one for each image that was seen
    best = max(row["validation_noise_accuracy"] for row in history)
    assert stage.best_accuracy == best
    for name, value in stage.defence.classifier.classifier.state_dict().items():
        assert torch.equal(value, learnt.state_dict()[name]), name


def test_it_judges_single_candidates_under_noise(
    new_stage: Make, bars: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share that is right is of single candidates, though the defence has two."""
    stage = new_stage(**NOISE)
    asked = []
    four_steps = Carso.four_steps

    def watched(self: Carso, images: Tensor, reduction: Any, noise: Any, samples: int) -> Tensor:
        asked.append((samples, float(images.min())))
        return four_steps(self, images, reduction, noise, samples)

    monkeypatch.setattr(Carso, "four_steps", watched)
    split, source = bars.validation, generator(0, "v")
    found = accuracy_under_noise(stage.judged, split, CPU, sigma=0.3, source=source)
    assert 0 < found < 1
    assert len(asked) == 4
    assert all(samples == 1 and low < 0 for samples, low in asked)
    again = accuracy_under_noise(stage.judged, split, CPU, sigma=0.3, source=generator(0, "v"))
    assert again == found


@pytest.mark.parametrize("kind", ["vae", "unet", "flow"])
def test_a_purifier_may_read_the_image_itself(
    kind: str, network: nn.Module, bars: ImageData
) -> None:
    """Denoised smoothing: the classifier is not run before the purifier."""
    painted = {"condition": 8, "latent": 8, "decoder_width": 16}
    shape = painted if kind == "vae" else {"widths": (4, 8), "blocks": (0, 1)}
    with seeded(0, "purifier"):
        purifier = purifier_around(network, (1, 8, 8), layers=["input"], kind=kind, **shape)
    settings = HardeningSettings(
        epochs=4, batch_size=16, rate=0.02, validation_images=16, reconstruction=1.0, **NOISE
    )
    stage = HardeningStage(
        freeze(network), purifier, bars, hardening=settings, threat=L2(eps=0.5), seed=0,
        device=CPU, identity={},
    )  # fmt: skip
    history = train_in_memory(stage, Quiet())
    assert history[-1]["reconstruction"] < history[0]["reconstruction"]
    assert stage.defence.representation.observed == [None]


class Wide(nn.Module):
    """A classifier that has a layer called input, and counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.out, self.passes = nn.Conv2d(1, 2, 1), nn.Linear(32, 3), 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        return self.out(self.input(images).flatten(1))  # type: ignore[no-any-return]


def test_the_input_is_a_layer_unless_the_classifier_has_one_of_that_name() -> None:
    images = torch.rand(2, 1, 4, 4, requires_grad=True)
    network = Wide()
    (shown,) = carso.defence.representation.Representation(network, ["input"])(images)
    assert shown.shape == (2, 2, 4, 4)
    representation = carso.defence.representation.Representation(
        nn.Sequential(nn.Identity(), network), ["1.out", "input"]
    )
    activations, logits = representation.with_logits(images)
    assert torch.equal(activations[1], images)
    assert torch.equal(activations[0], logits)
    alone = carso.defence.representation.Representation(nn.Sequential(network), ["input"])
    assert alone.shapes((1, 4, 4)) == [(1, 4, 4)]
    before = network.passes
    assert torch.equal(alone(images)[0], images)
    assert network.passes == before  # nothing but the image is wanted


def test_noisy_images_pass_only_through_their_own_door(network: nn.Module) -> None:
    purifier = purifier_around(
        network, (1, 8, 8), layers=["norm"], kind="unet", widths=(4, 8), blocks=(0, 1)
    ).deployed()
    defence = Carso(network, purifier)
    images = noisy(torch.rand(3, 1, 8, 8), 1.0, generator(0, "noise"))
    assert labels_of(defence)(images, generator(0, "own")).shape == (3,)
    for asked in (defence, defence.predict, defence.purify, defence.explain):
        with pytest.raises(CarsoError, match=r"must lie in \[0, 1\]"):
            asked(images)


# Scenarios and commands.


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"against": "noise"}, "sigma must be above 0"),
        ({"sigma": 0.5, "attack_step_size": 0.1}, "sigma must be left out but where against"),
        ({"against": "nois"}, "against must be one of"),
        ({"against": "noise", "sigma": 0.5, "replays": 2}, "replays must be 0 against noise"),
        ({}, "attack_step_size must be above 0"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(CarsoError, match=says):
        HardeningSettings(epochs=1, **settings)


def test_a_classifier_on_noise_needs_its_sigma() -> None:
    with pytest.raises(CarsoError, match="sigma must be above 0"):
        ClassifierTrainingSettings(epochs=1, method="noise")
    with pytest.raises(CarsoError, match="sigma must be left out"):
        ClassifierTrainingSettings(epochs=1, method="clean", sigma=0.5)


def test_sigma_reaches_every_stage_that_has_noise(tmp_path: Path) -> None:
    both = with_sigma(read("fashion-certified", preset="noise-classifier"), 0.25)
    assert both.hardening is not None
    assert both.classifier.training is not None
    assert (both.hardening.sigma, both.classifier.training.sigma) == (0.25, 0.25)
    with pytest.raises(CarsoError, match="fashion-retrofit does not"):
        with_sigma(read("fashion-retrofit"), 0.25)
    weights = tmp_path / "weights.safetensors"
    weights.touch()
    made = hardening_of_file(read("fashion-retrofit"), weights, against="noise", sigma=0.1)
    assert made.hardening is not None
    assert (made.hardening.against, made.hardening.sigma) == ("noise", 0.1)


def test_a_classifier_alone_on_noise(bars: ImageData, tmp_path: Path) -> None:
    """Trained through the same loop, it is there for --bare, and better under noise."""
    found = {}
    for method, sigma in (("clean", 0.0), ("noise", 0.8)):
        settings = ClassifierTrainingSettings(
            method=method, sigma=sigma, epochs=12, batch_size=16, learning_rate=0.1, average=0.0
        )
        scenario = read("fashion-certified")
        classifier = replace(scenario.classifier, width=1, training=settings)
        folder = tmp_path / method
        trained = train(
            replace(scenario, classifier=classifier), bars, folder, device=CPU, display=Quiet(),
            classifier_only=True,
        )  # fmt: skip
        assert trained is None
        network = stored(folder, None, CPU).classifier
        found[method] = accuracy_under_noise(
            network, bars.validation, CPU, sigma=0.8, source=generator(0, "v")
        )
    assert found["noise"] > found["clean"] + 0.05
    with pytest.raises(CarsoError, match="not finished"):
        carso.load(tmp_path / "noise")


def test_a_classifier_that_is_brought_is_not_trained(bars: ImageData, tmp_path: Path) -> None:
    with pytest.raises(CarsoError, match="leave --classifier out"):
        train(
            read("fashion-certified"), bars, tmp_path, device=CPU, display=Quiet(),
            given=tmp_path / "weights.safetensors", classifier_only=True,
        )  # fmt: skip


def test_hardening_on_noise_from_python(network: nn.Module, bars: ImageData) -> None:
    defence = carso.harden(
        copy.deepcopy(network), bars, layers=["norm"], eps=0.1, against="noise", sigma=0.3,
        epochs=1, batch_size=16, widths=(4, 6), blocks=(1, 1), validation_images=8,
    )  # fmt: skip
    assert defence.scenario.hardening is not None
    assert defence.scenario.hardening.against == "noise"
