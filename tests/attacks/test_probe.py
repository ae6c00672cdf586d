"""The probe changes nothing and counts everything."""

import math
from itertools import cycle

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.attacks.apgd import APGD
from carso.attacks.attack import Attack
from carso.attacks.fab import FAB
from carso.attacks.margin import Margin
from carso.attacks.pgd import PGD
from carso.attacks.probe import KINDS, Fooled, Probe, kinds
from carso.threats.linf import Linf

SHAPE = (1, 8, 8)


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(count: int = 6) -> Tensor:
    return torch.rand(count, *SHAPE, generator=generator())


class Linear(nn.Module):
    """Five classes; the gradient of any loss is that of the logits times the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 64, generator=generator(1)))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T


class Spoiling(torch.autograd.Function):
    """The identity, whose gradients are multiplied by what is due, image by image."""

    @staticmethod
    def forward(ctx: object, x: Tensor, factors: Tensor) -> Tensor:
        ctx.factors = factors  # type: ignore[attr-defined]
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factors.view(-1, 1, 1, 1), None  # type: ignore[attr-defined]


class Sick(nn.Module):
    """Its k-th pass with gradients multiplies them by the k-th row of `factors`, over and over."""

    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.network = Linear()
        self.rows = cycle(factors)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            x = Spoiling.apply(x, next(self.rows))  # type: ignore[no-untyped-call]
        return self.network(x)  # type: ignore[no-any-return]


def passes(probe: nn.Module, count: int, batch: int = 6) -> list[Tensor]:
    """The gradients of `count` passes with a loss that every pixel matters to."""
    found = []
    for _ in range(count):
        x = images(batch).requires_grad_(True)
        found.append(torch.autograd.grad(probe(x)[:, 0].sum(), x)[0])
    return found


def test_scores_and_gradients_go_through_unchanged() -> None:
    model = Linear()
    probe, x = Probe(model), images().requires_grad_(True)
    scores = probe(x)
    assert torch.equal(scores, model(x))
    (watched,) = torch.autograd.grad(scores.square().sum(), x)
    (bare,) = torch.autograd.grad(model(x).square().sum(), x)
    assert torch.equal(watched, bare)
    with torch.no_grad():
        assert torch.equal(probe(images()), model(images()))


def test_the_model_gets_the_very_images() -> None:
    seen = []

    class Remembering(Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.detach().clone())
            return super().forward(x)

    probe = Probe(Remembering())
    probe(images())
    probe(images().requires_grad_(True))
    assert all(torch.equal(x, images()) for x in seen)
    assert len(seen) == 2


def test_passes_are_counted_per_image() -> None:
    probe = Probe(Linear())
    with torch.no_grad():
        probe(images(4))
    passes(probe, 3, batch=5)
    probe(images(2).requires_grad_(True))  # no way back is asked for
    assert probe.forwards == probe.outputs == 4 + 3 * 5 + 2
    assert probe.backwards == 3 * 5
    assert probe.gradients.shape == (len(KINDS), 3)
    assert probe.gradients[0].tolist() == [5, 5, 5]
    assert probe.gradients[1:].sum() == 0


def test_a_probe_that_saw_no_gradient_has_an_empty_ledger() -> None:
    probe = Probe(Linear())
    probe(images())
    assert probe.backwards == 0
    assert probe.gradients.shape == (len(KINDS), 0)


def test_each_gradient_is_of_one_kind() -> None:
    gradient = torch.rand(7, *SHAPE, generator=generator()) + 0.1
    gradient[0, 0, 3, 3] = math.nan
    gradient[1, 0, 3, 3] = -math.inf
    gradient[2, 0, 3, 3], gradient[2, 0, 0, 0] = math.inf, math.nan  # a NaN is the worse news
    gradient[3] = 0
    gradient[4] = -0.0
    gradient[5] = 0
    gradient[5, 0, 7, 7] = 1e-38  # tiny is not zero
    assert kinds(gradient) == (7, 2, 1, 2)


def test_kinds_of_gradients_are_counted_step_by_step() -> None:
    nan, inf = math.nan, math.inf
    factors = torch.tensor([[1, nan, 1], [0, nan, inf], [0, 0, 1.0]])
    probe = Probe(Sick(factors))
    passes(probe, 3, batch=3)
    assert probe.gradients.tolist() == [[3, 3, 3], [1, 1, 0], [0, 1, 0], [0, 1, 2]]


def test_restarts_add_up_step_by_step() -> None:
    """With a period of 3, the third pass of every run is the third column."""
    factors = torch.tensor([[1, 1], [math.nan, 1], [0, 0.0]])
    probe = Probe(Sick(factors), period=3)
    passes(probe, 9, batch=2)
    assert probe.gradients.tolist() == [[6, 6, 6], [0, 3, 0], [0, 0, 0], [0, 0, 6]]


def test_without_a_period_steps_go_on() -> None:
    probe = Probe(Sick(torch.ones(1, 2)))
    passes(probe, 9, batch=2)
    assert probe.gradients[0].tolist() == [2] * 9


def test_an_eot_group_is_judged_by_its_sum() -> None:
    """One NaN draw of four spoils the step, one zero draw does not, opposite ones cancel."""
    factors = torch.tensor(
        [[1, 1, 1, 0], [1, math.nan, 1, 0], [1, 1, -1, 0], [0, 1, -1, 0]], dtype=torch.float32
    )
    probe = Probe(Sick(factors), eot=4)
    passes(probe, 8, batch=4)
    assert probe.gradients.tolist() == [[4, 4], [1, 1], [0, 0], [2, 2]]
    assert probe.backwards == 32


def test_eot_and_period_together() -> None:
    factors = torch.tensor([[1.0], [1.0], [math.nan], [1.0]])
    probe = Probe(Sick(factors), eot=2, period=2)
    passes(probe, 12, batch=1)
    assert probe.gradients.tolist() == [[3, 3], [0, 3], [0, 0], [0, 0]]


def test_outputs_that_are_not_finite_are_counted_once_per_image() -> None:
    class Spoiled(Linear):
        def forward(self, x: Tensor) -> Tensor:
            scores = super().forward(x).clone()
            scores[0, 1] = math.nan
            scores[1, :] = math.inf
            scores[2, 0] = -math.inf
            return scores

    probe = Probe(Spoiled())
    probe(images(5))
    probe(images(4).requires_grad_(True))
    assert (probe.outputs, probe.not_finite) == (9, 6)


@pytest.mark.parametrize(
    ("attack", "runs"),
    [
        (PGD(steps=4), 1),
        (PGD(steps=4, eot=3), 1),
        (Margin(steps=5, restarts=2), 2),
        (APGD(loss="ce", steps=6, restarts=2), 2),
        (APGD(loss="dlr-targeted", steps=6, targets=3), 3),
        (FAB(steps=5, targets=2), 2),
    ],
    ids=repr,
)
def test_the_period_of_an_attack_is_one_run_of_it(attack: Attack, runs: int) -> None:
    """On images that nothing breaks, every run is seen by every step of the ledger alike."""
    model, x = Linear(), images(4)
    y = model(x).argmax(dim=1)
    probe = Probe(model, eot=attack.facts.eot, period=attack.facts.period)
    attack(probe, x, y, threat=Linf(eps=1e-6), generator=generator())
    assert probe.gradients[0].tolist() == [4 * runs] * attack.facts.period
    assert probe.backwards == 4 * runs * attack.facts.period * probe.eot


def test_a_mistake_outside_the_ball_fools_nobody() -> None:
    images, labels = torch.full((2, 1, 2, 2), 0.5), torch.zeros(2, dtype=torch.int64)
    images[1] = 0.2
    fooled = Fooled(images, labels, Linf(eps=0.1))
    wrong = torch.tensor([[0.0, 1.0]])
    fooled.saw(images[:1] + 0.12, wrong)  # too far
    assert fooled.ever.tolist() == [False, False]
    fooled.saw(images[1:] - 0.1, wrong)
    assert fooled.ever.tolist() == [False, True]
    fooled.saw(images[:1] + 0.1, 1 - wrong)  # near enough, and right
    assert fooled.ever.tolist() == [False, True]
