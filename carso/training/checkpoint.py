"""Checkpoints: tensors in safetensors, everything else in JSON, the JSON written last.

`checkpoint.json` names the tensor file that belongs to it, so that a run killed between the two
writes still has the checkpoint before. Both files carry a checksum. The checkpoint before the last
is kept as `previous.json`, for when the last is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from carso.errors import CarsoError
from carso.storage import files, json_schema, tensor_files
from carso.storage.files import DamagedFileError
from carso.storage.tensor_files import few
from carso.training.run_identity import differences

INDEX = "checkpoint.json"
PREVIOUS = "previous.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Where a stage of training stands."""

    identity: dict[str, Any]
    """What must be equal for a run to go on from here: stage, seed, settings, data."""
    history: list[dict[str, float]]
    """One row of losses and accuracies per finished epoch."""
    state: Any
    """Nested dicts and lists of tensors and numbers: model, optimiser, averages."""
    damaged: str = ""
    """Why the one after it could not be read, if that is so."""


def save(folder: Path, checkpoint: Checkpoint, *, steps: int = 0) -> None:
    """Write the checkpoint, keep the one before it, and forget the one before that. It may be one
    within an epoch, after so many `steps`."""
    tensors: dict[str, Tensor] = {}
    structure = pack(checkpoint.state, tensors, path="state")
    within = f"-step-{steps:06d}" if steps else ""
    name = f"epoch-{len(checkpoint.history):04d}{within}.safetensors"
    tensor_files.save(folder / name, tensors)
    before = keep_previous(folder, name)
    files.write_json(
        folder / INDEX,
        {
            "identity": checkpoint.identity,
            "history": checkpoint.history,
            "tensors": name,
            "state": structure,
        },
    )
    for old in (*folder.glob("epoch-*.safetensors"), *folder.glob(".epoch-*")):
        if old.name not in (name, before):  # older ones, and what a killed process left half done
            old.unlink()


def keep_previous(folder: Path, name: str) -> str:
    """Let the checkpoint that stands be the previous one; the name of its tensor file.

    One that cannot be read, or whose tensor file `name` replaces, was found damaged: then the
    previous one stays.
    """
    found = tensors_of(folder / INDEX)
    if found in ("", name):
        return tensors_of(folder / PREVIOUS)
    with files.replacing(folder / PREVIOUS) as temporary:
        temporary.write_bytes((folder / INDEX).read_bytes())
    return found


def forget_damaged(folder: Path) -> None:
    """Let the previous checkpoint be the last, which is damaged and must not become the previous
    one in its turn."""
    with files.replacing(folder / INDEX) as temporary:
        temporary.write_bytes((folder / PREVIOUS).read_bytes())


def tensors_of(index: Path) -> str:
    """The name of a checkpoint's tensor file, empty if it cannot be read."""
    try:
        return str(files.read_json(index)["tensors"])
    except (CarsoError, KeyError, TypeError):
        return ""


def load(folder: Path, identity: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint in `folder`, None if there is none; one of another run is an error.

    If the last is damaged, the one before it is taken, which says why; if both are, that is an
    error.
    """
    try:
        return read(folder, INDEX, identity)
    except DamagedFileError as error:
        damage = str(error)
    try:
        found = read(folder, PREVIOUS, identity)
    except DamagedFileError as error:
        raise CarsoError(
            f"{damage}; so is the checkpoint before it: {error}; delete {folder} to begin anew"
        ) from None
    if found is None:
        raise CarsoError(f"{damage}; there is none before it: delete {folder} to begin anew")
    return replace(found, damaged=damage)


def read(folder: Path, name: str, identity: dict[str, Any]) -> Checkpoint | None:
    """One of the two checkpoints in `folder`, None if it is not there."""
    table = index_of(folder / name, identity)
    if table is None:
        return None
    tensor_file = folder / table["tensors"]
    if not tensor_file.is_file():
        raise DamagedFileError(f"{tensor_file} is gone, which {folder / name} names")
    tensors = tensor_files.load(tensor_file)
    try:
        state = unpack(table["state"], tensors)
    except (KeyError, TypeError, ValueError):
        raise DamagedFileError(f"{tensor_file} lacks tensors that {folder / name} names") from None
    return Checkpoint(identity=identity, history=table["history"], state=state)


def epochs_done(folder: Path, identity: dict[str, Any]) -> int:
    """How many epochs the checkpoint in `folder` has; one of another run is an error."""
    found = load(folder, identity)
    return len(found.history) if found else 0


def index_of(index: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON of a checkpoint, after a check that it belongs to this run."""
    if not index.exists():
        return None
    table = json_schema.read(index, "a checkpoint of carso")
    if changed := differences(table["identity"], identity):
        raise CarsoError(
            f"{index.parent} holds a checkpoint of other settings ({few(changed)} changed); "
            "choose another --run folder, or delete this one"
        )
    return table


def pack(value: Any, tensors: dict[str, Tensor], *, path: str) -> Any:
    """`value` as JSON; its tensors go into `tensors` under their path.

    Dicts become lists of pairs, since optimiser states have keys that are not strings.
    """
    if isinstance(value, Tensor):
        while path in tensors:  # the keys 0 and "0" have one path
            path += "'"
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {
            "dict": [
                [pack(key, tensors, path="key"), pack(item, tensors, path=f"{path}/{key}")]
                for key, item in value.items()
            ]
        }
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        items = [pack(item, tensors, path=f"{path}/{i}") for i, item in enumerate(value)]
        return {kind: items}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold {type(value).__name__} at {path}")


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `pack`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {unpack(key, tensors): unpack(item, tensors) for key, item in content}
    items = [unpack(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)
