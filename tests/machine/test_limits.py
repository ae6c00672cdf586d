"""What would be too much for this machine is refused before it begins, with what would do."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support import fails, mini, write_photos
from torch import nn

import carso
from carso import data
from carso.data.pictures import PictureFormat, decode
from carso.distributed.launchers import check_launch
from carso.errors import CarsoError
from carso.machine import limits
from carso.machine.limits import check_fits, check_processes, check_threads, need_of_an_image

CPU = torch.device("cpu")


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "cores", lambda: 2)
    monkeypatch.setattr(limits, "free_memory", lambda: 8 * 2**30)


@pytest.mark.usefixtures("two_cores")
def test_more_processes_than_cores_devices_or_memory_are_refused() -> None:
    check_processes(2, gpus=None)
    with pytest.raises(CarsoError, match=r"--devices 1000 is more than the 2 cores .* at most 2"):
        check_processes(1000, gpus=None)
    with pytest.raises(CarsoError, match=r"--devices 3 is more than the 1 GPUs"):
        check_processes(3, gpus=1)
    with pytest.raises(CarsoError, match=r"10\.0 GB of memory, and 8\.0 GB are free.*at most 1"):
        check_processes(2, gpus=None, each=5 * 2**30)


@pytest.mark.usefixtures("two_cores")
def test_who_means_it_may_have_more_processes() -> None:
    with pytest.raises(CarsoError, match="--oversubscribe"):
        check_launch(CPU, 3, 1, "32-true")
    check_launch(CPU, 3, 1, "32-true", oversubscribe=True)


def test_a_thousand_processes_are_refused_on_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("train", "fashion-retrofit", "--device", "cpu", "--run", tmp_path / "run")
    fails(capsys, *words, "--devices", "1000", says=["--devices 1000", "at most"])
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("two_cores")
def test_more_threads_than_are_any_use_are_refused() -> None:
    check_threads(0)
    check_threads(8)
    with pytest.raises(CarsoError, match=r"--threads 100000 .* at most 8"):
        check_threads(100_000)
    with pytest.raises(CarsoError, match="at least 1"):
        check_threads(-1)


def test_what_a_pass_needs_grows_by_the_images_and_not_by_the_weights() -> None:
    wide = nn.Sequential(nn.Linear(10, 1000), nn.Tanh(), nn.Linear(1000, 1000))
    each, base = need_of_an_image(lambda count: wide(torch.zeros(count, 10, requires_grad=True)))
    assert 4 * 1000 <= each <= 4 * 3100
    assert base >= 4 * 1000 * 1000


@pytest.mark.usefixtures("two_cores")
def test_what_does_not_fit_is_refused_with_the_number_that_would_do() -> None:
    check_fits("images", 7, 2**30, option="--chunk")
    with pytest.raises(CarsoError, match=r"100 images need about 100\.0 GB.*--chunk 7 would do"):
        check_fits("images", 100, 2**30, option="--chunk")
    with pytest.raises(CarsoError, match="not even one"):
        check_fits("images", 100, 2**40, option="--chunk")


def test_an_evaluation_that_does_not_fit_is_refused_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4096), nn.Tanh(), nn.Linear(4096, 3))
    monkeypatch.setattr(limits, "free_memory", lambda: 2_000_000)
    images, labels = torch.rand(90, 1, 8, 8), torch.arange(90) % 3
    with pytest.raises(CarsoError, match=r"90 images attacked at once .*--chunk \d+ would do"):
        carso.evaluate(model, images, labels, eps=0.1, suite="standard")


@pytest.mark.parametrize("train", [carso.fit, carso.harden])
def test_a_batch_that_does_not_fit_is_refused_before_training(
    train: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4096), nn.Tanh(), nn.Linear(4096, 2))
    pixels = torch.randint(0, 256, (400, 1, 8, 8), dtype=torch.uint8)
    images = data.from_tensors(pixels, torch.arange(400) % 2)
    monkeypatch.setattr(limits, "free_memory", lambda: 2_000_000)
    with pytest.raises(CarsoError, match=r"images of a batch need .*batch_size = \d+ would do"):
        train(model, images, layers=["1"], eps=0.1, batch_size=256, check_accuracy=False)


def test_a_scenario_whose_batch_does_not_fit_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tmp_path / "mini.toml"
    scenario.write_text(mini(write_photos(tmp_path / "photos")))
    monkeypatch.setattr(limits, "free_memory", lambda: 500_000)
    words = ("train", scenario, "--run", tmp_path / "run", "--quiet")
    fails(capsys, *words, says=["images of a batch need about", "would do"])
    assert not (tmp_path / "run").exists()


def test_images_that_do_not_fit_are_refused_before_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda: 10_000)
    paths = [Path("absent.png")] * 100
    with pytest.raises(CarsoError, match="a folder of at most 11 would do"):
        decode(paths, PictureFormat(width=28, height=28, mode="L"))


def test_a_limit_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert limits.free_of_container(tmp_path) == 700
    (tmp_path / "memory.max").write_text("max\n")
    assert limits.free_of_container(tmp_path) is None
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  5 kB\n")
    assert limits.free_of_machine(tmp_path / "meminfo") == 5 * 1024
    assert limits.free_of_machine(tmp_path / "absent") is None
