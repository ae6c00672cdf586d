"""How a classifier of the user's own is defended: the scenario that a command, or a call without
files, makes of what it is given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from torch import nn

from carso import data
from carso.arguments import refuse_unknown
from carso.classifiers import brought
from carso.classifiers.known_files import settled
from carso.errors import CarsoError
from carso.scenario.classifier_settings import AUTO, ClassifierSettings
from carso.scenario.hardening_settings import HardeningSettings
from carso.scenario.parser import Place, convert
from carso.scenario.purifier_settings import KINDS, PurifierSettings
from carso.scenario.purifier_training_settings import BatchAttackSettings, PurifierTrainingSettings
from carso.scenario.schema import DataSettings, DefenceSettings, Scenario
from carso.threats.norms import threat_asked
from carso.threats.threat import Threat

HARDENED = "fashion-retrofit-unet"
"""The scenario whose purifier and [hardening] serve where no other is named."""


def hardening_of_file(
    scenario: Scenario,
    classifier: Path,
    *,
    layers: Sequence[str] = (),
    eps: float | None = None,
    norm: str = "",
    epochs: int | None = None,
    against: str = "",
    sigma: float | None = None,
    start: str = "",
) -> Scenario:
    """What `carso harden` trains: `scenario`'s purifier around the classifier in a file."""
    if not classifier.is_file():
        raise CarsoError(f"--classifier: there is no file {classifier}")
    code = classifier.suffix == ".py"
    if code and not layers:
        layers = AUTO
    asked = {
        "epochs": epochs,
        "against": against or None,
        "sigma": sigma,
        "start": start or None,
    }
    changes: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
    threat = threat_asked(scenario.threat, norm, eps)
    name = classifier.stem if code else f"{scenario.name}-hardened"
    scenario = replace(scenario, classifier=settled(scenario.classifier, classifier))
    return hardening_scenario(scenario, name=name, layers=layers, threat=threat, **changes)


def with_sigma(scenario: Scenario, sigma: float) -> Scenario:
    """`scenario` with another deviation of the Gaussian noise, wherever it trains on some."""
    training, hardening = scenario.classifier.training, scenario.hardening
    noisy = [stage is not None and stage.sigma > 0 for stage in (training, hardening)]
    if not any(noisy):
        raise CarsoError(
            f"--sigma is for a scenario that trains on noise, and {scenario.name} does not"
        )
    if training is not None and noisy[0]:
        classifier = replace(scenario.classifier, training=replace(training, sigma=sigma))
        scenario = replace(scenario, classifier=classifier)
    if hardening is not None and noisy[1]:
        scenario = replace(scenario, hardening=replace(hardening, sigma=sigma))
    return scenario


def hardening_scenario(
    scenario: Scenario,
    *,
    name: str,
    layers: Sequence[str] = (),
    threat: Threat | None = None,
    seed: int | None = None,
    kind: str = "",
    **changes: Any,
) -> Scenario:
    """`scenario` without the paper's training: its purifier, or one of another `kind`, is hardened.

    With another `threat` the radius and the steps of the training attacks change along.
    `changes` are settings of [hardening] or of the purifier's kind.
    """
    own = scenario.hardening
    if own is None:
        hint = "" if scenario.preset else "; the paper's have one in --preset hardened"
        raise CarsoError(f"scenario {scenario.name} has no [hardening]{hint}")
    threat = threat or scenario.threat
    scale = threat.eps / scenario.threat.eps
    known = {field.name for field in fields(HardeningSettings)}
    scaled = {
        "eps": own.eps * scale,
        "attack_step_size": own.attack_step_size * scale,
    }
    given = {k: of_call(HardeningSettings, k, v) for k, v in changes.items() if k in known}
    hardening = replace(own, **scaled | given)
    shape = {key: value for key, value in changes.items() if key not in known}
    return replace(
        scenario,
        name=name,
        seed=scenario.seed if seed is None else seed,
        classifier=replace(scenario.classifier, layers=tuple(layers) or scenario.classifier.layers),
        purifier=purifier_settings(scenario.purifier, kind or scenario.purifier.kind, shape),
        hardening=hardening,
        threat=threat,
    )


