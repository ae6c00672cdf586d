"""What tells one run from another: compared key by key, so that a refusal can name the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carso.defence.description import read_description
from carso.errors import CarsoError
from carso.scenario.parser import from_table
from carso.scenario.tables import as_table
from carso.storage.tensor_files import few
from carso.training.given_classifier import same_classifier


def differences(found: Any, wanted: Any, name: str = "") -> list[str]:
    """The keys whose values differ, with dots, e.g. "hardening.epochs".

    Runs of older revisions have a hash where there are settings now. It says nothing that can be
    compared; but they have their settings in `defence.json`, which are compared when they go on.
    """
    if isinstance(found, str) and isinstance(wanted, dict):
        return []
    if isinstance(found, dict) and isinstance(wanted, dict):
        inside = {key: f"{name}.{key}" if name else key for key in (*wanted, *found)}
        parts = [differences(found.get(k), wanted.get(k), path) for k, path in inside.items()]
        return [changed for part in parts for changed in part]
    return [] if found == wanted else [name]


def refuse_another_run(folder: Path, description: dict[str, Any]) -> None:
    """A folder that holds a run of other settings is left as it is."""
    if not (folder / "defence.json").exists():
        return
    found = read_description(folder)
    wanted = description["scenario"]
    # Keys that the run did not know yet get their defaults.
    scenario = as_table(from_table(found["scenario"], source=str(folder / "defence.json")))
    decisive = ("seed", "threat", "classifier", "purifier", "hardening")
    parts = [differences(scenario.get(key), wanted[key], key) for key in decisive]
    changed = [name for part in parts for name in part]
    if found["images"] != description["images"]:
        changed.append("data")
    if not same_classifier(found, description):
        changed.append("the classifier")
    if changed:
        raise CarsoError(
            f"{folder} holds a run of other settings ({few(changed)} changed); "
            "choose another --run folder, or delete this one"
        )
