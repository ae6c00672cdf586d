"""The classifier of a defence whose folder does not hold it: its weights are somebody else's.

`classifier.json` then names the file that they come from by its SHA-256, and the record of the
purifier's training the weights themselves. A file inside an installed package is found; any other
is given by whoever has it.
"""

from __future__ import annotations

from pathlib import Path

from torch import nn

from carso.classifiers.brought import load_known
from carso.classifiers.frozen import Frozen, freeze
from carso.classifiers.known_files import KNOWN, installed, installed_file
from carso.errors import CarsoError
from carso.storage import json_schema, tensor_files

WHAT = "a record of trained weights"


def source_of(folder: Path) -> dict[str, str]:
    """Name and SHA-256 of the file that the classifier was brought in; empty if it was not."""
    note = folder / "classifier.json"
    found = json_schema.read(note, WHAT).get("source", {}) if note.exists() else {}
    return {key: str(found[key]) for key in ("name", "sha256")} if found else {}


def is_whole(folder: Path) -> bool:
    """Whether nobody has to bring the classifier of the defence in `folder`."""
    weights = folder / "classifier.safetensors"
    return weights.exists() or known_name(source_of(folder)) in installed()


def known_name(source: dict[str, str]) -> str:
    """What a file that a classifier was brought in is known by; empty if it is not known."""
    return next((name for name, row in KNOWN.items() if row.sha256 == source.get("sha256")), "")


def classifier_elsewhere(folder: Path, source: dict[str, str], given: nn.Module | None) -> Frozen:
    """The classifier that the purifier in `folder` was trained around, which comes from the file
    `source`: `given`, or the one of an installed package."""
    name = known_name(source)
    if given is None and name in installed():
        given = load_known(KNOWN[name], installed_file(name))
    if given is None:
        title = f", {KNOWN[name].title}" if name else ""
        file = KNOWN[name].published if name else ""
        raise CarsoError(
            f"{folder.name} does not hold the classifier that it defends{title}: fetch "
            f"{file or source['name']} and give it, by --classifier FILE or "
            "carso.load(..., classifier=carso.load_classifier(FILE))"
        )
    frozen = freeze(given)
    wanted = json_schema.read(folder / "hardening.json", WHAT).get("identity", {})
    if tensor_files.fingerprint(frozen.state_dict()) != wanted.get("classifier"):
        raise CarsoError(
            f"the classifier that was given has other weights than the one that {folder.name} "
            f"defends, which come from {source['name']}"
        )
    return frozen
