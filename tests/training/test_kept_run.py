"""`carso.fit` and `carso.harden` with `out`: the bits of a call without it, also after a stop; and
what a call shows by default."""

import builtins
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import carso
from carso import data
from carso.data import ImageData
from carso.defence.on_disk import Deployed
from carso.errors import CarsoError, CarsoTypeError
from carso.machine import progress


class Interrupted(Exception):
    """Stands for a call that is stopped."""


class Counting:
    """A display that counts steps, and stops the training after so many."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop, self.steps, self.epochs = stop, 0, 0

    def start(
        self, stage: str, epoch: int, epochs: int, steps: int, done: int = 0
    ) -> Callable[[], None]:
        def step() -> None:
            self.steps += 1
            if self.steps == self.stop:
                raise Interrupted

        return step if "bank" not in stage else lambda: None

    def finish(self, stage: str, epoch: int, row: dict[str, float]) -> None:
        self.epochs += 1


@pytest.fixture(scope="module")
def images() -> ImageData:
    source = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (80, 1, 8, 8), generator=source, dtype=torch.uint8)
    return data.from_tensors(pixels, torch.arange(80) % 2)


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))


AROUND: dict[str, Any] = {"layers": ["0"], "eps": 0.1, "check_accuracy": False, "batch_size": 16}


def fitted(images: ImageData, seed: int = 0, **given: Any) -> Deployed:
    small = {"condition": 16, "latent": 4, "decoder_width": 16, "steps": 1, "epochs": 2}
    return carso.fit(network(seed), images, **{**AROUND, **small, **given})


def hardened(images: ImageData, seed: int = 0, **given: Any) -> Deployed:
    small = {
        "kind": "unet",
        "widths": [8, 8],
        "blocks": [1, 1],
        "steps": 1,
        "epochs": 2,
        "validation_images": 4,
    }
    return carso.harden(network(seed), images, **{**AROUND, **small, **given})


def weights(defence: Deployed) -> dict[str, torch.Tensor]:
    return dict(defence.purifier.state_dict())


def equal(one: Deployed, other: Deployed) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("make", [fitted, hardened])
def test_a_stopped_call_goes_on_and_ends_with_the_bits_of_one_without_a_folder(
    make: Callable[..., Deployed], images: ImageData, tmp_path: Path
) -> None:
    whole, place = Counting(), tmp_path / "run"
    wanted = make(images, display=whole)
    half = whole.steps // 2 + 1  # in the second epoch
    with pytest.raises(Interrupted):
        make(images, out=place, display=Counting(half))
    rest = Counting()
    found = make(images, out=place, display=rest)
    assert equal(found, wanted)
    assert 0 < rest.steps < whole.steps
    again = Counting()
    assert equal(make(images, out=place, display=again), wanted)
    assert again.steps == 0
    loaded = carso.load(place, classifier=network())
    assert equal(loaded, wanted)
    x = images.test.batch(slice(4))[0]
    for defence in (loaded, wanted):
        defence.seed(3)
    assert torch.equal(loaded(x), wanted(x))


@pytest.mark.parametrize("make", [fitted, hardened])
def test_a_folder_of_another_run_is_left_alone(
    make: Callable[..., Deployed], images: ImageData, tmp_path: Path
) -> None:
    make(images, out=tmp_path / "run", epochs=1)
    with pytest.raises(CarsoError, match="holds a run of other settings"):
        make(images, out=tmp_path / "run", epochs=2)
    with pytest.raises(CarsoError, match=r"other weights|classifier"):
        make(images, out=tmp_path / "run", epochs=1, seed=1)
    with pytest.raises(CarsoError, match="cannot write"):
        make(images, out=tmp_path / "run" / "defence.json")
    with pytest.raises(CarsoTypeError, match="out must be a path"):
        make(images, out=3)


def test_a_bar_is_shown_where_it_can_be_seen(
    images: ImageData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = images.test.batch(slice(2))
    asked: dict[str, Any] = {"eps": 0.1, "suite": "quick"}
    small = Suites.shortest(monkeypatch)
    fitted(images, epochs=1)
    carso.evaluate(network(), x, y, **asked | small)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(progress, "shows_bars", lambda console: True)
    fitted(images, epochs=1)
    said = capsys.readouterr().err
    assert "purifier epoch 1" in said
    carso.evaluate(network(), x, y, **asked | small)
    for silence in ({"quiet": True}, {"display": Counting()}):
        capsys.readouterr()
        fitted(images, epochs=1, **silence)
        assert capsys.readouterr() == ("", "")
    carso.evaluate(network(), x, y, quiet=True, **asked | small)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(CarsoTypeError, match="quiet must be True or False"):
        fitted(images, quiet="yes")


class Suites:
    """A suite of one short attack."""

    @staticmethod
    def shortest(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        from carso.evaluation.attacked_model import AttackedView
        from carso.evaluation.planned_attacks import Effort, Suite, margin

        effort = Effort(images=2, steps=1, queries=1, eps=(0.0,))
        view = AttackedView(samples=1)
        return {"suite": Suite(name="short", attacks=(margin(1, 1, view),), effort=effort)}


def test_a_notebook_and_a_terminal_show_bars_and_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "DATABRICKS_RUNTIME_VERSION"):
        monkeypatch.delenv(name, raising=False)
    console = progress.Console
    assert not progress.shows_bars(console(stderr=True))
    assert progress.shows_bars(console(stderr=True, force_terminal=True))
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    here = {"ipywidgets": SimpleNamespace()}
    monkeypatch.setattr(progress.importlib.util, "find_spec", here.get)
    assert progress.shows_bars(console(stderr=True))
    here.clear()
    assert not progress.shows_bars(console(stderr=True))
