"""A classifier that is known by name or by its weight file, as something to evaluate alone."""

from __future__ import annotations

from dataclasses import replace

import torch

from carso import data
from carso.classifiers import registry
from carso.classifiers.brought import known, load_known
from carso.classifiers.frozen import freeze
from carso.defence.on_disk import Stored
from carso.scenario.parser import read


def classifier_alone(name: str, device: torch.device) -> Stored | None:
    """The classifier with the images and the threat that it was trained for; None if it is not a
    known one."""
    found = known(name)
    if found is None:
        return None
    row, weights = found
    scenario = replace(read(row.scenario), classifier=row.settings, hardening=None)
    facts = data.facts(scenario.data.set)
    classifier = registry.placed(freeze(load_known(row, weights)), device)
    return Stored(
        scenario=scenario, shape=facts.image_shape, classes=facts.classes, classifier=classifier
    )
