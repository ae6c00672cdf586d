"""What holds of every attack: inside the ball, exact where the answer is known, repeatable."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.attacks import autoattack
from carso.attacks.apgd import APGD
from carso.attacks.attack import Attack
from carso.attacks.autoattack import AutoAttack
from carso.attacks.fab import FAB
from carso.attacks.margin import Margin, Noise, margins
from carso.attacks.pgd import PGD
from carso.attacks.square import Square
from carso.threats.linf import Linf

SHAPE = (1, 8, 8)
CLASSES = 5
EPS = 0.03
COMPLETE: dict[str, Attack] = {
    "pgd-eot": PGD(steps=20, step_size=0.007, eot=2),
    "margin": Margin(steps=20),
    "apgd-ce": APGD(loss="ce", steps=20),
    "apgd-dlr": APGD(loss="dlr", steps=20, restarts=2),
    "apgd-t": APGD(loss="dlr-targeted", steps=20),
    "fab": FAB(steps=20),
    "autoattack": AutoAttack(),
}
"""Attacks that break whatever can be broken of a linear classifier."""
ATTACKS: dict[str, Attack] = {
    **COMPLETE,
    "margin restarted": Margin(steps=5, restarts=3),
    "square": Square(queries=200),
    "noise": Noise(),
    "autoattack-rand": AutoAttack(version="rand"),
}
FAST = {name: attack for name, attack in ATTACKS.items() if not name.startswith("autoattack")}


class Short(autoattack.Library):  # type: ignore[misc]
    """The ensemble with few steps, queries and draws."""

    def _set_version(self, version: str = "standard") -> None:
        super()._set_version(version)
        self.square.n_queries = 50
        self.apgd.n_iter = self.apgd_targeted.n_iter = self.fab.n_iter = 20
        self.apgd.eot_iter = 1


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoattack, "Library", Short)


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(count: int = 24) -> Tensor:
    """Random images that also have many pixels at the very ends of [0, 1]."""
    return (2 * torch.rand(count, *SHAPE, generator=generator()) - 0.5).clamp(0, 1)


class Linear(nn.Module):
    """Its worst perturbation of any size is known, also at the ends of [0, 1]."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, 64, generator=generator(2)))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T

    @torch.no_grad()
    def least_margin(self, x: Tensor, labels: Tensor, eps: float) -> Tensor:
        """The smallest lead of the label over any class, at any point of the ball, (B,)."""
        ahead = self.weight[labels].unsqueeze(1) - self.weight  # (B, K, D)
        low, high = (x - eps).clamp(min=0).flatten(1), (x + eps).clamp(max=1).flatten(1)
        point = torch.where(ahead > 0, low.unsqueeze(1), high.unsqueeze(1))
        leads = (ahead * point).sum(dim=2).scatter(1, labels.unsqueeze(1), math.inf)
        return leads.amin(dim=1)


def network(classes: int = CLASSES, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Linear(64, 16), nn.SiLU(), nn.Linear(16, classes)
        return nn.Sequential(nn.Flatten(), *layers).eval().requires_grad_(False)


def labels_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).argmax(dim=1)


def attacked(
    attack: Attack, model: nn.Module, x: Tensor, y: Tensor, eps: float = EPS, seed: int = 0
) -> Tensor:
    return attack(model, x, y, threat=Linf(eps=eps), generator=generator(seed))


@pytest.mark.parametrize("eps", [1 / 255, 0.2])
@pytest.mark.parametrize("name", FAST)
def test_examples_stay_in_the_ball(name: str, eps: float) -> None:
    model, x = network(), images(8)
    y = labels_of(model, x)
    y[0] = (y[0] + 1) % CLASSES  # one is wrong before any attack
    before, given = x.clone(), y.clone()
    found = attacked(ATTACKS[name], model, x, y, eps)
    assert found.shape == x.shape
    assert found.dtype == x.dtype
    assert not found.requires_grad
    assert found.isfinite().all()
    assert (found - x).abs().max() <= eps + 1e-6
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(x, before)
    assert torch.equal(y, given)


@pytest.mark.parametrize("name", COMPLETE)
def test_exactly_what_can_be_broken_of_a_linear_classifier_is(name: str) -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    least = model.least_margin(x, y, EPS)
    assert least.abs().min() > 0.01  # none of these images is a matter of rounding
    assert 6 <= (least < 0).sum() <= 18
    found = attacked(COMPLETE[name], model, x, y)
    assert torch.equal(labels_of(model, found) != y, least < 0)


@pytest.mark.parametrize("name", ["square", "noise"])
def test_without_gradients_nothing_robust_is_broken_but_something_is(name: str) -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    least = model.least_margin(x, y, EPS)
    broken = labels_of(model, attacked(ATTACKS[name], model, x, y)) != y
    assert not (broken & (least > 0)).any()
    assert broken.any()


