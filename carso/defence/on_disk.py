"""A trained defence on disk, and `carso.load`.

A run's folder and a shipped folder look the same: `defence.json` (the scenario, and what images
it takes; `config.json` in a folder that travels), `classifier.safetensors`,
`purifier.safetensors` and, once it is hardened, `hardening.safetensors`, with a JSON of provenance
beside each, and `anchor.json` where the weight of the anchor was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso import arguments
from carso.classifiers import registry
from carso.classifiers.frozen import Frozen, freeze
from carso.data import ImageData, ImageFacts
from carso.defence import hub
from carso.defence.around import purifier_around
from carso.defence.defence import Carso
from carso.defence.description import facts_of, read_description
from carso.defence.elsewhere import classifier_elsewhere, source_of
from carso.defence.layers import layers_for
from carso.defence.shipped import description_file, folder_of
from carso.errors import CarsoError
from carso.purifiers.base import TrainablePurifier, as_module
from carso.scenario.parser import from_table
from carso.scenario.schema import Scenario
from carso.storage import files, json_schema
from carso.storage.tensor_files import load_weights


def purifier_of(
    scenario: Scenario, classifier: Frozen, image_shape: tuple[int, int, int], **statistics: Any
) -> TrainablePurifier:
    """The scenario's purifier for `classifier`, untrained; `statistics` are the images' mean and
    std, which only training needs."""
    return purifier_around(
        classifier,
        image_shape,
        layers=layers_for(scenario.classifier, classifier, image_shape),
        kind=scenario.purifier.kind,
        **scenario.purifier.arguments(),
        **statistics,
    )


def in_use(scenario: Scenario, *, hardened: bool = False) -> dict[str, Any]:
    """How the paper's purifier of a scenario is used, or the hardened one: settings of `Carso`."""
    if hardened and scenario.hardening is not None:
        own = scenario.hardening
        return {"samples": own.samples, "aggregation": own.aggregation, "anchor": own.anchor}
    return {"samples": scenario.defence.samples, "aggregation": scenario.defence.aggregation}


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What a folder holds besides the purifier."""

    scenario: Scenario
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    classifier: Frozen


def stored(folder: Path, classifier: nn.Module | None, device: torch.device | str) -> Stored:
    """The scenario and the classifier in `folder`; a network of the user's own must be given."""
    table = read_description(folder)
    scenario = from_table(table["scenario"], source=str(description_file(folder)))
    facts = facts_of(table)
    weights = folder / "classifier.safetensors"
    if not weights.exists() and (source := source_of(folder)):
        frozen = classifier_elsewhere(folder, source, classifier)
    else:
        frozen = freeze(classifier or own_network(folder, table, scenario, facts))
        load_described(frozen.classifier, weights)
    frozen = registry.placed(frozen, torch.device(device))
    return Stored(
        scenario=scenario, shape=facts.image_shape, classes=facts.classes, classifier=frozen
    )


def own_network(
    folder: Path, table: dict[str, Any], scenario: Scenario, facts: ImageFacts
) -> nn.Module:
    """The scenario's network, untrained, if that is what the folder has weights of."""
    if table.get("code"):
        raise CarsoError(
            f"{folder} defends the classifier that {table['code']} makes: give it, by "
            "--classifier FILE.py or carso.load(..., classifier=...)"
        )
    return registry.build(scenario.classifier, facts)


def load_described(module: nn.Module, weights: Path) -> None:
    """Load a weight file of a folder, if it is the one that the JSON beside it describes."""
    refuse_exchanged(weights)
    load_weights(module, weights)


def refuse_exchanged(weights: Path) -> None:
    """Compare a weight file with the SHA-256 in the JSON beside it if there is one: a file that was
    brought by hand has none."""
    note = weights.with_suffix(".json")
    if not (note.exists() and weights.exists()):
        return
    table = files.read_json(note)
    wanted = table.get("sha256") if isinstance(table, dict) else None
    if not isinstance(wanted, str):
        raise CarsoError(f"{note} is damaged: it lacks the SHA-256 of {weights.name}")
    if wanted != files.sha256(weights):
        raise files.DamagedFileError(
            f"{weights} is not the file that {note.name} beside it describes: its SHA-256 is "
            "another, so it is damaged or was exchanged"
        )