def of_call(table: type, key: str, value: Any) -> Any:
    """A value of a call, checked as one in the `table` of a file would be."""
    plain = list(value) if isinstance(value, tuple) else value
    return convert(get_type_hints(table)[key], plain, key, Place("settings", ""))


def purifier_settings(
    settings: PurifierSettings, kind: str, shape: dict[str, Any]
) -> PurifierSettings:
    """The settings of a purifier of `kind` that only hardening trains: those that a scenario has
    for it, or the kind's defaults, with the changes of `shape`."""
    known = settings.arguments() if kind == settings.kind else {}
    own: Any = {**known, **shape}
    if kind in KINDS:
        known_keys = [field.name for field in fields(KINDS[kind])]
        every = [*known_keys, *(field.name for field in fields(HardeningSettings))]
        for near in (every, known_keys):  # the nearest name may be one of [hardening]
            refuse_unknown(f"[hardening], or a purifier of kind {kind!r},", own, near)
        own = KINDS[kind](**{k: of_call(KINDS[kind], k, v) for k, v in own.items()})
    return PurifierSettings(kind=kind, own=own)


def settings_of(kind: str, own: dict[str, Any]) -> PurifierSettings:
    """The settings of a purifier of `kind`: its `own`, and the kind's defaults."""
    return purifier_settings(PurifierSettings(kind=kind, own=own), kind, {})


def classifier_and_shape(
    scenario: Scenario, path: Path, shape: str
) -> tuple[nn.Module, tuple[int, int, int]]:
    """The classifier in a file, and the (C, H, W) of its images: the scenario's, or as written."""
    if not path.is_file():
        raise CarsoError(f"there is no file {path}")
    sides = [side.strip() for side in shape.split(",")] if shape else []
    if shape and (len(sides) != 3 or not all(side.isdecimal() and int(side) for side in sides)):
        raise CarsoError(f"--shape is C,H,W, such as 3,32,32, got {shape!r}")
    if path.suffix == ".py" and shape:
        channels, height, width = map(int, sides)
        return brought.of_user(path), (channels, height, width)
    images = data.facts(scenario.data.set)
    if shape:
        raise CarsoError("--shape is for a .py: weights belong to the images of their scenario")
    settings = settled(scenario.classifier, path)
    return brought.given(path, settings, images), images.image_shape


def fitting_scenario(
    *,
    layers: Sequence[str],
    threat: Threat,
    epochs: int,
    samples: int,
    batch_size: int,
    rate: float,
    fraction: float,
    steps: int,
    seed: int,
    kind: str,
    shape: dict[str, Any],
) -> Scenario:
    """What `carso.fit` trains: the paper's stage, its schedule stretched over `epochs`."""
    purifier = settings_of(kind, shape)
    return Scenario(
        name="fit",
        summary="a purifier around a classifier of the user's own",
        seed=seed,
        data=DataSettings(set=""),
        threat=threat,
        classifier=ClassifierSettings(layers=tuple(layers)),
        purifier=replace(
            purifier,
            attacks=BatchAttackSettings(
                fraction=fraction,
                steps=steps,
                step_size=2.5 * threat.eps / max(1, steps),
                bank="memory",
            ),
            training=PurifierTrainingSettings(
                epochs=epochs,
                batch_size=batch_size,
                initial_rate=rate / 2,
                plateau_rate=rate,
                final_rate=rate / 100,
                warmup_epochs=math.ceil(epochs / 8),
                plateau_epochs=epochs // 8,
                beta_start=epochs // 8,
                beta_end=epochs // 4,
            ),
        ),
        defence=DefenceSettings(samples=samples),
    )
