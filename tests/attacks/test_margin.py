"""Margin descent and random noise keep the worst example, measured by a pass of its own."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.attacks.margin import Margin, Noise, WorstSoFar, margins
from carso.attacks.probe import Probe
from carso.errors import CarsoError
from carso.threats.linf import Linf

SHAPE = (1, 8, 8)
THREAT = Linf(eps=0.03)


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(count: int = 10) -> Tensor:
    return torch.rand(count, *SHAPE, generator=generator())


class Linear(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        weight = torch.randn(classes, 64, generator=generator(1))
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T


def labels_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).argmax(dim=1)


def lead(model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        return margins(model(x), labels)


def test_a_margin_is_the_lead_over_the_best_other_class() -> None:
    scores = torch.tensor([[3.0, 1, 2], [3, 1, 2], [5, 5, 0], [-1, -2, -3], [0, math.nan, 1]])
    found = margins(scores, torch.tensor([0, 1, 0, 2, 0]))
    assert found[:4].tolist() == [1, -2, 0, -2]
    assert found[4].isnan()


def test_a_margin_is_below_zero_exactly_where_the_label_is_wrong() -> None:
    scores = torch.randn(200, 7, generator=generator())
    labels = torch.randint(7, (200,), generator=generator(1))
    assert torch.equal(margins(scores, labels) < 0, scores.argmax(dim=1) != labels)
    assert torch.equal(margins(scores + 5, labels) < 0, margins(scores, labels) < 0)


class Table(nn.Module):
    """Two classes, whose margin for class 0 is the image's first pixel less a half."""

    def forward(self, x: Tensor) -> Tensor:
        first = x[:, 0, 0, 0] - 0.5
        first = torch.where(x[:, 0, 0, 1] > 0.9, math.nan, first)
        return torch.stack([first, torch.zeros_like(first)], dim=1)


def pixels(*first: float, nan: bool = False) -> Tensor:
    x = torch.zeros(len(first), *SHAPE)
    x[:, 0, 0, 0] = torch.tensor(first)
    x[:, 0, 0, 1] = float(nan)
    return x


def test_the_worst_example_is_the_one_with_the_smallest_margin() -> None:
    worst = WorstSoFar(Table(), pixels(0.75, 0.75, 0.25), torch.zeros(3, dtype=torch.int64))
    assert worst.margin.tolist() == [0.25, 0.25, -0.25]
    assert worst.standing.tolist() == [0, 1]
    worst.offer(pixels(0.5, 1.0), torch.tensor([0, 1]))
    assert worst.examples[:, 0, 0, 0].tolist() == [0.5, 0.75, 0.25]
    assert worst.standing.tolist() == [0, 1]  # a tie is no mistake yet
    worst.offer(pixels(0.0), torch.tensor([1]))
    worst.offer(pixels(0.625), torch.tensor([0]))
    assert worst.examples[:, 0, 0, 0].tolist() == [0.5, 0, 0.25]
    assert worst.standing.tolist() == [0]


def test_nan_is_never_the_worst_example() -> None:
    labels = torch.zeros(2, dtype=torch.int64)
    worst = WorstSoFar(Table(), pixels(0.75, 0.25), labels)
    worst.offer(pixels(0.0, 0.0, nan=True), torch.tensor([0, 1]))
    assert worst.examples[:, 0, 0, 0].tolist() == [0.75, 0.25]
    mute = WorstSoFar(Table(), pixels(0.75, 0.25, nan=True), labels)
    assert mute.standing.tolist() == [0, 1]  # without an answer there is no mistake
    mute.offer(pixels(1.0, 0.0), torch.tensor([0, 1]))
    assert mute.margin.tolist() == [0.5, -0.5]  # any number is better than none


def test_the_given_images_are_not_written_to() -> None:
    x = pixels(0.75)
    worst = WorstSoFar(Table(), x, torch.zeros(1, dtype=torch.int64))
    worst.offer(pixels(0.0), torch.tensor([0]))
    assert x[0, 0, 0, 0] == 0.75


@pytest.mark.parametrize("settings", [{"steps": 0}, {"restarts": 0}])
def test_margin_descent_needs_a_step_and_a_start(settings: dict[str, int]) -> None:
    with pytest.raises(CarsoError, match="needs a step and a start, got"):
        Margin(**settings)


