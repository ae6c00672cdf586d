"""The fair baseline: as many gradient passes as the hardening, or as much time."""

from pathlib import Path
from typing import Any

import pytest
from fair_baseline import epochs_by_time, new_baseline, passes_of, settings, under_way

from carso import data
from carso.defence.on_disk import stored
from carso.defence.shipped import folder_of
from carso.randomness import generator
from carso.scenario import parser
from carso.scenario.hardening_settings import HardeningSettings

RECORD: dict[str, Any] = {
    "identity": {"attacks": "float32"},
    "history": [{"gradient_passes": 3000}, {"gradient_passes": 3500}],
}


def hardening() -> HardeningSettings:
    found = parser.read("fashion-retrofit-unet").hardening
    assert found is not None
    return found


def test_it_gets_at_least_as_many_passes() -> None:
    """An epoch of 500 images has 2,500 passes: four steps of attack, one of learning."""
    scenario = parser.read("fashion-retrofit-unet")
    found = settings(hardening(), scenario, passes=passes_of(RECORD), images=500, rate=0.1)
    assert found.epochs == 3
    assert found.attack_step_size == pytest.approx(0.4 * scenario.threat.eps)
    assert (found.batch_size, found.augment) == (hardening().batch_size, hardening().augment)


@pytest.mark.parametrize("over", [0.9, 2.1])
def test_time_is_measured_once_and_rounded_up(tmp_path: Path, over: float) -> None:
    found = stored(folder_of("fashion-retrofit-unet"), None, "cpu")
    images = data.load("fashion-embedded")
    training = settings(hardening(), found.scenario, passes=1, images=9000, rate=0.1)
    kept = tmp_path / "time.json"
    kept.write_text(f'{{"hardening_epochs": 2, "step_over_step": {over}}}', encoding="utf-8")
    baseline = new_baseline(found, images, training, "32-true")
    assert epochs_by_time(found, images, RECORD, baseline, kept) == (2 if over < 1 else 5)


def test_steps_of_both_are_timed_and_the_classifier_stays() -> None:
    """The baseline trains a copy, and the hardening that is timed is under attacks of full size."""
    found = stored(folder_of("fashion-retrofit-unet"), None, "cpu")
    images = data.load("fashion-embedded")
    training = settings(hardening(), found.scenario, passes=1, images=9000, rate=0.1)
    before = {k: v.clone() for k, v in found.classifier.state_dict().items()}
    baseline = new_baseline(found, images, training, "32-true")
    stage = under_way(found, images, "float32")
    assert not stage.rebuilding
    assert stage.grown() == 1.0
    few, labels = images.train.batch(slice(0, 8))
    baseline.update(few, labels, generator(0, "test"))
    stage.update(few, labels, generator(0, "test"))
    assert all(v.equal(before[k]) for k, v in found.classifier.state_dict().items())
    assert not all(
        v.equal(found.classifier.classifier.state_dict()[k])
        for k, v in baseline.classifier.state_dict().items()
    )
