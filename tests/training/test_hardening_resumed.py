"""Hardening keeps its best epoch, stops when it has waited long enough, and can be taken up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from carso.data import ImageData
from carso.errors import CarsoError
from carso.training import validation_attack
from carso.training.hardening import HardeningStage
from carso.training.loop import Quiet, Row, run, train_in_memory

Make = Callable[..., HardeningStage]
State = dict[str, Tensor]

VALIDATION_IMAGES = 16


class Interrupted(Exception):
    """Stands for Ctrl-C."""


class Watching(Quiet):
    """Keeps the averaged weights of every epoch; stops in or after one where asked."""

    def __init__(self, stage: HardeningStage, *, stop: int = -1, step: int = 0) -> None:
        self.stage, self.stop, self.step = stage, stop, step
        self.averaged: list[State] = []

    def start(
        self, stage: str, epoch: int, epochs: int, steps: int, done: int = 0
    ) -> Callable[[], None]:
        def advance() -> None:
            nonlocal done
            done += 1
            if (epoch, done) == (self.stop, self.step):
                raise Interrupted

        return advance

    def finish(self, stage: str, epoch: int, row: Row) -> None:
        self.averaged.append({k: v.clone() for k, v in self.stage.averaged.state_dict().items()})
        if epoch == self.stop and not self.step:
            raise Interrupted


def same(one: State, other: State) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def without_time(history: list[Row]) -> list[Row]:
    timed = ("seconds", "images_per_second")
    return [{key: value for key, value in row.items() if key not in timed} for row in history]


def judged_by(
    shares: list[int], bars: ImageData, monkeypatch: pytest.MonkeyPatch, *, clean: int = 16
) -> None:
    """The number of images that stand under attack, epoch by epoch."""
    _, labels = bars.validation.balanced(VALIDATION_IMAGES).batch(slice(None))
    epoch = HardeningStage.epoch

    def attack(model: Any, images: Tensor, *_: Any, **__: Any) -> Tensor:
        return images + 1  # marks them; nothing looks at the pixels

    def numbered(stage: HardeningStage, number: int, advance: Callable[[], None]) -> Row:
        def predict(images: Tensor) -> Tensor:
            right = shares[number] if float(images.max()) > 1 else clean
            wrong = (labels + 1) % 4
            return torch.where(torch.arange(len(labels)) < right, labels, wrong)

        stage.judged.predict = predict  # type: ignore[method-assign]
        return epoch(stage, number, advance)

    monkeypatch.setattr(validation_attack, "VALIDATION_ATTACK", attack)
    monkeypatch.setattr(HardeningStage, "epoch", numbered)


def test_the_weights_of_the_best_epoch_are_kept(
    new_stage: Make, bars: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by([4, 12, 8, 11], bars, monkeypatch)
    stage = new_stage()
    watching = Watching(stage)
    history = train_in_memory(stage, watching)
    assert [row["validation_adaptive_accuracy"] for row in history] == [0.25, 0.75, 0.5, 0.6875]
    assert [row["validation_accuracy"] for row in history] == [1.0] * 4
    result = dict(stage.result().state_dict())
    assert [same(result, averaged) for averaged in watching.averaged] == [False, True, False, False]


def test_an_image_that_is_wrong_without_an_attack_does_not_stand_under_one(
    new_stage: Make, bars: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_by([12], bars, monkeypatch, clean=8)
    (row,) = train_in_memory(new_stage(epochs=1), Quiet())
    assert (row["validation_accuracy"], row["validation_adaptive_accuracy"]) == (0.5, 0.5)


def test_the_worst_of_an_epoch_is_better_than_nothing(
    new_stage: Make, bars: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No image stands, ever: there is still a result."""
    judged_by([0, 0], bars, monkeypatch)
    stage = new_stage(epochs=2)
    train_in_memory(stage, Quiet())
    assert stage.best_accuracy == 0
    assert stage.result().posterior is None


