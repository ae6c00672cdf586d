"""`carso train`: classifier, then purifier, in one folder that can be left and taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from carso import data as data_sets
from carso import files, tensor_files
from carso.classifiers import zoo
from carso.classifiers.wide_resnet import WideResNet
from carso.data import DataError, ImageData
from carso.provenance import provenance
from carso.randomness import seeded
from carso.scenario import Scenario
from carso.scenario_file import as_table, digest
from carso.training import stage
from carso.training.classifier import ClassifierStage
from carso.training.stage import Display


def load_data(scenario: Scenario, root: Path | None, *, download: bool = False) -> ImageData:
    """The scenario's images, or those of its fallback where they are not found."""
    try:
        return data_sets.load(scenario.data.set, root, download=download)
    except DataError:
        if not scenario.data.fallback:
            raise
        return data_sets.load(scenario.data.fallback, root)


def classifier_stage(scenario: Scenario, data: ImageData, device: torch.device) -> ClassifierStage:
    """The training of the scenario's classifier, at its very start."""
    training = scenario.classifier.training
    assert training is not None
    with seeded(scenario.seed, "classifier", "weights"):
        classifier = zoo.build(scenario.classifier, data)
    settings = as_table(scenario)
    return ClassifierStage(
        classifier,
        data,
        training=training,
        threat=scenario.threat,
        seed=scenario.seed,
        device=device,
        identity={
            "stage": "classifier",
            "seed": scenario.seed,
            "settings": digest([settings["classifier"], settings["threat"]]),
            "data": data.fingerprint,
        },
    )


def train_classifier(
    scenario: Scenario, data: ImageData, folder: Path, device: torch.device, display: Display
) -> WideResNet:
    """The scenario's own classifier, trained or taken up where its training stopped."""
    training = classifier_stage(scenario, data, device)
    history = stage.run(training, folder / "classifier", display)
    finish(
        folder,
        "classifier",
        training.averaged.state_dict(),
        scenario=scenario,
        data=data,
        facts={"first_losses": training.first_losses, "history": history},
    )
    return training.averaged  # type: ignore[return-value]


def finish(
    folder: Path,
    name: str,
    weights: dict[str, torch.Tensor],
    *,
    scenario: Scenario,
    data: ImageData,
    facts: dict[str, Any],
) -> None:
    """Write `<name>.safetensors` and beside it `<name>.json`, which says where it comes from."""
    tensor_files.save(folder / f"{name}.safetensors", weights)
    files.write_json(
        folder / f"{name}.json",
        {
            "what": name,
            "scenario": as_table(scenario),
            "data": {
                "name": data.name,
                "fingerprint": data.fingerprint,
                "training_images": len(data.train),
                "validation_images": len(data.validation),
            },
            **facts,
            "provenance": provenance(),
        },
    )
