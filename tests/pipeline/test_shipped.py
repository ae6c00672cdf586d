"""The shipped weights are what the recorded command makes of the recorded data."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

import carso
from carso import data
from carso.attacks.pgd import PGD
from carso.classifiers import registry
from carso.classifiers.frozen import Frozen
from carso.data import DataNotFoundError, ImageData
from carso.defence.shipped import SHIPPED
from carso.randomness import generator
from carso.scenario import parser
from carso.storage import files
from carso.training.bank import Bank
from carso.training.bank_layout import CHUNK
from carso.training.batches import AdversarialBatches, shares
from carso.training.differences import LEVELS
from carso.training.epoch_cursor import shuffled
from carso.training.loop import Stage, first_losses
from carso.training.scenario_stages import classifier_stage, purifier_stage

CPU = torch.device("cpu")
FASHION = SHIPPED / "fashion"
RECORDS = Path(__file__).parent / "first_losses.json"
"""Made by scripts/record_first_losses.py on the embedded images."""
TOLERANCE = 2e-3
"""Of a loss, relative: another processor rounds convolutions otherwise."""


def shipped(name: str) -> dict:  # type: ignore[type-arg]
    return json.loads((FASHION / f"{name}.json").read_text(encoding="utf-8"))


def shipped_classifier() -> Frozen:
    return registry.placed(carso.load("fashion").classifier, CPU)


@pytest.fixture(scope="module")
def whole_fashion() -> ImageData:
    try:
        return data.load("fashion-mnist")
    except DataNotFoundError as error:
        pytest.skip(str(error))


def test_the_files_are_the_recorded_ones() -> None:
    for name in ("classifier", "purifier"):
        assert files.sha256(FASHION / f"{name}.safetensors") == shipped(name)["sha256"]
        assert (FASHION / f"{name}.safetensors").stat().st_size < 8 * 2**20


def test_the_recorded_scenario_is_the_one_that_ships() -> None:
    """In all that decides these two; hardening comes after them. What the record does not have
    yet is at its default."""
    now = parser.read("fashion")
    for name in ("classifier", "purifier"):
        recorded = parser.from_table(shipped(name)["scenario"], source=name)
        for key in ("seed", "threat", "classifier", "purifier", "data"):
            assert getattr(recorded, key) == getattr(now, key), f"{name}: {key}"


def test_the_shipped_defence_classifies() -> None:
    """On 200 embedded test images, within what chance allows of the recorded accuracy."""
    defence = carso.load("fashion")
    images, labels = data.load("fashion-embedded").test.balanced(200).batch(slice(None))
    recorded = json.loads((FASHION / "accuracies.json").read_text(encoding="utf-8"))["test"]
    for model, name in ((defence, "defence"), (defence.classifier, "classifier")):
        with torch.no_grad():
            found = float((model(images).argmax(dim=1) == labels).float().mean())
        assert abs(found - recorded[name]) < 4 * (0.25 / 200) ** 0.5


@pytest.mark.parametrize("name", ["classifier", "purifier"])
def test_first_losses_on_the_embedded_images(name: str) -> None:
    """The code that ships trains as it did when the record was made."""
    scenario = parser.read("fashion")
    attacks = replace(scenario.purifier.attacks, bank="off")
    scenario = replace(scenario, purifier=replace(scenario.purifier, attacks=attacks))
    images = data.load("fashion-embedded")
    stage: Stage
    if name == "classifier":
        stage = classifier_stage(scenario, images, CPU)
    else:
        stage = purifier_stage(scenario, images, shipped_classifier(), CPU)
    recorded = json.loads(RECORDS.read_text(encoding="utf-8"))[name]
    assert first_losses(stage) == pytest.approx(recorded, rel=TOLERANCE)


@pytest.mark.full_data
def test_the_classifier_is_retrained(whole_fashion: ImageData) -> None:
    record = shipped("classifier")
    assert whole_fashion.fingerprint == record["data"]["fingerprint"]
    stage = classifier_stage(parser.read("fashion"), whole_fashion, CPU)
    recorded = record["first_losses"]
    found = first_losses(stage, len(recorded))
    assert found == pytest.approx(recorded, rel=TOLERANCE)


@pytest.mark.full_data
def test_the_purifier_is_retrained(whole_fashion: ImageData) -> None:
    """Its first steps, with only those images of the bank that they read."""
    record = shipped("purifier")
    assert whole_fashion.fingerprint == record["data"]["fingerprint"]
    scenario = parser.read("fashion")
    stage = purifier_stage(scenario, whole_fashion, shipped_classifier(), CPU)
    layout, shape = stage.batches.layout(), whole_fashion.train.images.shape[1:]
    bank = torch.zeros(4, layout.chunks_per_attack * CHUNK, *shape, dtype=torch.int8)
    size, seen = scenario.purifier.training.batch_size, 0
    source = generator(scenario.seed, "purifier", "epoch", 0)
    steps = len(record["first_losses"])
    for batch in islice(shuffled(len(whole_fashion.train), size, source), steps):
        counts = shares(seen, size, scenario.purifier.attacks)
        parts = torch.split(batch[size - sum(counts) :], counts)
        for number, indices in enumerate(parts):
            fill_rows(stage.batches, bank, number, indices)
        seen += size
    stage.batches.bank, stage.batches.generation = Bank(layout, [bank.flatten(0, 1)], 0.0), 0
    found = first_losses(stage, steps)
    assert found == pytest.approx(record["first_losses"], rel=TOLERANCE)


def fill_rows(batches: AdversarialBatches, bank: Tensor, number: int, indices: Tensor) -> None:
    """What `AdversarialBatches.differences` makes, for single images of many chunks at once."""
    variant = batches.variants[number]
    clean, labels = batches.split.batch(indices)
    starts = clean.clone()
    for row, index in enumerate(indices.tolist()):
        first = index // CHUNK * CHUNK
        chunk, _ = batches.split.batch(slice(first, first + CHUNK))
        source = generator(batches.seed, "bank", 0, variant.name, first)
        starts[row] = variant.threat.random_start(chunk, source)[index - first]
    if isinstance(variant.attack, PGD):
        attacked = variant.attack.ascend(
            batches.classifier, starts, clean, labels, threat=variant.threat
        )
    else:
        attacked = variant.attack(
            batches.classifier, clean, labels, threat=variant.threat, generator=source
        )
    differences = (attacked - clean) * (LEVELS / variant.threat.eps)
    bank[number, indices] = differences.round().clamp_(-LEVELS, LEVELS).to(torch.int8)
