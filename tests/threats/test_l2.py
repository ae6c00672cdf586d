"""The Euclidean ball: what is projected or drawn lies in it; a step has the length asked for."""

import math

import pytest
import torch
from torch import Tensor

from carso.errors import CarsoError
from carso.randomness import Share, shared
from carso.threats.l2 import L2

EPSILONS = (0.001, 0.25, 0.5, 3.0, 20.0)


def images(seed: int = 0, count: int = 8) -> Tensor:
    """Random images that also have many pixels at the very ends of [0, 1]."""
    source = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(count, 3, 16, 16, generator=source) - 0.5).clamp(0, 1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def lengths(change: Tensor) -> Tensor:
    return change.double().flatten(1).norm(dim=1)


@pytest.mark.parametrize("eps", [0, -0.1, math.nan, math.inf])
def test_a_radius_that_is_none_is_refused_with_its_unit(eps: float) -> None:
    with pytest.raises(CarsoError, match=r"^eps of L2 is the length of the whole change") as caught:
        L2(eps=eps)
    assert str(caught.value).endswith(f"got {eps}")


def test_the_radius_changes_and_the_norm_does_not() -> None:
    assert L2(eps=0.5).scaled(0.5) == L2(eps=0.25) == L2(eps=3.0).with_eps(0.25)
    assert L2(eps=0.5).norm == "L2"
    assert not hasattr(L2(eps=0.5), "__dict__")


@pytest.mark.parametrize("eps", EPSILONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_projected_or_drawn_is_inside_also_after_clipping(
    eps: float, dtype: torch.dtype
) -> None:
    threat = L2(eps=eps)
    for seed in range(10):
        origin, wanted = images(seed).to(dtype), 3 * images(seed + 100).to(dtype) - 1
        found = threat.project(wanted, origin)
        assert threat.contains(found, origin).all()
        assert found.dtype == dtype
        assert bool((lengths(found - origin) <= eps * (1 + 1e-6) + 1e-6).all())
        assert ((found >= 0) & (found <= 1)).all()
        drawn = threat.random_start(origin, generator(seed))
        assert drawn.dtype == dtype
        assert threat.contains(drawn, origin).all()


def test_inside_an_image_is_left_alone_and_outside_it_goes_to_the_nearest_point() -> None:
    origin = torch.full((3, 1, 2, 2), 0.5)
    change = torch.tensor([[0.1, 0, 0, 0], [0.3, 0.4, 0, 0], [3.0, 0, 4.0, 0]]).view(3, 1, 2, 2)
    found = L2(eps=0.25).project(origin + change, origin)
    assert torch.equal(found[0], (origin + change)[0])
    wanted = torch.tensor([[0.15, 0.2, 0, 0], [0.15, 0, 0.2, 0]]).view(2, 1, 2, 2)
    torch.testing.assert_close(found[1:], origin[1:] + wanted)


def test_contains_answers_image_by_image() -> None:
    origin = torch.full((6, 1, 4, 4), 0.9)
    changed = origin.clone()
    changed[0, 0, 0, 0] -= 0.3
    changed[1] -= 0.4 / 4  # sixteen pixels of 0.1 each: on the edge
    changed[2] -= 0.4004 / 4  # outside by a thousandth
    changed[3, 0, 0, 0] = 1.001  # inside the ball but no image
    changed[4, 0, 2, 2] = torch.nan
    changed[5, 0, 2, 2] = -torch.inf
    inside = L2(eps=0.4).contains(changed, origin)
    assert inside.tolist() == [True, True, False, False, False, False]
    torch.testing.assert_close(
        L2(eps=0.4).distance(changed, origin)[:3], torch.tensor([0.3, 0.4, 0.4004])
    )


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e25])
def test_a_step_goes_along_the_gradient_whatever_that_is_worth(size: float) -> None:
    gradient = torch.randn(4, 3, 8, 8, generator=generator()) * size
    step = L2(eps=1.0).ascend(gradient, 0.3)
    torch.testing.assert_close(lengths(step), torch.full((4,), 0.3).double())
    cosine = torch.cosine_similarity((gradient / size).flatten(1), step.flatten(1))
    torch.testing.assert_close(cosine, torch.ones(4))


def test_of_all_steps_of_that_length_none_raises_a_linear_loss_more() -> None:
    gradient = torch.randn(1, 3, 4, 4, generator=generator())
    best = (gradient * L2(eps=1.0).ascend(gradient, 0.3)).sum()
    others = torch.randn(500, 3, 4, 4, generator=generator(1))
    others *= 0.3 / lengths(others).view(-1, 1, 1, 1).float()
    assert (gradient * others).sum(dim=(1, 2, 3)).max() < best


def test_no_gradient_gives_no_step_and_a_nan_is_not_patched_over() -> None:
    gradient = torch.zeros(2, 1, 4, 4)
    gradient[1, 0, 0, 0] = torch.nan
    step = L2(eps=1.0).ascend(gradient, 0.3)
    assert torch.equal(step[0], torch.zeros(1, 4, 4))
    assert step[1].isnan().any()


def test_a_random_start_is_uniform_in_the_ball() -> None:
    """In two dimensions: a quarter of the draws within half the radius, no direction preferred."""
    origin = torch.full((20_000, 1, 1, 2), 0.5)
    change = L2(eps=0.4).random_start(origin, generator()) - origin
    share = (lengths(change) / 0.4).square()  # uniform in [0, 1] where the draw is in the disc
    counts = torch.histc(share.float(), bins=10, min=0, max=1)
    assert counts.sum() == 20_000
    assert ((counts - 2000).abs() < 6 * 2000**0.5).all()
    angle = torch.atan2(change[:, 0, 0, 0], change[:, 0, 0, 1])
    counts = torch.histc(angle, bins=8, min=-math.pi, max=math.pi)
    assert ((counts - 2500).abs() < 6 * 2500**0.5).all()


def test_processes_draw_together_what_one_draws() -> None:
    origin, threat = images(), L2(eps=0.5)
    whole = threat.random_start(origin, generator(3))
    for part in (slice(0, 8, 2), slice(1, 8, 2)):
        with shared(Share(part, 8)):
            own = threat.random_start(origin[part], generator(3))
        assert torch.equal(own, whole[part])
    state, source = torch.get_rng_state(), generator(3)
    assert torch.equal(threat.random_start(origin, source), whole)
    assert not torch.equal(threat.random_start(origin, source), whole)
    assert torch.equal(torch.get_rng_state(), state)


def test_at_the_overwhelming_radius_nearly_any_image_is_in_reach() -> None:
    threat = L2(eps=0.5)
    reach = threat.with_eps(threat.overwhelming((3, 16, 16)))
    assert reach.contains(images(1), images(0)).all()
    black, white = torch.zeros(1, 3, 16, 16), torch.ones(1, 3, 16, 16)
    assert torch.allclose(reach.project(white, black), torch.tensor(0.95))
