"""`carso doctor --tune` says what is faster and how to ask for it, and keeps nothing."""

import json
from pathlib import Path

import pytest
import torch
from support import run

import carso
from carso.cli import speed
from carso.scenario.parser import parse
from carso.storage.provenance import provenance

FASTER, SLOWER = 0.5, 1.5


def test_what_is_faster_by_more_than_a_little_is_suggested() -> None:
    (none,) = speed.suggestions({"bfloat16": 0.97, "one thread": SLOWER, "contiguous": 1.0})
    assert "defaults" in none
    low, alone = speed.suggestions({"bfloat16": FASTER, "one thread": FASTER, "contiguous": 1.0})
    assert 'attack_precision = "bfloat16"' in low
    assert "0.50" in low
    assert "--threads 1" in alone


def test_every_alternative_is_measured_and_can_be_asked_for() -> None:
    found = speed.ratios(turns=1)
    assert {"bfloat16", "contiguous"} <= found.keys() <= speed.HOW.keys()
    assert all(0 < value < 1000 for value in found.values())
    assert speed.suggestions(dict.fromkeys(speed.HOW, FASTER))


def test_the_scenario_line_that_is_suggested_is_one() -> None:
    line = speed.HOW["bfloat16"].partition(" in the ")[0]
    text = Path(carso.__file__).parent / "scenario" / "scenarios" / "fashion-retrofit.toml"
    changed = text.read_text().replace("[hardening]\n", f"[hardening]\n{line}\n", 1)
    hardening = parse(changed, source="changed").hardening
    assert hardening is not None
    assert hardening.attack_precision == "bfloat16"


def test_tuning_changes_nothing_for_later_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "ratios", lambda: {"bfloat16": FASTER, "one thread": FASTER})
    threads = torch.get_num_threads()
    code, out, _ = run(capsys, "doctor", "--tune")
    assert code == 0
    assert "0.50" in out
    assert "--threads 1" in out
    found = json.loads(run(capsys, "doctor", "--tune", "--json")[1])
    assert found["ratios"]["bfloat16"] == FASTER
    assert len(found["suggestions"]) == 2
    assert not list(tmp_path.iterdir())
    assert torch.get_num_threads() == threads


def test_a_loaded_classifier_has_channels_last_and_a_record_says_so() -> None:
    weights = carso.load("fashion").classifier.state_dict()
    wide = next(w for w in weights.values() if w.ndim == 4 and min(w.shape) > 1)
    assert wide.is_contiguous(memory_format=torch.channels_last)
    assert provenance()["memory_format"] == "channels-last"
