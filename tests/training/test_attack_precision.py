"""The precision of a hardening's attacks is settled when it begins, and then stays."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import HARDENING, mini
from torch import nn

from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.errors import CarsoError
from carso.scenario.parser import parse
from carso.storage import files
from carso.training import hardening_attack
from carso.training.attack_precision import FILE, settled_precision
from carso.training.hardening import HardeningStage
from carso.training.scenario_stages import hardening_stage

FASTER, SLOWER = 0.5, 1.5
CPU = torch.device("cpu")


def never() -> float:
    raise AssertionError("it was measured again")


def scenario(line: str = "") -> str:
    return mini("nowhere") + HARDENING.replace("epochs", f"{line}\nepochs", 1)


@pytest.mark.parametrize("asked", ["float32", "bfloat16"])
def test_what_was_asked_for_is_not_measured(asked: str, tmp_path: Path) -> None:
    assert settled_precision(asked, never, tmp_path) == asked
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("share", "wanted"), [(FASTER, "bfloat16"), (SLOWER, "float32")])
def test_a_run_goes_on_as_it_began(share: float, wanted: str, tmp_path: Path) -> None:
    """Also where another machine would have found otherwise."""
    assert settled_precision("auto", lambda: share) == wanted
    assert settled_precision("auto", lambda: share, tmp_path) == wanted
    assert files.read_json(tmp_path / FILE)["bfloat16_over_float32"] == share
    assert settled_precision("auto", never, tmp_path) == wanted


@pytest.mark.parametrize("damage", ["[]", "{}", '{"attack_precision": "float8"}'])
def test_a_damaged_note_is_one_clear_line(damage: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(damage)
    with pytest.raises(CarsoError, match=r"precision\.json") as error:
        settled_precision("auto", never, tmp_path)
    assert "\n" not in str(error.value)


@pytest.fixture
def stage(bars: ImageData, network: nn.Module, tmp_path: Path) -> Callable[[], HardeningStage]:
    """A new stage of a run in one folder, whose scenario leaves the precision open."""
    settings = parse(scenario('attack_precision = "auto"'), source="test")
    classifier = replace(settings.classifier, layers=("norm", "out"))
    settings, frozen = replace(settings, classifier=classifier), freeze(network)
    return lambda: hardening_stage(settings, bars, frozen, CPU, start=None, folder=tmp_path)


@pytest.mark.parametrize(("share", "wanted"), [(FASTER, "bfloat16"), (SLOWER, "float32")])
def test_a_stage_attacks_in_the_precision_that_its_identity_names(
    stage: Callable[[], HardeningStage],
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    wanted: str,
) -> None:
    monkeypatch.setattr(hardening_attack, "ratio", lambda plain, other, turns: share)
    first = stage()
    assert first.precision == first.identity["attacks"] == wanted
    monkeypatch.setattr(hardening_attack, "ratio", lambda plain, other, turns: never())
    assert stage().identity == first.identity


def test_the_measure_is_of_the_training_attack_itself(stage: Callable[[], HardeningStage]) -> None:
    begun = stage()
    before = {name: value.clone() for name, value in begun.purifier.state_dict().items()}
    assert 0 < begun.low_over_full() < 1000
    for name, value in begun.purifier.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_word_of_old_files_still_reads_and_means_float32() -> None:
    for line in ("", 'attack_precision = "tuned"'):
        settings = parse(scenario(line), source="test").hardening
        assert settings is not None
        assert settings.attack_precision == "float32"
