"""What `carso doctor --tune` finds is used, and a stale or damaged tuning is not."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import carso
from carso.cli.speed import ratios
from carso.machine import tuning
from carso.machine.tuning import Tuning, chosen
from carso.storage.provenance import provenance

FASTER, SLOWER = 0.5, 1.5


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.kept.cache_clear()
    yield tmp_path
    tuning.kept.cache_clear()


def test_an_alternative_is_chosen_where_it_is_faster_by_more_than_a_little() -> None:
    assert chosen({"contiguous": SLOWER, "bfloat16": 0.97}).memory_format == "channels-last"
    assert chosen({"contiguous": SLOWER, "bfloat16": 0.97}).precision == "float32"
    found = chosen(
        {
            "contiguous": FASTER,
            "bfloat16": FASTER,
            "one thread": FASTER,
            "compiled purifier": FASTER,
        }
    )
    assert (found.memory_format, found.precision, found.threads, found.compiled) == (
        "contiguous",
        "bfloat16",
        1,
        True,
    )


@pytest.mark.parametrize("memory_format", tuning.FORMATS)
def test_a_loaded_classifier_is_laid_out_as_tuned(memory_format: str) -> None:
    tuning.keep(Tuning(memory_format=memory_format))
    weights = carso.load("fashion").classifier.state_dict()
    wide = next(w for w in weights.values() if w.ndim == 4 and min(w.shape) > 1)
    last = wide.is_contiguous(memory_format=torch.channels_last)
    assert last == (memory_format == "channels-last")


def test_what_is_predicted_does_not_depend_on_the_tuning() -> None:
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    plain = carso.load("fashion", seed=1)(images)
    tuning.keep(Tuning(memory_format="contiguous"))
    assert torch.allclose(carso.load("fashion", seed=1)(images), plain, atol=1e-4)


@pytest.mark.parametrize("damage", ["{", '{"tuning": {"speed": 11}}', '{"tuning": 3}', "[]"])
def test_a_damaged_tuning_is_ignored(damage: str) -> None:
    tuning.place().parent.mkdir(parents=True, exist_ok=True)
    tuning.place().write_text(damage)
    assert tuning.current() == Tuning()


def test_a_tuning_for_another_torch_is_ignored() -> None:
    path = tuning.keep(Tuning(threads=3))
    assert tuning.current().threads == 3
    table = json.loads(path.read_text())
    table["machine"]["torch"] = "1.0"
    path.write_text(json.dumps(table))
    tuning.kept.cache_clear()
    assert tuning.current() == Tuning()


def test_the_measures_are_of_every_alternative() -> None:
    found = ratios(turns=1, compiled=False)
    assert {"bfloat16", "contiguous"} <= found.keys()
    assert all(0 < value < 1000 for value in found.values())


def test_measures_compare_with_the_defaults_also_on_a_tuned_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a second call would find no difference, and undo what the first has chosen."""
    tuning.keep(Tuning(memory_format="contiguous"))

    def looked_at(plain: Callable[[], object], other: Callable[[], object], *, turns: int) -> float:
        return 1.0

    monkeypatch.setattr("carso.cli.speed.ratio", looked_at)
    loaded = []
    monkeypatch.setattr(
        "carso.cli.speed.load",
        lambda name, **settings: loaded.append(carso.load(name, **settings)) or loaded[-1],
    )
    ratios(turns=1, compiled=False)
    plain, other = (
        next(w for w in d.classifier.state_dict().values() if w.ndim == 4 and min(w.shape) > 1)
        for d in loaded
    )
    assert plain.is_contiguous(memory_format=torch.channels_last)
    assert not other.is_contiguous(memory_format=torch.channels_last)


def test_a_record_says_how_passes_were_run() -> None:
    tuning.keep(Tuning(memory_format="contiguous"))
    assert provenance()["tuning"]["memory_format"] == "contiguous"
