"""A scenario as plain values: for records, checkpoints, and what tells one run from another."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from typing import Any, cast

from carso.scenario.schema import Scenario
from carso.threats import norms as threats


def as_table(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain JSON values, for records and checkpoints."""
    plain = {**asdict(scenario), "threat": threats.as_table(scenario.threat)}
    table = cast(dict[str, Any], json.loads(json.dumps(plain)))
    purifier = table["purifier"]
    table["purifier"] = {"kind": purifier["kind"], **purifier.pop("own"), **purifier}
    return table


def distinct(settings: Any) -> Any:
    """What differs from the defaults, as plain JSON values: the identity of a run.

    A key that is added later is at its default in every run before it, and so changes no identity.
    """
    if is_dataclass(settings):
        return {
            entry.name: distinct(value)
            for entry in fields(settings)
            if (value := getattr(settings, entry.name)) != default_of(entry)
        }
    if isinstance(settings, tuple | list):
        return [distinct(item) for item in settings]
    return settings


def default_of(entry: Field[Any]) -> Any:
    """The default of a dataclass's field; a field without one equals nothing."""
    return entry.default if entry.default_factory is MISSING else entry.default_factory()
