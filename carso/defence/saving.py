"""`defence.save_pretrained`: what `carso.fit` and `carso.harden` made, in a folder that
`carso.load` reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carso.classifiers import registry
from carso.classifiers.frozen import freeze
from carso.data import ImageFacts
from carso.defence.description import describe
from carso.defence.model_card import model_card
from carso.defence.on_disk import Deployed, purifier_of
from carso.defence.shipped import DESCRIPTIONS
from carso.errors import CarsoError
from carso.purifiers.base import as_module
from carso.purifiers.kinds import made_as
from carso.scenario.classifier_settings import ClassifierSettings
from carso.scenario.schema import DefenceSettings, Scenario
from carso.storage import files, tensor_files
from carso.storage.provenance import provenance
from carso.threats.norms import THREATS
from carso.threats.threat import Threat


def save_defence(defence: Deployed, folder: Path) -> Path:
    """Classifier and purifier, each with its hash beside it, and the scenario as it is used."""
    if defence.final_classifier is not defence.classifier:
        raise CarsoError("a defence with a final_classifier cannot be saved: only the ablation is")
    refuse_own_threat(defence.scenario.threat)
    refuse_own_purifier(defence)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CarsoError(f"cannot write {folder}: it is there already; give a new or empty folder")
    network = defence.classifier.classifier
    description = description_of(network, as_used(defence), defence.facts)
    stage = "hardening" if defence.hardened else "purifier"
    with files.making(folder) as place:
        keep(place, "classifier", network.state_dict())
        keep(place, stage, as_module(defence.purifier).state_dict())
        files.write_json(place / DESCRIPTIONS[1], description)
        files.write_text(
            place / "README.md", model_card(defence, own_code=bool(description["code"]))
        )
    return folder


def refuse_own_threat(threat: Threat) -> None:
    """One line for a threat that a folder cannot name."""
    if threat.norm not in THREATS:
        raise CarsoError(
            f"a defence for the threat {threat.norm!r} of your own cannot be saved: a folder names "
            f"one of {', '.join(THREATS)}"
        )


def refuse_own_purifier(defence: Deployed) -> None:
    """One line for a purifier that the scenario's [purifier] does not build: a folder would name
    another than it holds."""
    described = purifier_of(defence.scenario, defence.classifier, defence.trained_shape).deployed()
    known = bool(made_as(defence.purifier))  # by hand, settings may differ that no shape shows
    if not known or shapes_of(as_module(described)) != shapes_of(as_module(defence.purifier)):
        raise CarsoError(
            f"a purifier that was made by hand ({type(defence.purifier).__name__}) or of another "
            f"kind or size than the scenario's ({defence.scenario.purifier.kind}) cannot be saved: "
            "start from one that carso.fit, carso.harden or carso.load gave"
        )


def shapes_of(network: nn.Module) -> dict[str, torch.Size]:
    """Of each tensor that is saved of it."""
    return {name: value.shape for name, value in network.state_dict().items()}


def description_of(network: nn.Module, scenario: Scenario, facts: ImageFacts) -> dict[str, Any]:
    """What `carso.load` must know of a defence around this classifier of the user's."""
    known = is_known(network, scenario.classifier, facts)
    return {
        **describe(scenario, facts),
        "classifier": tensor_files.fingerprint(network.state_dict()),
        "code": "" if known else f"the class {type(network).__name__}",
    }


def as_used(defence: Deployed) -> Scenario:
    """The scenario, with the settings that the defence has now."""
    used: dict[str, Any] = {"samples": defence.samples, "aggregation": defence.aggregation}
    if not defence.hardened:
        if defence.own_counts and defence.anchor != 1:
            raise CarsoError("the anchor of a defence that is not hardened cannot be saved")
        return replace(defence.scenario, hardening=None, defence=DefenceSettings(**used))
    assert defence.scenario.hardening is not None
    hardening = replace(defence.scenario.hardening, **used, anchor=defence.anchor)
    return replace(defence.scenario, hardening=hardening)


def keep(folder: Path, name: str, weights: dict[str, Tensor]) -> None:
    """`NAME.safetensors`, and `NAME.json` with its hash."""
    path = folder / f"{name}.safetensors"
    tensor_files.save(path, weights)
    note: dict[str, Any] = {"what": name, "sha256": files.sha256(path), "provenance": provenance()}
    files.write_json(folder / f"{name}.json", note)


def is_known(network: nn.Module, settings: ClassifierSettings, facts: ImageFacts) -> bool:
    """Whether the settings alone give this network, its weights aside: then nobody has to bring it
    again. It must also answer the same, for mean and std are no weights."""
    with torch.device("meta"):
        shapes = shapes_of(registry.build(settings, facts))
    if shapes != shapes_of(network):
        return False
    built = registry.build(settings, facts)
    if type(built) is not type(network):
        return False
    built.load_state_dict(network.state_dict())
    reference = next(network.parameters(), torch.empty(0))
    probe = torch.full((1, *facts.image_shape), 0.5).to(reference)
    same = registry.placed(freeze(built), probe.device)
    with torch.no_grad():  # the order of its memory may differ, and with that the rounding
        return torch.allclose(same(probe), freeze(network)(probe), rtol=1e-4, atol=1e-4)
