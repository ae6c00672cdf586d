"""What a certificate promises, put to the test: no attack within it wins, and no bound is too high
more often than it says."""

import math
from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.attacks.pgd import PGD
from carso.certification.bounds import l2_radius, lower_bound
from carso.certification.certificate import Smoothing
from carso.certification.certified_images import Certified
from carso.certification.certify import certify
from carso.certification.smoothed_view import SmoothedView
from carso.certification.smoothing import GRID, ROUNDING, on_grid
from carso.randomness import generator, seeded
from carso.threats.l2 import L2

SHAPE, CLASSES, SIGMA = (1, 6, 6), 3, 0.4


class Patches(nn.Module):
    """A network that is neither linear nor sure."""

    def __init__(self) -> None:
        super().__init__()
        with seeded(0, "patches"):
            self.seen = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Tanh(), nn.Flatten())
            self.out = nn.Linear(128, CLASSES)
        with torch.no_grad():
            self.out.weight.mul_(4)

    def forward(self, images: Tensor) -> Tensor:
        return self.out(self.seen(images))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return certify(Patches(), *batch(), sigma=SIGMA, draws=1000, name="patches")


def batch() -> tuple[Tensor, Tensor]:
    images = torch.rand(24, *SHAPE, generator=Generator().manual_seed(1))
    with torch.no_grad():
        return images, Patches()(images).argmax(dim=1)


def attacked(index: int, radius: float) -> Tensor:
    """The image after an attack on the smoothed network, within an L2 radius."""
    images, labels = batch()
    view = SmoothedView(Patches(), sigma=SIGMA, copies=64, seed=0)
    attack = PGD(steps=10, step_size=radius / 3)
    some = slice(index, index + 1)
    return attack(
        view, images[some], labels[some], threat=L2(eps=radius), generator=generator(0, "attack")
    )


def votes_at(image: Tensor, draws: int = 2000) -> Tensor:
    smoothing = Smoothing(sigma=SIGMA, draws=draws)
    asked = Certified(
        model=Patches().eval(), images=image, labels=torch.zeros(1), smoothing=smoothing, seed=7,
        classes=CLASSES,
    )  # fmt: skip
    return asked.votes(0, "verdict").count(draws)


def test_no_attack_within_the_radius_changes_the_smoothed_prediction(
    record: dict[str, Any],
) -> None:
    certified = [i for i, radius in enumerate(record["images"]["radius"]) if radius > 0.1]
    assert len(certified) >= 5
    fell = 0
    for index in certified[:8]:
        radius, selected = (record["images"][key][index] for key in ("radius", "selected"))
        before = votes_at(batch()[0][index : index + 1])
        after = votes_at(attacked(index, radius))
        assert int(after.argmax()) == selected
        fell += int(before[selected] - after[selected])
    assert fell > 0  # the attack does something


def test_accuracy_under_attack_is_not_below_the_certified_one(record: dict[str, Any]) -> None:
    labels, at = batch()[1], 0.25
    stood = [int(votes_at(attacked(i, at)).argmax()) == int(labels[i]) for i in range(12)]
    images = record["images"]
    certified = [
        images["selected"][i] == int(labels[i]) and images["radius"][i] >= at for i in range(12)
    ]
    assert sum(certified) > 0
    assert all(one >= other for one, other in zip(stood, certified, strict=True))


@pytest.mark.parametrize(("single", "draws", "alpha"), [(0.9, 100, 0.05), (0.62, 300, 0.01)])
def test_the_estimator_errs_no_more_often_than_alpha(
    single: float, draws: int, alpha: float
) -> None:
    """1,000 repetitions on a function whose probability, and so its radius, is known."""
    source = Generator().manual_seed(0)
    hits = (torch.rand(1000, draws, generator=source) < single).sum(dim=1)
    true = l2_radius(single, SIGMA)
    found = [l2_radius(lower_bound(int(count), draws, alpha), SIGMA) for count in hits]
    wrong = sum(radius > true for radius in found)
    assert wrong <= 1000 * alpha + 3 * math.sqrt(1000 * alpha)  # alpha, and what chance allows
    assert max(found) > 0.8 * true  # it is no bound that never errs because it says nothing


# Floating point.


def test_noisy_images_lie_on_a_grid_that_does_not_depend_on_the_image() -> None:
    source = Generator().manual_seed(0)
    noise = torch.randn(50, *SHAPE, generator=source, dtype=torch.float64)
    image = torch.rand(SHAPE, generator=source)
    found = on_grid(image, noise, 0.7)
    assert found.dtype == torch.float32
    steps = found.double() * GRID
    assert torch.equal(steps, steps.round())
    assert float((found.double() - image.double() - 0.7 * noise).abs().max()) <= 0.5 / GRID + 1e-12


def test_a_shift_by_steps_of_the_grid_shifts_every_draw_exactly() -> None:
    """What gives an image away in plain float32: there, sums of other images have other last
    bits."""
    source = Generator().manual_seed(0)
    noise = torch.randn(200, *SHAPE, generator=source, dtype=torch.float64)
    image = torch.rand(SHAPE, generator=source)
    shift = 12345 / GRID
    moved, still = on_grid(image.double() + shift, noise, 0.5), on_grid(image, noise, 0.5)
    apart = int(((moved.double() - still.double()) != shift).sum())
    assert apart / noise.numel() < ROUNDING * 100  # none, at this number of draws
    plain = (image + shift).float() + 0.5 * noise.float() - (image + 0.5 * noise.float())
    assert int((plain.double() != shift).sum()) > noise.numel() / 10


def test_what_rounding_may_change_is_taken_off_the_probability(record: dict[str, Any]) -> None:
    images = record["images"]
    index = images["votes"].index(max(images["votes"]))
    bound = lower_bound(images["votes"][index], 1000, 0.001)
    lost = ROUNDING * math.prod(SHAPE)
    assert images["radius"][index] == l2_radius(bound, SIGMA, lost=lost) < l2_radius(bound, SIGMA)


def test_rounding_counts_at_the_image_and_at_the_attacked_one() -> None:
    """The probability of the attacked image, by the theorem and less what is lost there, is still
    above one half at the radius, and no longer a little beyond."""
    lost, normal = 1e-4, NormalDist()
    radius = l2_radius(0.9, SIGMA, lost=lost)
    at = [normal.cdf(normal.inv_cdf(0.9 - lost) - r / SIGMA) for r in (radius, radius + 1e-6)]
    assert at[0] - lost >= 0.5 - 1e-12
    assert at[1] - lost < 0.5
    assert l2_radius(0.5 + lost, SIGMA, lost=lost) == 0.0
    assert l2_radius(0.5 + 3 * lost, SIGMA, lost=lost) > 0.0
