"""`carso.fit` and `carso.harden`: a defence for a classifier of the user's own, in one call.

They train what `carso train` and `carso harden` train, by the same stages; in a folder if one is
given, so that a call that was stopped goes on when it is repeated.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso import arguments
from carso.classifiers import registry
from carso.classifiers.frozen import Frozen, freeze, refuse_meta
from carso.classifiers.sanity import refuse_chance
from carso.data import ImageData
from carso.defence.layers import chosen_layers
from carso.defence.on_disk import Deployed, deployed, in_use
from carso.defence.representation import check_fit
from carso.errors import CarsoError, CarsoTypeError
from carso.purifiers.base import TrainablePurifier
from carso.purifiers.checks import refuse_no_purifier
from carso.purifiers.kinds import made_as
from carso.scenario import parser
from carso.scenario.purifier_settings import KINDS, SMALL
from carso.storage.files import check_writable
from carso.threats.norms import DEFAULT, threat_of
from carso.threats.threat import Threat
from carso.training.anchoring import choose
from carso.training.batch_memory import check_batches
from carso.training.kept_run import check_display, kept_run, shown_by
from carso.training.loop import Display, train_in_memory
from carso.training.recipes import (
    HARDENED,
    fitting_scenario,
    hardening_scenario,
    settings_of,
)
from carso.training.run_files import anchor
from carso.training.scenario_stages import hardening_stage, purifier_stage
from carso.training.train import harden as train_hardening
from carso.training.train import train_purifier


def asked(
    data: ImageData, layers: str | Sequence[str], seed: int, device: torch.device | str
) -> tuple[str | tuple[str, ...], int, torch.device]:
    """Layers, seed and device as a caller gives them, after a check of these and of the data."""
    if not isinstance(data, ImageData):
        raise CarsoTypeError(
            "data is what carso.data.load or carso.data.from_tensors gives, got "
            f"{arguments.shown(data)}"
        )
    names = layers if layers == "auto" else arguments.names("layers", layers)
    return names, arguments.seed_number(seed), arguments.device(device)


def folder_for(out: Path | str | None) -> Path | None:
    """The folder of a run that a caller names, if it can be written."""
    if out is None:
        return None
    folder = arguments.place("out", out)
    check_writable(folder, folder=True)
    return folder


def ready(classifier: nn.Module, place: torch.device) -> Frozen:
    """The classifier, frozen in place, where it is to work."""
    frozen = freeze(classifier)
    refuse_meta(frozen)
    return registry.placed(frozen, place)


@arguments.door
def fit(
    classifier: nn.Module,
    data: ImageData,
    *,
    layers: str | Sequence[str] = "auto",
    eps: float | None = None,
    norm: str = DEFAULT,
    threat: Threat | None = None,
    epochs: int = 10,
    samples: int = 8,
    batch_size: int = 128,
    rate: float = 2e-3,
    fraction: float = 0.5,
    steps: int = 10,
    seed: int = 0,
    device: torch.device | str = "cpu",
    out: Path | str | None = None,
    quiet: bool = False,
    display: Display | None = None,
    check_accuracy: bool = True,
    kind: str = "vae",
    **shape: Any,
) -> Deployed:
    """Train a purifier as the paper does around `classifier`, which maps images in [0, 1] to logits
    and whose weights do not change: it is frozen in place. `layers` names the activations that the
    purifier reads ("auto": see `carso layers`); `shape` are settings of its kind, as in a scenario
    file. A classifier that is no better than a guess on validation images is refused, unless
    `check_accuracy` is off. The attacker may go `eps` far in `norm`, or as far as a `threat` of
    your own says. With the folder `out`, a call that was stopped goes on when it is repeated, and
    `carso.load` reads what came out. A bar shows how far it is, in a terminal or a notebook, unless
    it is to be `quiet`; or a `display` of your own does."""
    layers, seed, place = asked(data, layers, seed, device)
    folder = folder_for(out)
    check_display(display)
    epochs, samples, batch_size = (
        arguments.whole(key, value, least=1)
        for key, value in (("epochs", epochs), ("samples", samples), ("batch_size", batch_size))
    )
    shape = {**SMALL.get(arguments.text("kind", kind), {}), **shape}
    if kind in KINDS:
        own = [field.name for field in fields(KINDS[kind])]
        arguments.refuse_unknown("fit", shape, [*inspect.signature(fit).parameters, *own])
    frozen = ready(classifier, place)
    layers = chosen_layers(frozen, data.image_shape, layers)
    scenario = fitting_scenario(
        layers=layers,
        threat=threat_of(threat, norm=norm, eps=eps),
        epochs=epochs,
        samples=samples,
        batch_size=batch_size,
        rate=arguments.number("rate", rate, above=0),
        fraction=arguments.number("fraction", fraction),
        steps=arguments.whole("steps", steps, least=0),
        seed=seed,
        kind=kind,
        shape=shape,
    )
    check_fit(frozen, data, layers=layers)
    check_batches(scenario, frozen, data, place)
    if check_accuracy:
        refuse_chance(frozen, data, place)
    with shown_by(display, quiet=quiet) as bars:
        if folder is None:
            stage = purifier_stage(scenario, data, frozen, place)
            train_in_memory(stage, bars)
            trained = stage.result()
        else:
            with kept_run(folder, frozen, scenario, data):
                trained = train_purifier(scenario, data, frozen, folder, place, bars)
    purifier = trained.deployed()
    return deployed(frozen, purifier, scenario, data, hardened=False, **in_use(scenario), seed=seed)


@arguments.door
def harden(
    classifier: nn.Module,
    data: ImageData,
    *,
    layers: str | Sequence[str] = "auto",
    eps: float | None = None,
    norm: str = DEFAULT,
    threat: Threat | None = None,
    scenario: str = HARDENED,
    start: TrainablePurifier | str | Path | None = None,
    steps: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    out: Path | str | None = None,
    quiet: bool = False,
    display: Display | None = None,
    check_accuracy: bool = True,
    **settings: Any,
) -> Deployed:
    """A defence whose purifier is trained against attacks on the whole of it, from scratch or from
    `start`: a purifier, or a run, a shipped defence or a weight file, of which every tensor is
    taken that fits. `classifier` is frozen in place.

    A `scenario`, by its name or a TOML file, says which purifier and how; `settings` change what
    its [purifier] (`kind` among them) and [hardening] say, and `steps` is the latter's
    attack_steps, of a size to match. A purifier to start from keeps its kind and sizes. Over a
    classifier that is robust by itself, aggregation="anchored" keeps what it has; how much its own
    logits count is then chosen on validation images. A classifier that labels those no better than
    a guess is refused, unless `check_accuracy` is off. `out`, `quiet` and `display` are those of
    `fit`.
    """
    layers, seed, place = asked(data, layers, seed, device)
    folder = folder_for(out)
    check_display(display)
    threat = threat_of(threat, norm=norm, eps=eps)
    if steps is not None:
        steps = arguments.whole("steps", steps)
        sized = {"attack_steps": steps, "attack_step_size": 1.5 * threat.eps / max(1, steps)}
        settings = sized | settings
    if isinstance(start, str | Path):
        settings, start = {"start": str(start)} | settings, None
    if start is not None:
        refuse_no_purifier(start)
        settings = {"start": "purifier"} | settings
    frozen = ready(classifier, place)
    layers = chosen_layers(frozen, data.image_shape, layers)
    recipe = parser.read(str(arguments.place("scenario", scenario)))
    if made := made_as(start):
        recipe = replace(recipe, purifier=settings_of(**made))
    elif start is not None and folder is not None:
        raise CarsoError(
            f"out: a purifier that was made by hand ({type(start).__name__}) cannot be loaded from "
            "a folder; start from one that carso.fit, carso.harden or carso.load gave"
        )
    chosen = hardening_scenario(
        recipe,
        name="harden",
        layers=layers,
        threat=threat,
        seed=seed,
        **settings,
    )
    check_fit(frozen, data, layers=layers)
    check_batches(chosen, frozen, data, place)
    if check_accuracy:
        refuse_chance(frozen, data, place)
    if start is not None and tuple(start.layers) != tuple(layers):
        raise CarsoError(f"the purifier to start from reads the layers {', '.join(start.layers)}")
    used, start = in_use(chosen, hardened=True), copy.deepcopy(start)

    def defence_of(purifier: TrainablePurifier) -> Deployed:
        return deployed(frozen, purifier, chosen, data, hardened=True, **used, seed=seed)

    with shown_by(display, quiet=quiet) as bars:
        if folder is not None:
            with kept_run(folder, frozen, chosen, data):
                defence = defence_of(
                    train_hardening(chosen, data, frozen, folder, place, bars, start=start)
                )
                if defence.aggregation == "anchored":
                    anchor(folder, defence, chosen, data, place)
            return defence
        stage = hardening_stage(chosen, data, frozen, place, start=start)
        train_in_memory(stage, bars)
    defence = defence_of(stage.result())
    if defence.aggregation == "anchored":
        count = stage.hardening.validation_images
        choose(defence, data, threat=chosen.threat, count=count, seed=seed, device=place)
    return defence
