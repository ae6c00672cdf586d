"""The stages of a scenario's training, each at its very start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from carso.classifiers import registry
from carso.classifiers.frozen import Frozen
from carso.data import ImageData
from carso.defence.on_disk import purifier_of
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.purifiers.base import TrainablePurifier
from carso.randomness import seeded
from carso.scenario.schema import Scenario
from carso.scenario.tables import distinct
from carso.storage import tensor_files
from carso.training.batches import AdversarialBatches
from carso.training.classifier_stage import ClassifierStage
from carso.training.hardening import HardeningStage
from carso.training.purifier_stage import PurifierStage
from carso.training.starting_point import take, weights_of


def precision(processes: Processes) -> dict[str, str]:
    """What a run in another precision than usual must not be taken up with."""
    return {} if processes.precision == ALONE.precision else {"precision": processes.precision}


def threat_of(scenario: Scenario) -> dict[str, Any]:
    """The ball; balls of two norms may have the same radius."""
    return {"norm": scenario.threat.norm, "eps": scenario.threat.eps}


def identity_of(
    stage: str,
    scenario: Scenario,
    data: ImageData,
    processes: Processes,
    settings: dict[str, Any],
    *,
    classifier: Frozen | None = None,
    **more: Any,
) -> dict[str, Any]:
    """What tells the training of a stage from others: its settings, and what it rests on."""
    identity = {
        "stage": stage,
        "seed": scenario.seed,
        "data": data.fingerprint,
        **more,
        "settings": {**settings, "threat": threat_of(scenario)},
        **precision(processes),
    }
    if classifier is not None:
        identity["classifier"] = tensor_files.fingerprint(classifier.state_dict())
    return identity


def classifier_stage(
    scenario: Scenario, data: ImageData, device: torch.device, *, processes: Processes = ALONE
) -> ClassifierStage:
    """The training of the scenario's classifier, at its very start."""
    training = scenario.classifier.training
    if training is None:
        raise CarsoError(
            f"scenario {scenario.name} has no [classifier.training]: give --classifier FILE"
        )
    with seeded(scenario.seed, "classifier", "weights"):
        classifier = registry.build(scenario.classifier, data)
    return ClassifierStage(
        classifier,
        data,
        training=training,
        threat=scenario.threat,
        seed=scenario.seed,
        device=device,
        identity=identity_of(
            "classifier", scenario, data, processes, {"classifier": distinct(scenario.classifier)}
        ),
        processes=processes,
    )


def purifier_stage(
    scenario: Scenario,
    data: ImageData,
    classifier: Frozen,
    device: torch.device,
    *,
    folder: Path | None = None,
    processes: Processes = ALONE,
) -> PurifierStage:
    """The training of the scenario's purifier on `classifier`, at its very start."""
    attacks, settings = scenario.purifier.attacks, scenario.purifier.training
    if attacks is None or settings is None:
        raise CarsoError(f"scenario {scenario.name} has no [purifier.training]")
    with seeded(scenario.seed, "purifier", "weights"):
        purifier = purifier_of(scenario, classifier, data.image_shape, mean=data.mean, std=data.std)
    own = {"purifier": distinct(scenario.purifier), "layers": list(purifier.layers)}
    identity = identity_of("purifier", scenario, data, processes, own, classifier=classifier)
    batches = AdversarialBatches(
        classifier,
        data.train,
        settings=attacks,
        threat=scenario.training_threat,
        seed=scenario.seed,
        device=device,
        folder=folder,
        identity={
            **{key: identity[key] for key in ("seed", "data", "classifier")},
            "attacks": {"threat": threat_of(scenario), **distinct(attacks)},
            **precision(processes),
        },
        processes=processes,
    )
    return PurifierStage(
        classifier,
        purifier,
        batches,
        data,
        training=settings,
        threat=scenario.threat,
        seed=scenario.seed,
        device=device,
        identity=identity,
        processes=processes,
    )


def hardening_stage(
    scenario: Scenario,
    data: ImageData,
    classifier: Frozen,
    device: torch.device,
    *,
    start: TrainablePurifier | None,
    final: Frozen | None = None,
    folder: Path | None = None,
    processes: Processes = ALONE,
) -> HardeningStage:
    """The hardening of `start`, of another run's purifier or of a new one, at its very start; with
    another `final` classifier in the paper's ablation."""
    settings = scenario.hardening
    if settings is None:
        raise CarsoError(f"scenario {scenario.name} has no [hardening]")
    other = weights_of(settings.start)
    more: dict[str, Any] = {}
    if other or start is None or settings.start == "scratch":
        with seeded(scenario.seed, "hardening", "weights"):
            purifier = purifier_of(scenario, classifier, data.image_shape)
        origin = "scratch"
        if other:
            if taken := take(purifier.deployed(), other):
                more["taken"] = taken
            origin = tensor_files.fingerprint(purifier.state_dict())
    else:
        purifier, origin = start, tensor_files.fingerprint(start.state_dict())
    if final:
        more["final"] = tensor_files.fingerprint(final.state_dict())
    own = {
        "hardening": distinct(settings),
        "purifier": distinct(replace(scenario.purifier, attacks=None, training=None)),
        "layers": list(purifier.layers),
    }
    on = (scenario, data, processes)
    identity = identity_of("hardening", *on, own, classifier=classifier, start=origin, **more)
    return HardeningStage(
        classifier,
        purifier,
        data,
        hardening=settings,
        threat=scenario.threat,
        seed=scenario.seed,
        device=device,
        identity=identity,
        final_classifier=final,
        folder=folder,
        processes=processes,
    )
