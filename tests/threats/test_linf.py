"""The l-infinity ball: what is projected lies in it, and what lies outside is found."""

import dataclasses

import pytest
import torch
from torch import Tensor

from carso.errors import CarsoError
from carso.threats.linf import Linf

EPSILONS = (1 / 255, 8 / 255, 0.1, 0.5, 1.0)


def images(seed: int = 0, count: int = 8) -> Tensor:
    """Random images that also have many pixels at the very ends of [0, 1]."""
    source = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(count, 3, 6, 6, generator=source) - 0.5).clamp(0, 1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("eps", [0, -0.1, 1.01, 8.0, float("nan"), float("inf")])
def test_an_eps_off_the_pixel_scale_is_refused(eps: float) -> None:
    with pytest.raises(CarsoError, match=r"\[0, 1\] pixel scale \(8/255 = 0\.0314\)") as caught:
        Linf(eps=eps)
    assert str(caught.value).endswith(f"got {eps}")


@pytest.mark.parametrize("eps", EPSILONS)
def test_an_eps_on_the_pixel_scale_is_kept(eps: float) -> None:
    assert Linf(eps=eps).eps == eps
    assert Linf(eps=eps) == Linf(eps=eps)


def test_a_threat_is_frozen_and_keyword_only() -> None:
    threat = Linf(eps=0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        threat.eps = 0.2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Linf(0.1)  # type: ignore[misc]


def test_scaled_multiplies_eps_and_checks_it() -> None:
    assert Linf(eps=0.1).scaled(0.5) == Linf(eps=0.05)
    with pytest.raises(CarsoError):
        Linf(eps=0.6).scaled(2)


@pytest.mark.parametrize("eps", EPSILONS)
def test_projection_is_the_nearest_image_of_the_ball(eps: float) -> None:
    origin = images().double()
    wanted = origin + 2 * torch.randn(origin.shape, generator=generator(), dtype=torch.float64)
    got = Linf(eps=eps).project(wanted, origin)
    low, high = (origin - eps).clamp(min=0), (origin + eps).clamp(max=1)
    assert (got >= low).all()
    assert (got <= high).all()
    # Pixel by pixel: no point of the interval is nearer, so it is the wanted one or an end.
    inside = (wanted >= low) & (wanted <= high)
    assert torch.equal(got[inside], wanted[inside])
    assert torch.equal(got[wanted < low], low[wanted < low])
    assert torch.equal(got[wanted > high], high[wanted > high])


@pytest.mark.parametrize("eps", EPSILONS)
def test_projection_changes_its_arguments_not_at_all_and_twice_is_once(eps: float) -> None:
    origin, wanted = images(0), images(1)
    origin_before, wanted_before = origin.clone(), wanted.clone()
    threat = Linf(eps=eps)
    once = threat.project(wanted, origin)
    assert torch.equal(origin, origin_before)
    assert torch.equal(wanted, wanted_before)
    assert torch.equal(threat.project(once, origin), once)


@pytest.mark.parametrize("eps", EPSILONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ball_contains_what_was_projected_and_what_was_drawn(
    eps: float, dtype: torch.dtype
) -> None:
    threat = Linf(eps=eps)
    for seed in range(10):
        origin, wanted = images(seed).to(dtype), 3 * images(seed + 100).to(dtype) - 1
        assert threat.contains(threat.project(wanted, origin), origin).all()
        drawn = threat.random_start(origin, generator(seed))
        assert drawn.dtype == dtype
        assert threat.contains(drawn, origin).all()
    assert threat.contains(origin, origin).all()


def test_contains_answers_image_by_image() -> None:
    threat = Linf(eps=0.1)
    origin = torch.full((6, 1, 4, 4), 0.95)
    changed = origin.clone()
    changed[0, 0, 1, 1] += 0.04  # fine
    changed[1, 0, 1, 1] -= 0.1  # on the edge
    changed[2, 0, 3, 3] -= 0.101  # outside the ball
    changed[3, 0, 0, 0] = 1.001  # inside the ball but no image
    changed[4, 0, 2, 2] = torch.nan
    changed[5, 0, 2, 2] = torch.inf
    assert threat.contains(changed, origin).tolist() == [True, True, False, False, False, False]


def test_below_zero_is_outside() -> None:
    origin = torch.zeros(1, 1, 2, 2)
    assert not Linf(eps=0.1).contains(origin - 0.001, origin).any()


def test_random_start_fills_the_ball_evenly() -> None:
    origin = torch.full((4, 1, 100, 100), 0.5)
    difference = Linf(eps=0.2).random_start(origin, generator()) - origin
    assert difference.abs().max() <= 0.2 + 1e-6
    counts = torch.histc(difference, bins=10, min=-0.2, max=0.2)
    expected = difference.numel() / 10
    assert ((counts - expected).abs() < 6 * expected**0.5).all()


def test_random_start_draws_from_its_generator_which_advances() -> None:
    threat, origin = Linf(eps=0.2), images()
    state = torch.get_rng_state()
    source = generator(3)
    first, second = threat.random_start(origin, source), threat.random_start(origin, source)
    assert torch.equal(first, threat.random_start(origin, generator(3)))
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_distance_is_the_largest_change_of_a_pixel() -> None:
    origin = torch.full((2, 1, 3, 3), 0.5)
    changed = origin.clone()
    changed[0, 0, 1, 1] -= 0.25
    changed[0, 0, 0, 0] += 0.125
    assert Linf(eps=0.1).distance(changed, origin).tolist() == [0.25, 0]


def test_a_step_is_the_sign_of_the_gradient_in_every_pixel() -> None:
    gradient = torch.tensor([-3.0, 0.0, 1e-30, 2.0]).view(1, 1, 2, 2)
    step = Linf(eps=0.1).ascend(gradient, 0.25)
    assert step.flatten().tolist() == [-0.25, 0.0, 0.25, 0.25]
