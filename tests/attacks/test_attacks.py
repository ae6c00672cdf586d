"""FGSM and PGD: inside the ball, uphill, repeatable, and exact where the answer is known."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.attacks.attack import Attack, verified
from carso.attacks.pgd import FGSM, PGD, cross_entropy_gradient
from carso.errors import CarsoError
from carso.threats.l2 import L2
from carso.threats.linf import Linf

ATTACKS = {
    "fgsm": FGSM(),
    "pgd": PGD(steps=10),
    "pgd from the image": PGD(steps=10, random_start=False),
    "pgd with steps beyond the ball": PGD(steps=3, step_size=1.0),
}


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(count: int = 8, *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random images that also have many pixels at the very ends of [0, 1]."""
    wide = 2 * torch.rand(count, 1, 6, 6, generator=generator(), dtype=torch.float64) - 0.5
    return wide.clamp(0, 1).to(dtype)


def labels(count: int = 8, classes: int = 3) -> Tensor:
    return torch.randint(classes, (count,), generator=generator(1))


@pytest.fixture(scope="module")
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 16, 3)
        ).eval()


class TwoClasses(nn.Module):
    """Logits linear in the image: its worst perturbation of any size is known."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(2, 36, generator=generator(2), dtype=torch.float64)
        self.weight = nn.Parameter(weight)

    def forward(self, images: Tensor) -> Tensor:
        return 0.1 * images.flatten(1) @ self.weight.T

    def uphill(self, labels: Tensor) -> Tensor:
        """The sign of the cross-entropy's gradient: away from the label, to the other class."""
        other = self.weight.detach()[1 - labels] - self.weight.detach()[labels]
        return other.sign().view(-1, 1, 6, 6)


@pytest.mark.parametrize("eps", [2 / 255, 0.1, 0.7])
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_stays_in_its_ball(network: nn.Module, name: str, eps: float) -> None:
    threat, x = Linf(eps=eps), images()
    before = x.clone()
    adversarial = ATTACKS[name](network, x, labels(), threat=threat, generator=generator())
    assert adversarial.shape == x.shape
    assert adversarial.dtype == x.dtype
    assert not adversarial.requires_grad
    assert (adversarial - x).abs().max() <= eps + 1e-6
    assert adversarial.min() >= 0
    assert adversarial.max() <= 1
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_raises_the_loss_of_every_image(network: nn.Module, name: str) -> None:
    x, y = images(), labels()
    adversarial = ATTACKS[name](network, x, y, threat=Linf(eps=0.05), generator=generator())
    with torch.no_grad():
        clean = F.cross_entropy(network(x), y, reduction="none")
        attacked = F.cross_entropy(network(adversarial), y, reduction="none")
    assert (attacked > clean).all()


def test_fgsm_takes_one_step_of_eps_from_the_image_itself() -> None:
    model, x, y = TwoClasses(), images(dtype=torch.float64), labels(classes=2)
    for eps in (0.03, 0.4):
        expected = (x + eps * model.uphill(y)).clamp(0, 1)
        got = FGSM()(model, x, y, threat=Linf(eps=eps), generator=generator())
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_pgd_adds_up_its_steps_until_the_edge_of_the_ball(steps: int) -> None:
    """Of a linear model the sign never changes, so k steps of h go min(k h, eps) far."""
    model, x, y = TwoClasses(), images(dtype=torch.float64), labels(classes=2)
    attack = PGD(steps=steps, step_size=0.02, random_start=False)
    expected = (x + min(steps * 0.02, 0.1) * model.uphill(y)).clamp(0, 1)
    got = attack(model, x, y, threat=Linf(eps=0.1), generator=generator())
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-15)


def test_pgd_starts_from_a_uniform_draw_of_the_ball() -> None:
    model, x, y = TwoClasses(), images(dtype=torch.float64), labels(classes=2)
    threat = Linf(eps=0.1)
    start = threat.random_start(x, generator(5))
    expected = threat.project(start + 0.01 * model.uphill(y), x)
    got = PGD(steps=1)(model, x, y, threat=threat, generator=generator(5))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-15)


def test_pgd_reaches_the_corner_of_the_ball_from_any_start() -> None:
    model, x, y = TwoClasses(), images(dtype=torch.float64), labels(classes=2)
    corner = (x + 8 / 255 * model.uphill(y)).clamp(0, 1)
    for seed in range(3):
        got = PGD()(model, x, y, threat=Linf(eps=8 / 255), generator=generator(seed))
        torch.testing.assert_close(got, corner, rtol=0, atol=1e-15)


def test_pgd_defaults_are_those_of_the_paper() -> None:
    assert PGD() == PGD(steps=40, step_size=0.01, random_start=True)


