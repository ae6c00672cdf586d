"""A hardening that begins from the purifier of another run takes what agrees, and says so."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import HARDENING, fails, mini
from torch import nn

from carso import harden
from carso.classifiers.frozen import freeze
from carso.cli.before_work import check_start
from carso.data import ImageData
from carso.defence.around import purifier_around
from carso.errors import CarsoError
from carso.purifiers.base import TrainablePurifier
from carso.scenario.parser import parse
from carso.scenario.schema import Scenario
from carso.storage import files, tensor_files
from carso.training.loop import Quiet
from carso.training.scenario_stages import hardening_stage
from carso.training.starting_point import take, weights_of
from carso.training.train import train

CPU = torch.device("cpu")
TRUNK = {"kind": "unet", "widths": (4, 6), "blocks": (1, 1)}

pytestmark = pytest.mark.usefixtures("short_validation")


def around(layers: list[str], network: nn.Module) -> TrainablePurifier:
    return purifier_around(copy.deepcopy(network), (1, 8, 8), layers=layers, **TRUNK).deployed()


def saved(purifier: TrainablePurifier, path: Path) -> Path:
    tensor_files.save(path, purifier.state_dict())
    return path


def test_the_trunk_is_taken_and_other_entries_are_new(learnt: nn.Module, tmp_path: Path) -> None:
    other, own = around(["conv", "out"], learnt), around(["pool"], learnt)
    fresh = {name: value.clone() for name, value in own.state_dict().items()}
    place = saved(other, tmp_path / "other.safetensors")
    said = take(own, place)
    theirs = other.state_dict()
    for name, value in own.state_dict().items():
        expected = fresh if name in said["new"] else theirs
        assert torch.equal(value, expected[name]), name
    # The map of another depth enters at another level, with another width.
    assert said["new"] == ["entries.0.project.bias", "entries.0.project.weight"]
    assert said["taken"] == said["of"] - 2 == len(fresh) - 2
    assert said["fingerprint"] == tensor_files.fingerprint(theirs)


def test_a_file_of_another_purifier_is_one_clear_line(learnt: nn.Module, tmp_path: Path) -> None:
    tensor_files.save(tmp_path / "other.safetensors", {"weight": torch.ones(3)})
    with pytest.raises(CarsoError, match="no tensor of this purifier"):
        take(around(["conv"], learnt), tmp_path / "other.safetensors")
    purifier = around(["conv"], learnt)
    broken = {name: value * torch.nan for name, value in purifier.state_dict().items()}
    tensor_files.save(tmp_path / "broken.safetensors", broken)
    with pytest.raises(CarsoError, match="not finite"):
        take(purifier, tmp_path / "broken.safetensors")


def test_what_start_may_name(tmp_path: Path) -> None:
    assert weights_of("purifier") is weights_of("scratch") is None
    shipped = weights_of("fashion-retrofit-unet")
    assert shipped is not None
    assert shipped.name == "hardening.safetensors"
    with pytest.raises(CarsoError, match="nowhere"):
        weights_of("nowhere")
    with pytest.raises(CarsoError, match=r"there is no file nowhere\.pt"):
        weights_of("nowhere.pt")
    (run := tmp_path / "sigma-0.5").mkdir()  # the number is no suffix
    (run / "defence.json").write_text("{}")
    with pytest.raises(CarsoError, match="not finished"):
        weights_of(str(run))
    tensor_files.save(run / "hardening.safetensors", {"a": torch.zeros(1)})
    assert weights_of(str(run)) == run / "hardening.safetensors"
    check_start(str(run))


def settings(**changes: object) -> Scenario:
    scenario = parse(mini("nowhere") + HARDENING, source="test")
    assert scenario.hardening is not None
    training = replace(scenario.purifier, attacks=None, training=None)
    hardening = replace(scenario.hardening, **changes)
    return replace(scenario, purifier=training, hardening=hardening)


def test_a_run_from_another_says_so_and_loads(bars: ImageData, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    train(settings(), bars, first, device=CPU, display=Quiet())
    weights = tensor_files.load(first / "hardening.safetensors")
    given = first / "classifier.safetensors"
    scenario = settings(start=str(first))
    train(scenario, bars, second, device=CPU, display=Quiet(), given=given)
    record = files.read_json(second / "hardening.json")
    assert record["identity"]["start"] == tensor_files.fingerprint(weights)
    taken = record["identity"]["taken"]
    assert taken == {
        "fingerprint": tensor_files.fingerprint(weights),
        "taken": len(weights),
        "of": len(weights),
        "new": [],
    }
    assert record["scenario"]["hardening"]["start"] == str(first)
    (first / "hardening.safetensors").write_bytes(b"exchanged")
    with pytest.raises(CarsoError, match=r"is not the file that hardening\.json"):
        train(scenario, bars, tmp_path / "third", device=CPU, display=Quiet(), given=given)


def test_it_is_looked_for_before_anything_is_trained(bars: ImageData, tmp_path: Path) -> None:
    with pytest.raises(CarsoError, match="nowhere"):
        train(settings(start="nowhere"), bars, tmp_path / "run", device=CPU, display=Quiet())
    assert not (tmp_path / "run").exists()


def test_a_call_takes_a_run_or_a_file(learnt: nn.Module, bars: ImageData, tmp_path: Path) -> None:
    before = around(["conv"], learnt)
    place = saved(before, tmp_path / "other.safetensors")
    common = {"layers": ["conv"], "eps": 0.1, "epochs": 1, "validation_images": 8, **TRUNK}
    defence = harden(
        copy.deepcopy(learnt), bars, start=place, rate=1e-9, average=0.0, batch_size=16, **common
    )
    for name, value in defence.purifier.named_parameters():  # type: ignore[attr-defined]
        torch.testing.assert_close(value, before.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_a_stage_starts_from_it_whatever_it_is_given(
    learnt: nn.Module, bars: ImageData, tmp_path: Path
) -> None:
    scenario = parse(
        mini("nowhere").replace("condition = 16\nlatent = 8\ndecoder_width = 16", UNET) + HARDENING,
        source="test",
    )
    frozen = freeze(copy.deepcopy(learnt))
    assert scenario.hardening is not None
    scenario = replace(scenario, classifier=replace(scenario.classifier, layers=("conv",)))
    other = around(["norm"], learnt)
    place = saved(other, tmp_path / "other.safetensors")
    hardening = replace(scenario.hardening, start=str(place))
    stage = hardening_stage(
        replace(scenario, hardening=hardening), bars, frozen, CPU, start=around(["conv"], learnt)
    )
    for name, value in stage.purifier.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


UNET = """kind = "unet"
widths = [4, 6]
blocks = [1, 1]"""


def test_the_command_refuses_a_start_that_is_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    weights = Path("carso/weights/fashion/classifier.safetensors").resolve()
    words = ("harden", "--classifier", weights, "--on", "fashion-embedded", "--start", "nowhere")
    fails(capsys, *words, "--run", tmp_path / "run", says=["start", "nowhere"])
    assert not (tmp_path / "run").exists()