@pytest.mark.parametrize(
    ("patience", "standing", "epochs"),
    [
        (0, [10, 9, 8, 7, 6, 5], 6),
        (1, [4, 10, 6, 16, 16, 16], 3),
        (2, [4, 8, 6, 10, 9, 8], 6),  # a better one in time
        (2, [4, 8, 10, 9, 8, 16], 5),
    ],
)
def test_it_stops_after_so_many_epochs_without_a_better_one(
    patience: int,
    standing: list[int],
    epochs: int,
    new_stage: Make,
    bars: ImageData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged_by(standing, bars, monkeypatch)
    stage = new_stage(epochs=6, patience=patience, batch_size=32)
    assert not stage.stopped
    assert len(train_in_memory(stage, Quiet())) == epochs
    assert stage.best_accuracy == max(standing[:epochs]) / VALIDATION_IMAGES


def test_a_run_that_has_stopped_is_not_taken_up_and_gives_its_best_again(
    new_stage: Make, bars: ImageData, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    judged_by([8, 12, 10, 9, 16, 16], bars, monkeypatch)
    stages = [new_stage(epochs=6, patience=2) for _ in range(3)]
    with pytest.raises(Interrupted):  # after one epoch of waiting
        run(stages[0], tmp_path, Watching(stages[0], stop=2))
    watching = Watching(stages[1])
    history = run(stages[1], tmp_path, watching)
    assert len(watching.averaged) == 1
    assert len(history) == 4
    again = run(stages[2], tmp_path, Watching(stages[2]))
    assert again == history
    first, second = (dict(stage.result().state_dict()) for stage in stages[1:])
    assert same(first, second)
    assert not same(first, watching.averaged[-1])


@pytest.mark.usefixtures("short_validation")
@pytest.mark.parametrize(
    ("epoch", "step", "way"),
    [
        (1, 0, {"eps_epochs": 2.0, "augment": "flip-shift", "weight_decay": 1e-3}),
        (2, 2, {"loss": "trades", "aggregation": "anchored", "features": 1.0, "view": "log-prob"}),
    ],
)
def test_a_resumed_hardening_has_the_bits_of_one_that_was_not_interrupted(
    epoch: int, step: int, way: dict[str, Any], new_stage: Make, tmp_path: Path
) -> None:
    straight, stopped, resumed = (new_stage(**way) for _ in range(3))
    expected = train_in_memory(straight, Quiet())
    with pytest.raises(Interrupted):
        run(stopped, tmp_path, Watching(stopped, stop=epoch, step=step))
    watching = Watching(resumed)
    history = run(resumed, tmp_path, watching)
    assert len(watching.averaged) == 2  # of four epochs
    assert without_time(history) == without_time(expected)
    assert resumed.first_losses == straight.first_losses
    assert len(set(resumed.first_losses)) == len(resumed.first_losses) == 10
    for one, other in zip(
        (resumed.purifier, resumed.averaged, resumed.result()),
        (straight.purifier, straight.averaged, straight.result()),
        strict=True,
    ):
        assert same(dict(one.state_dict()), dict(other.state_dict()))


@pytest.mark.usefixtures("short_validation")
@pytest.mark.parametrize(
    "way",
    [
        {"augment": "flip-shift"},
        {"loss": "trades", "spread": 0.1},
        {"replays": 2, "cutmix": 0.5},
        {
            **{"cutmix": 0.5, "clean_share": 0.25, "weight_perturbation": 0.01},
            **{"label_smoothing": 0.1, "attack_steps_end": 4},
        },
    ],
)
def test_a_hardening_that_is_stopped_within_epochs_goes_on_there_with_the_same_bits(
    way: dict[str, Any], new_stage: Make, tmp_path: Path
) -> None:
    straight, resumed = new_stage(epochs=2, **way), new_stage(epochs=2, **way)
    expected = train_in_memory(straight, Quiet())
    steps = straight.steps()
    for epoch, step in ((0, 2), (0, steps), (1, steps - 1)):
        stopped = new_stage(epochs=2, **way)
        with pytest.raises(Interrupted):
            run(stopped, tmp_path, Watching(stopped, stop=epoch, step=step), minutes=0)
    history = run(resumed, tmp_path, Quiet())
    assert resumed.step == straight.step
    assert without_time(history) == without_time(expected)
    assert resumed.first_losses == straight.first_losses
    for one, other in zip(
        (resumed.purifier, resumed.averaged), (straight.purifier, straight.averaged), strict=True
    ):
        assert same(dict(one.state_dict()), dict(other.state_dict()))


@pytest.mark.usefixtures("short_validation")
def test_a_checkpoint_of_other_settings_is_refused(new_stage: Make, tmp_path: Path) -> None:
    run(new_stage(epochs=1), tmp_path, Quiet())
    other = new_stage(epochs=1)
    other.identity = {"stage": "hardening", "settings": "another"}
    with pytest.raises(CarsoError, match=r"other settings \(settings changed\)"):
        run(other, tmp_path, Quiet())
    assert other.step == 0
