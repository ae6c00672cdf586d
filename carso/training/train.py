"""`carso train`: classifier, purifier, hardening, in a folder that can be taken up again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso import data as data_sets
from carso.classifiers import brought, registry
from carso.classifiers.frozen import Frozen, freeze
from carso.classifiers.known_files import installed, installed_file, settled
from carso.classifiers.sanity import refuse_chance
from carso.data import DataNotFoundError, ImageData
from carso.defence.defence import Carso
from carso.defence.description import describe
from carso.defence.layers import layers_for
from carso.defence.on_disk import in_use, purifier_of
from carso.defence.representation import check_fit
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.purifiers.base import TrainablePurifier
from carso.scenario.purifier_settings import KINDS
from carso.scenario.schema import Scenario
from carso.storage import files
from carso.training import checkpoint, loop
from carso.training.batch_memory import check_batches
from carso.training.given_classifier import identified, keep_given, same_everywhere
from carso.training.loop import Display
from carso.training.run_files import anchor, finish, measure
from carso.training.run_identity import refuse_another_run
from carso.training.scenario_stages import classifier_stage, hardening_stage, purifier_stage
from carso.training.starting_point import weights_of


def train(
    scenario: Scenario,
    data: ImageData,
    folder: Path,
    *,
    device: torch.device,
    display: Display,
    given: Path | None = None,
    check_accuracy: bool = True,
    processes: Processes = ALONE,
    checkpoint_minutes: float = loop.CHECKPOINT_MINUTES,
    classifier_only: bool = False,
) -> Carso | None:
    """The scenario's defence: its classifier (or the one in the file `given`), its purifier,
    hardened. A classifier that is brought must know the images, unless `check_accuracy` is off.
    With `classifier_only` the training ends after the classifier: None."""
    if classifier_only and given is not None:
        raise CarsoError("--classifier-only trains a classifier: leave --classifier out")
    if given is None and scenario.classifier.kind in installed():
        given = installed_file(scenario.classifier.kind)
    scenario = replace(scenario, classifier=settled(scenario.classifier, given))
    # A layer that does not exist must not come out after hours of training.
    classifier: nn.Module = (
        registry.build(scenario.classifier, data)
        if given is None
        else brought.given(given, scenario.classifier, data)
    )
    layers = layers_for(scenario.classifier, classifier, data.image_shape)
    check_fit(classifier, data, layers=layers)
    check_batches(scenario, classifier, data, device, processes)
    if scenario.hardening is not None:
        weights_of(scenario.hardening.start)
    if scenario.purifier.kind not in KINDS:  # nor a purifier of the user's that cannot be built
        purifier_of(scenario, freeze(classifier), data.image_shape)
    description = describe(scenario, data)
    if given is not None:
        same_everywhere(classifier, given, processes)
        description |= identified(classifier, given, data)
    refuse_another_run(folder, description)
    if given is not None and check_accuracy and not (folder / "classifier.safetensors").exists():
        refuse_chance(registry.placed(freeze(classifier), device), data, device)
    with processes.exclusively(folder, "a run"):
        return train_stages(
            scenario, data, folder, classifier, description,
            device=device, display=display, given=given, processes=processes,
            minutes=checkpoint_minutes, classifier_only=classifier_only,
        )  # fmt: skip


def train_stages(
    scenario: Scenario,
    data: ImageData,
    folder: Path,
    classifier: nn.Module,
    description: dict[str, Any],
    *,
    device: torch.device,
    display: Display,
    given: Path | None,
    processes: Processes,
    minutes: float,
    classifier_only: bool,
) -> Carso | None:
    """The stages of `train`, one after the other, in a folder that is this run's alone."""
    if processes.is_first:
        files.clear_left_over(folder)
        files.write_json(folder / "defence.json", description)
    if given is None:
        classifier = train_classifier(
            scenario, data, folder, device, display, processes, minutes=minutes
        )
    elif processes.is_first:
        keep_given(folder, classifier, given)
    if classifier_only:
        return None
    frozen = registry.placed(freeze(classifier), device)
    purifier: TrainablePurifier | None = None
    if scenario.purifier.training is not None:
        purifier = train_purifier(
            scenario, data, frozen, folder, device, display, processes, minutes=minutes
        )
        defence = Carso(frozen, purifier, **in_use(scenario), seed=scenario.seed)
        if processes.is_first:
            measure(folder, defence, scenario, data, device)
    if scenario.hardening is not None:
        purifier = harden(
            scenario,
            data,
            frozen,
            folder,
            device,
            display,
            processes,
            start=purifier,
            minutes=minutes,
        )
    assert purifier is not None, "a scenario has one stage at least"
    hardened = scenario.hardening is not None
    defence = Carso(frozen, purifier, **in_use(scenario, hardened=hardened), seed=scenario.seed)
    if defence.aggregation == "anchored" and scenario.hardening is not None:
        anchor(folder, defence, scenario, data, device, processes)
    return defence


def load_data(scenario: Scenario, root: Path | None, *, download: bool = False) -> ImageData:
    """The scenario's images, or those of its fallback where they are not found."""
    try:
        return data_sets.load(scenario.data.set, root, download=download)
    except DataNotFoundError:
        if not scenario.data.fallback:
            raise
        return data_sets.load(scenario.data.fallback)


def train_classifier(
    scenario: Scenario,
    data: ImageData,
    folder: Path,
    device: torch.device,
    display: Display,
    processes: Processes = ALONE,
    *,
    minutes: float = loop.CHECKPOINT_MINUTES,
) -> nn.Module:
    """The scenario's own classifier, trained or taken up where its training stopped."""
    training = classifier_stage(scenario, data, device, processes=processes)
    history = loop.run(training, folder / "classifier", display, minutes=minutes)
    weights = training.averaged.state_dict()
    finish(folder, training, weights, history, scenario=scenario, data=data)
    return training.averaged


def train_purifier(
    scenario: Scenario,
    data: ImageData,
    classifier: Frozen,
    folder: Path,
    device: torch.device,
    display: Display,
    processes: Processes = ALONE,
    *,
    minutes: float = loop.CHECKPOINT_MINUTES,
) -> TrainablePurifier:
    """The paper's purifier on top of `classifier`."""
    training = purifier_stage(
        scenario, data, classifier, device, folder=folder / "purifier", processes=processes
    )
    done = checkpoint.epochs_done(folder / "purifier", training.identity)
    if training.uses_bank() and done < training.epochs:
        chunks = training.batches.chunks()
        advance = display.start("bank of attacked images", 0, 1, chunks)
        training.batches.prepare(done, advance)
    history = loop.run(training, folder / "purifier", display, minutes=minutes)
    purifier = training.result()
    weights = purifier.deployed().state_dict()
    bank = training.batches.seconds if training.uses_bank() else 0.0
    finish(folder, training, weights, history, scenario=scenario, data=data, bank_seconds=bank)
    return purifier


def harden(
    scenario: Scenario,
    data: ImageData,
    classifier: Frozen,
    folder: Path,
    device: torch.device,
    display: Display,
    processes: Processes = ALONE,
    *,
    start: TrainablePurifier | None,
    minutes: float = loop.CHECKPOINT_MINUTES,
) -> TrainablePurifier:
    """The purifier after training against attacks on the whole defence, from `start` or from
    scratch."""
    place = folder / "hardening"
    training = hardening_stage(
        scenario, data, classifier, device, start=start, folder=place, processes=processes
    )
    history = loop.run(training, place, display, minutes=minutes)
    purifier = training.result()
    weights = purifier.state_dict()
    finish(folder, training, weights, history, scenario=scenario, data=data)
    return purifier
