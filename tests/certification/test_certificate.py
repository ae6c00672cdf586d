"""Certificates are sound: of a function whose truth is known, and of a defence under attack."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.certification.certificate import (
    ABSTAINED,
    Certificate,
    Smoothing,
    certified_accuracy,
    certify_image,
)
from carso.certification.smoothing import Votes
from carso.defence.defence import Carso
from carso.defence.noisy_labels import Labels, labels_of
from carso.errors import CarsoError

SHAPE = (1, 4, 4)


class HalfSpace(nn.Module):
    """Class 1 where the sum of the pixels is above a threshold: smoothed, its radius is the exact
    distance to the plane, whatever sigma."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, images: Tensor) -> Tensor:
        lead = images.flatten(1).sum(dim=1) - self.threshold
        return torch.stack([-lead, lead], dim=1)

    def distance(self, image: Tensor) -> float:
        return abs(float(image.sum()) - self.threshold) / math.sqrt(image.numel())


def certificate(
    labels: Labels, image: Tensor, smoothing: Smoothing, *, seed: int, label: int | None = None
) -> Certificate:
    def votes(what: str) -> Votes:
        return Votes(
            labels, image, sigma=smoothing.sigma, classes=2, batch=500, seed=seed, path=(what,)
        )

    return certify_image(votes("select"), votes("estimate"), smoothing, label=label)


@pytest.mark.parametrize("sigma", [0.25, 1.0])
def test_the_radius_approaches_the_true_one_from_below(sigma: float) -> None:
    plane = HalfSpace(threshold=8.0)
    image = torch.full(SHAPE, 0.5 + 0.5 * sigma / 4)  # half a sigma from the plane
    smoothing = Smoothing(sigma=sigma, draws=20_000)
    found = certificate(labels_of(plane), image, smoothing, seed=0)
    true = plane.distance(image)
    assert found.prediction == 1
    assert 0.85 * true < found.radius < true


def test_certificates_err_no_more_often_than_promised() -> None:
    """1,000 repetitions at alpha = 0.05; the exact radius is known."""
    plane, image = HalfSpace(threshold=8.0), torch.full(SHAPE, 0.6)
    smoothing = Smoothing(sigma=0.5, draws=200, selection=20, alpha=0.05)
    true, labels = plane.distance(image), labels_of(plane)
    wrong = sum(
        certificate(labels, image, smoothing, seed=seed).radius > true for seed in range(1000)
    )
    assert wrong <= 75


def test_no_attack_within_the_radius_changes_the_smoothed_answer() -> None:
    """The worst attack on a half space goes straight to the plane."""
    plane, image = HalfSpace(threshold=8.0), torch.full(SHAPE, 0.6)
    smoothing = Smoothing(sigma=0.5, draws=5000)
    found = certificate(labels_of(plane), image, smoothing, seed=0)
    step = found.radius / math.sqrt(image.numel())
    for share in (0.5, 0.8, 0.999):
        attacked = certificate(labels_of(plane), image - share * step, smoothing, seed=1)
        assert attacked.prediction in (found.prediction, ABSTAINED)
    near = certificate(labels_of(plane), image - 0.5 * step, smoothing, seed=1)
    assert near.prediction == found.prediction


class Blurred:
    """A purifier that ignores the image half of the time: a defence with noise of its own."""

    layers = ("0",)
    image_shape = SHAPE

    def sample(self, activations: list[Tensor], samples: int, generator: Generator) -> Tensor:
        (image,) = activations
        coin = torch.rand((samples, len(image), 1, 1, 1), generator=generator) < 0.5
        return torch.where(coin, image.clamp(0, 1), torch.zeros(()))


def test_the_defence_own_noise_is_part_of_the_function() -> None:
    """Half of the candidates are black, so neither class can win more than half for sure."""
    network = nn.Sequential(nn.Identity(), HalfSpace(threshold=2.0))
    defence = Carso(network, Blurred(), samples=1)
    image = torch.full(SHAPE, 0.9)
    smoothing = Smoothing(sigma=0.1, draws=2000)
    found = certificate(labels_of(defence), image, smoothing, seed=0)
    assert found.prediction == ABSTAINED
    bare = certificate(labels_of(network), image, smoothing, seed=0)
    assert bare.prediction == 1
    assert bare.radius == pytest.approx(smoothing.largest_radius, rel=1e-5)


def test_noisy_images_reach_the_model_unclipped() -> None:
    seen = []

    def labels(images: Tensor, noise: Generator) -> Tensor:
        seen.append(images)
        return torch.zeros(len(images), dtype=torch.int64)

    certificate(labels, torch.zeros(SHAPE), Smoothing(sigma=1.0, draws=1000), seed=0)
    every = torch.cat(seen)
    assert float(every.min()) < -2
    assert float(every.std()) == pytest.approx(1.0, abs=0.02)


def test_draws_end_where_nothing_can_change_any_more() -> None:
    smoothing = Smoothing(sigma=0.5, draws=10_000, batch=100)
    coin = certificate(labels_of(HalfSpace(8.0)), torch.full(SHAPE, 0.5), smoothing, seed=3)
    assert coin.decided == "hopeless"
    assert coin.spent < smoothing.draws
    assert coin.prediction == ABSTAINED
    wrong = certificate(
        labels_of(HalfSpace(8.0)), torch.full(SHAPE, 0.9), smoothing, seed=0, label=0
    )
    assert (wrong.decided, wrong.spent) == ("wrong", 0)


def test_ending_early_changes_no_certificate() -> None:
    plane = HalfSpace(8.0)
    for seed in range(20):
        image = torch.full(SHAPE, 0.5 + 0.003 * seed)
        ended = certificate(labels_of(plane), image, Smoothing(sigma=0.5, draws=2000), seed=seed)
        whole = certificate(
            labels_of(plane), image, Smoothing(sigma=0.5, draws=2000, batch=2000), seed=seed
        )
        assert ended.prediction == whole.prediction
        assert ended.radius == whole.radius


def test_certified_accuracy_falls_with_the_radius() -> None:
    radii, right = torch.tensor([0.0, 0.2, 0.5, 0.9]), torch.tensor([True, True, False, True])
    found = [certified_accuracy(radii, right, at).tolist() for at in (0.0, 0.2, 0.3, 1.0)]
    assert found == [
        [False, True, False, True],
        [False, True, False, True],
        [False, False, False, True],
        [False] * 4,
    ]


@pytest.mark.parametrize(
    "wrong", [{"sigma": 0.0}, {"sigma": 1.0, "draws": 5}, {"sigma": 1.0, "alpha": 1.5}]
)
def test_settings_that_can_certify_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(CarsoError):
        Smoothing(**wrong)  # type: ignore[arg-type]