def test_what_is_wrong_already_costs_no_gradient() -> None:
    model, x = Linear(), images()
    probe = Probe(model)
    wrong = (labels_of(model, x) + 1) % 4
    found = Margin(steps=5, restarts=3)(probe, x, wrong, threat=THREAT, generator=generator())
    assert probe.backwards == 0
    assert torch.equal(found, x)


def test_a_restart_is_spent_on_standing_images_only() -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    first = Margin(steps=8)(model, x, y, threat=THREAT, generator=generator())
    standing = int((lead(model, first, y) >= 0).sum())
    assert 0 < standing < len(x)
    probe = Probe(model, period=8)
    Margin(steps=8, restarts=2)(probe, x, y, threat=THREAT, generator=generator())
    assert probe.gradients[0].tolist() == [len(x) + standing] * 8


def test_more_restarts_never_do_worse() -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    leads = [
        lead(model, Margin(steps=3, restarts=n)(model, x, y, threat=THREAT, generator=g), y)
        for n, g in ((1, generator()), (4, generator()))
    ]
    assert (leads[1] <= leads[0]).all()


def test_a_lucky_pass_does_not_decide_which_example_is_kept() -> None:
    """Of the image and the two examples of each start, each is measured by a pass of its own."""
    measured: list[tuple[float, Tensor]] = []
    noise = generator(9)

    class Wavering(Linear):
        def forward(self, x: Tensor) -> Tensor:
            scores = super().forward(x) + 0.5 * torch.randn(len(x), 4, generator=noise)
            if not x.requires_grad:
                measured.append((float(margins(scores, y)), x.clone()))
            return scores

    for start in range(10):
        x = images(10)[start : start + 1]
        y = labels_of(Linear(), x)
        measured.clear()
        found = Margin(steps=6)(Wavering(), x, y, threat=THREAT, generator=generator(start))
        assert len(measured) == (1 if measured[0][0] < 0 else 3)
        assert torch.equal(found, min(measured, key=lambda pair: pair[0])[1])


class OnceNaN(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, spoil: bool) -> Tensor:
        ctx.spoil = spoil  # type: ignore[attr-defined]
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * (math.nan if ctx.spoil else 1.0), None  # type: ignore[attr-defined]


def test_one_nan_gradient_costs_one_step_and_not_the_attack() -> None:
    """A momentum that has taken up a NaN never moves again, though later gradients are sound."""

    class Hiccup(Linear):
        passes = 0

        def forward(self, x: Tensor) -> Tensor:
            self.passes += 1
            return super().forward(OnceNaN.apply(x, self.passes == 2))  # type: ignore[no-untyped-call]

    model, x = Linear(), images()
    y = labels_of(model, x)
    attack = Margin(steps=20)
    healthy = attack(model, x, y, threat=THREAT, generator=generator())
    hiccup = attack(Hiccup(), x, y, threat=THREAT, generator=generator())
    assert torch.equal(labels_of(model, hiccup), labels_of(model, healthy))


def test_noise_is_the_worst_of_points_and_corners() -> None:
    tried: list[Tensor] = []

    class Remembering(Linear):
        def forward(self, x: Tensor) -> Tensor:
            tried.append(x.clone())
            return super().forward(x)

    model, x = Remembering(), 0.1 + 0.8 * images()
    y = labels_of(Linear(), x)
    found = Noise(tries=6)(model, x, y, threat=THREAT, generator=generator())
    clean, *points = tried
    assert torch.equal(clean, x)
    assert len(points) == 6
    sizes = torch.stack([(point - x).abs() for point in points])
    assert (sizes <= THREAT.eps + 1e-6).all()
    assert ((sizes[1::2] - THREAT.eps).abs() < 1e-6).all()  # every other one is a corner
    assert sizes[::2].mean() == pytest.approx(THREAT.eps / 2, rel=0.1)
    leads = torch.stack([lead(Linear(), point, y) for point in tried])
    torch.testing.assert_close(lead(Linear(), found, y), leads.amin(dim=0))


def test_margin_descent_does_better_than_noise() -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    by_noise = Noise()(model, x, y, threat=THREAT, generator=generator())
    by_descent = Margin(steps=20)(model, x, y, threat=THREAT, generator=generator())
    assert (lead(model, by_descent, y) < lead(model, by_noise, y)).all()