def chosen_anchor(weights: Path) -> dict[str, float]:
    """The weight of the anchor that was chosen on validation images for these purifier weights."""
    path = weights.with_name("anchor.json")
    if weights.name != "hardening.safetensors" or not path.exists():
        return {}
    found = json_schema.read(path, "the choice of an anchor")
    if found["hardening"] != files.sha256(weights):
        raise CarsoError(f"{path} does not belong to {weights.name} beside it: delete it")
    return {"anchor": float(found["anchor"])}


USED = ("samples", "aggregation", "final_classifier", "anchor", "max_batch", "seed")
"""The settings of `Carso` that say how a trained defence is used."""


class Deployed(Carso):
    """A defence that also knows its scenario, its images and the names of their classes."""

    scenario: Scenario
    trained_shape: tuple[int, int, int]
    """The (C, H, W) of the images that it was trained on."""
    classes: tuple[str, ...]
    facts: ImageFacts
    """All that is known of those images."""
    hardened: bool

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write it to a new or empty `folder`, from which `carso.load` reads it: weights as
        safetensors, `config.json`, a model card; no code.

        A classifier of the user's own is given to that again; its weights come from the folder.
        """
        from carso.defence.saving import save_defence

        return save_defence(self, arguments.place("folder", folder))

    save = save_pretrained

    def push_to_hub(self, name: str, *, private: bool = False) -> str:
        """Save it to the model hub as "ORG/NAME", from where `carso.load` reads it; gives its
        address. Needs carso[hub]; who you are, huggingface_hub knows."""
        return hub.pushed(self.save_pretrained, arguments.text("name", name), private=private)


def deployed(
    classifier: Frozen,
    purifier: TrainablePurifier,
    scenario: Scenario,
    data: ImageData | ImageFacts,
    *,
    hardened: bool,
    **settings: Any,
) -> Deployed:
    """The defence of a scenario that is trained for images such as `data`, used as `settings`
    say."""
    defence = Deployed(classifier, purifier, **settings)
    defence.scenario, defence.hardened = scenario, hardened
    defence.trained_shape, defence.classes = data.image_shape, data.classes
    defence.facts = ImageFacts(
        image_shape=data.image_shape, classes=data.classes, mean=data.mean, std=data.std
    )
    return defence


@arguments.door
def load(
    name: str | Path,
    *,
    classifier: nn.Module | None = None,
    hardened: bool | None = None,
    device: torch.device | str = "cpu",
    **settings: Any,
) -> Deployed:
    """The defence called `name`, the one of a folder, or "ORG/NAME" of a hub, ready to predict.

    The hardened purifier is taken where the scenario hardens; `hardened=False` takes the paper's
    instead. A run around a classifier of the user's own
    takes it again as `classifier`; its weights are loaded from the run. `settings` are those of
    `Carso` (samples, aggregation, anchor, max_batch, seed, final_classifier).
    """
    arguments.refuse_unknown("load", settings, USED)
    folder = folder_of(arguments.place("name", name))
    device = arguments.device(device)
    found = stored(folder, classifier, device)
    purifier = purifier_of(found.scenario, found.classifier, found.shape).deployed()
    hardened = found.scenario.hardening is not None if hardened is None else hardened
    weights = folder / f"{'hardening' if hardened else 'purifier'}.safetensors"
    if not weights.exists():
        if not hardened and (folder / "hardening.safetensors").exists():
            raise CarsoError(f"{name} has only a hardened purifier, not the paper's")
        raise CarsoError(f"{folder} has no {weights.name}: its training is not finished")
    load_described(as_module(purifier), weights)
    chosen = {**in_use(found.scenario, hardened=hardened), **chosen_anchor(weights), **settings}
    return deployed(
        found.classifier,
        purifier.to(device),
        found.scenario,
        facts_of(read_description(folder)),
        hardened=hardened,
        **chosen,
    )