@pytest.mark.parametrize("name", ["margin", "apgd-ce", "apgd-dlr", "apgd-t", "fab"])
def test_no_margin_is_below_the_least_one(name: str) -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    found = attacked(ATTACKS[name], model, x, y)
    with torch.no_grad():
        lead = margins(model(found), y)
    assert (lead >= model.least_margin(x, y, EPS) - 1e-4).all()


def test_margin_descent_reaches_the_least_margin() -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    found = attacked(Margin(steps=40), model, x, y)
    with torch.no_grad():
        lead = margins(model(found), y)
    near = (lead - model.least_margin(x, y, EPS)).abs() < 0.02
    assert near.double().mean() > 0.8  # of several classes it may descend to the second worst


@pytest.mark.parametrize("name", ATTACKS)
def test_the_global_generator_neither_matters_nor_moves(name: str) -> None:
    model, x = network(), images(5)
    y = labels_of(model, x)
    with torch.random.fork_rng():
        found = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            state = torch.get_rng_state()
            found.append(attacked(ATTACKS[name], model, x, y, eps=0.2))
            assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*found)


@pytest.mark.parametrize("name", [name for name in FAST if name not in ("fab", "pgd-eot")])
def test_the_generator_decides_the_examples(name: str) -> None:
    """FAB's first start is the image itself, and PGD ends in the same corner from any start."""
    model, x = Linear(), images()
    y = labels_of(model, x)
    first, again, other = (attacked(FAST[name], model, x, y, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", FAST)
def test_an_attack_works_where_gradients_are_off(name: str) -> None:
    model, x = network(), images(4)
    y = labels_of(model, x)
    with torch.no_grad():
        off = attacked(FAST[name], model, x, y)
    assert torch.equal(off, attacked(FAST[name], model, x, y))


@pytest.mark.parametrize("name", FAST)
def test_one_image_is_enough(name: str) -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    weakest = int(model.least_margin(x, y, EPS).argmin())
    one = slice(weakest, weakest + 1)
    found = attacked(FAST[name], model, x[one], y[one])
    assert found.shape == (1, *SHAPE)
    if name in COMPLETE:
        assert labels_of(model, found) != y[one]


@pytest.mark.parametrize("name", ATTACKS)
def test_images_that_are_wrong_already_stay_wrong(name: str) -> None:
    model, x = Linear(), images(6)
    y = (labels_of(model, x) + 1) % CLASSES
    found = attacked(ATTACKS[name], model, x, y)
    assert (labels_of(model, found) != y).all()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in ("apgd-dlr", "apgd-t")])
def test_few_classes_are_enough(name: str, classes: int) -> None:
    model, x = Linear(classes), images(8)
    y = labels_of(model, x)
    least = model.least_margin(x, y, 0.1)
    found = attacked(ATTACKS[name], model, x, y, eps=0.1)
    broken = labels_of(model, found) != y
    assert not (broken & (least > 0)).any()
    if name in COMPLETE:
        assert torch.equal(broken, least < 0)
        assert broken.any()


@pytest.mark.parametrize("name", FAST)
def test_a_model_without_answers_is_not_broken_by_that(name: str) -> None:
    """NaN is no mistake: such examples are not preferred, and no NaN comes back."""

    class Mute(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return math.nan * x.flatten(1)[:, :CLASSES]

    x = images(4)
    found = attacked(FAST[name], Mute(), x, torch.tensor([0, 1, 2, 3]))
    assert found.isfinite().all()
    if name not in ("pgd-eot", "square"):  # these return where they end
        assert torch.equal(found, x)


@pytest.mark.parametrize("name", ["margin", "apgd-ce", "apgd-t", "fab", "noise"])
def test_a_model_that_has_no_answer_near_an_image_is_not_broken_there(name: str) -> None:
    """Off the clean images it answers NaN, whose argmax is class 0: no example has label 0."""
    linear, x = Linear(), images(6)
    y = labels_of(linear, x)

    class OnlyClean(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            away = torch.stack([(point - x).abs().flatten(1).amax(1).amin() for point in points])
            return torch.where((away > 0).unsqueeze(1), math.nan, linear(points))

    found = attacked(ATTACKS[name], OnlyClean(), x, y)
    assert torch.equal(found, x)


class NaNGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient * math.nan


@pytest.mark.parametrize("name", ATTACKS)
def test_nan_gradients_give_no_nan_images(name: str) -> None:
    class Masked(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(NaNGradient.apply(x))  # type: ignore[no-untyped-call]

    model, x = Masked(), images(5)
    y = labels_of(model, x)
    found = attacked(ATTACKS[name], model, x, y)
    assert found.isfinite().all()
    robust = model.least_margin(x, y, EPS) > 0
    assert torch.equal(labels_of(model, found)[robust], y[robust])