def test_gradient_is_that_of_the_summed_loss_and_touches_nothing_else(network: nn.Module) -> None:
    x, y = images(), labels()
    gradient = cross_entropy_gradient(network, x, y)
    alone = [cross_entropy_gradient(network, x[i : i + 1], y[i : i + 1]) for i in range(len(x))]
    torch.testing.assert_close(gradient, torch.cat(alone))
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not x.requires_grad
    assert x.grad is None


def test_gradient_matches_finite_differences() -> None:
    model, x, y = TwoClasses(), images(2, dtype=torch.float64), labels(2, classes=2)
    gradient = cross_entropy_gradient(model, x, y)
    direction = torch.randn(x.shape, generator=generator(3), dtype=torch.float64)
    with torch.no_grad():
        ahead = F.cross_entropy(model(x + 1e-6 * direction), y, reduction="sum")
        behind = F.cross_entropy(model(x - 1e-6 * direction), y, reduction="sum")
    torch.testing.assert_close((gradient * direction).sum(), (ahead - behind) / 2e-6)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_works_where_gradients_are_off(network: nn.Module, name: str) -> None:
    x, y, threat = images(), labels(), Linf(eps=0.1)
    with torch.no_grad():
        off = ATTACKS[name](network, x, y, threat=threat, generator=generator())
    assert torch.equal(off, ATTACKS[name](network, x, y, threat=threat, generator=generator()))


def test_the_same_seed_repeats_and_the_generator_advances(network: nn.Module) -> None:
    attack, x, y, threat = PGD(steps=3), images(), labels(), Linf(eps=0.1)
    source = generator(1)
    state = torch.get_rng_state()
    first = attack(network, x, y, threat=threat, generator=source)
    torch.manual_seed(99)
    second = attack(network, x, y, threat=threat, generator=source)
    torch.set_rng_state(state)
    assert torch.equal(first, attack(network, x, y, threat=threat, generator=generator(1)))
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("attack", [FGSM(), PGD(random_start=False)])
def test_without_a_random_start_no_noise_is_drawn(network: nn.Module, attack: Attack) -> None:
    source = generator(1)
    attack(network, images(), labels(), threat=Linf(eps=0.1), generator=source)
    assert torch.equal(source.get_state(), generator(1).get_state())


@pytest.mark.parametrize("settings", [{"steps": 0}, {"steps": -1}])
def test_pgd_without_steps_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(CarsoError, match=f"at least one step.*got {settings['steps']}"):
        PGD(**settings)


@pytest.mark.parametrize("size", [0.0, -0.01, math.inf, math.nan])
def test_a_step_that_is_no_length_is_refused(size: float) -> None:
    with pytest.raises(CarsoError, match=rf"\[0, 1\] pixel scale, above 0, got {size}"):
        PGD(step_size=size)


def test_a_step_beyond_the_range_of_a_pixel_is_refused_where_a_step_is_a_pixels() -> None:
    attack, x, y = PGD(step_size=2.0, steps=1), torch.rand(2, 1, 4, 4), torch.zeros(2).long()
    with pytest.raises(CarsoError, match=r"at most 1, a pixel's range, got 2\.0"):
        attack(lambda z: z.flatten(1), x, y, threat=Linf(eps=0.1), generator=torch.Generator())
    attack(lambda z: z.flatten(1), x, y, threat=L2(eps=3.0), generator=torch.Generator())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda pixel: pixel + 0.11,
        lambda pixel: pixel - 0.11,
        lambda pixel: pixel * torch.nan,
        lambda pixel: pixel + torch.inf,
        lambda pixel: pixel - torch.inf,
    ],
)
def test_an_attack_is_not_trusted(spoil: object) -> None:
    origin = torch.full((4, 1, 3, 3), 0.5)
    adversarial = origin + 0.1
    assert torch.equal(verified(adversarial, origin, Linf(eps=0.1)), adversarial)
    adversarial[2, 0, 1, 1] = spoil(origin[2, 0, 1, 1])  # type: ignore[operator]
    with pytest.raises(RuntimeError, match=r"1 of 4 images.*within 0\.1"):
        verified(adversarial, origin, Linf(eps=0.1))


def test_an_attack_that_leaves_the_image_range_is_not_trusted() -> None:
    origin = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
    for spoiled in (origin - 0.05, origin + 0.05):
        with pytest.raises(RuntimeError, match="1 of 2 images"):
            verified(spoiled, origin, Linf(eps=0.1))


def test_a_result_of_another_shape_is_not_trusted() -> None:
    origin = torch.full((4, 1, 3, 3), 0.5)
    with pytest.raises(RuntimeError):
        verified(origin[:1], origin, Linf(eps=0.1))


def test_nan_pixels_never_come_out_of_an_attack(network: nn.Module) -> None:
    spoiled = images()
    spoiled[3, 0, 0, 0] = torch.nan
    for attack in (FGSM(), PGD(steps=2)):
        with pytest.raises(RuntimeError, match="1 of 8 images"):
            attack(network, spoiled, labels(), threat=Linf(eps=0.1), generator=generator())
