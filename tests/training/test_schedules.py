"""Learning rates and the KL weight against the paper's table of training hyperparameters."""

from dataclasses import replace
from itertools import pairwise

import pytest

from carso.scenario.parser import read
from carso.scenario.purifier_training_settings import PurifierTrainingSettings
from carso.training.schedules import END, START, kl_weight, one_cycle, three_phase

PAPER = ["cifar10", "cifar100", "tinyimagenet"]


def training(name: str) -> PurifierTrainingSettings:
    return read(name).purifier.training


def rates(settings: PurifierTrainingSettings) -> list[float]:
    return [three_phase(epoch, settings) for epoch in range(settings.epochs)]


@pytest.mark.parametrize(
    ("name", "epoch", "rate"),
    [
        ("cifar10", 0, 5e-9),
        ("cifar10", 24, 5e-9 + (0.064 - 5e-9) * 24 / 25),
        ("cifar10", 25, 0.064),
        ("cifar10", 49, 0.064),
        ("cifar10", 199, 4.346e-4),
        ("cifar100", 0, 5e-9),
        ("cifar100", 25, 0.064),
        ("cifar100", 199, 4.346e-4),
        ("tinyimagenet", 0, 5e-9),
        ("tinyimagenet", 30, 5e-9 + (0.0128 - 5e-9) * 30 / 31),
        ("tinyimagenet", 31, 0.0128),
        ("tinyimagenet", 61, 0.0128),
        ("tinyimagenet", 249, 1.378e-4),
    ],
)
def test_the_rate_at_the_corners_is_the_papers(name: str, epoch: int, rate: float) -> None:
    assert three_phase(epoch, training(name)) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("name", PAPER)
def test_the_rate_rises_rests_and_falls_each_time_in_a_straight_line(name: str) -> None:
    settings = training(name)
    values = rates(settings)
    warm, flat = settings.warmup_epochs, settings.plateau_epochs
    steps = [later - earlier for earlier, later in pairwise(values)]
    up, level, down = steps[:warm], steps[warm : warm + flat - 1], steps[warm + flat :]
    assert all(step == pytest.approx(up[0], rel=1e-9) for step in up)
    assert up[0] > 0
    assert set(level) == {0.0}
    assert all(step == pytest.approx(down[0], rel=1e-9) for step in down)
    assert down[0] < 0
    # The annealing takes up where the plateau ends: no jump down.
    assert settings.plateau_rate + 1.01 * down[0] <= values[warm + flat] <= settings.plateau_rate
    assert min(values) == values[0] == settings.initial_rate
    assert max(values) == settings.plateau_rate
    assert min(values[warm:]) == values[-1]


@pytest.mark.parametrize(
    ("epochs", "warm", "flat"), [(1, 0, 0), (1, 1, 0), (2, 1, 1), (3, 0, 3), (4, 0, 2), (5, 5, 0)]
)
def test_phases_may_be_absent(epochs: int, warm: int, flat: int) -> None:
    settings = PurifierTrainingSettings(
        epochs=epochs,
        batch_size=2,
        initial_rate=1e-4,
        plateau_rate=1e-2,
        final_rate=1e-3,
        warmup_epochs=warm,
        plateau_epochs=flat,
        beta_start=0,
        beta_end=0,
    )
    values = rates(settings)
    assert all(1e-4 <= value <= 1e-2 for value in values)
    if epochs > warm + flat:
        assert values[-1] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("name", "epoch", "beta"),
    [
        *(("cifar10", epoch, 0.0) for epoch in (0, 24, 25)),
        *(("cifar10", 25 + i, i / 9) for i in range(1, 9)),
        *(("cifar10", epoch, 1.0) for epoch in (34, 35, 49, 50, 199)),
        *(("cifar100", epoch, beta) for epoch, beta in ((25, 0.0), (34, 1.0))),
        *(("tinyimagenet", epoch, 0.0) for epoch in (0, 31, 32)),
        *(("tinyimagenet", 32 + i, i / 11) for i in range(1, 11)),
        *(("tinyimagenet", epoch, 1.0) for epoch in (43, 44, 249)),
    ],
)
def test_the_kl_weight_is_the_papers(name: str, epoch: int, beta: float) -> None:
    assert kl_weight(epoch, training(name)) == pytest.approx(beta, abs=1e-12)


def test_the_kl_weight_grows_to_what_is_asked_for() -> None:
    settings = replace(training("fashion"), beta=0.2)
    plain = training("fashion")
    for epoch in range(plain.epochs):
        assert kl_weight(epoch, settings) == pytest.approx(0.2 * kl_weight(epoch, plain))


def test_the_kl_weight_may_jump_at_once() -> None:
    settings = PurifierTrainingSettings(
        epochs=4,
        batch_size=2,
        plateau_rate=1e-2,
        final_rate=1e-3,
        warmup_epochs=0,
        plateau_epochs=0,
        beta_start=2,
        beta_end=2,
    )
    assert [kl_weight(epoch, settings) for epoch in range(4)] == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("warmup", [0.1, 0.25, 0.5])
def test_one_cycle_rises_to_its_peak_and_ends_near_zero(warmup: float) -> None:
    def rate(progress: float) -> float:
        return one_cycle(progress, peak=0.2, warmup=warmup)

    assert rate(0.0) == pytest.approx(0.2 * START)
    assert rate(warmup) == pytest.approx(0.2)
    assert rate(1.0) == pytest.approx(0.2 * END)
    assert rate(warmup - 1e-9) == pytest.approx(rate(warmup), rel=1e-6), "no jump at the peak"
    values = [rate(i / 1000) for i in range(1001)]
    top = values.index(max(values))
    assert top / 1000 == pytest.approx(warmup)
    assert all(a < b for a, b in pairwise(values[: top + 1]))
    assert all(a > b for a, b in pairwise(values[top:]))
    assert rate((1 + warmup) / 2) == pytest.approx(0.2 * (1 + END) / 2), "the cosine's middle"
