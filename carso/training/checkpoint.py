"""Checkpoints: tensors in safetensors, everything else in JSON, the JSON written last.

`checkpoint.json` names the tensor file that belongs to it, so that a run killed between the two
writes still has the checkpoint before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from carso.errors import CarsoError
from carso.storage import files, tensor_files
from carso.storage.tensor_files import few
from carso.training.identity import differences

INDEX = "checkpoint.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Where a stage of training stands."""

    identity: dict[str, Any]
    """What must be equal for a run to go on from here: stage, seed, settings, data."""
    history: list[dict[str, float]]
    """One row of losses and accuracies per finished epoch."""
    state: Any
    """Nested dicts and lists of tensors and numbers: model, optimiser, averages."""


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the checkpoint and then forget the one before it."""
    tensors: dict[str, Tensor] = {}
    structure = pack(checkpoint.state, tensors, path="state")
    name = f"epoch-{len(checkpoint.history):04d}.safetensors"
    tensor_files.save(folder / name, tensors)
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
        if old.name != name:  # the one before, and what a killed process left half written
            old.unlink()


def load(folder: Path, identity: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint in `folder`, None if there is none; one of another run is an error."""
    table = index_of(folder, identity)
    if table is None:
        return None
    tensor_file = folder / table["tensors"]
    tensors = tensor_files.load(tensor_file)
    try:
        state = unpack(table["state"], tensors)
    except (KeyError, TypeError, ValueError):
        raise CarsoError(
            f"{tensor_file} lacks tensors that {folder / INDEX} names; delete both"
        ) from None
    return Checkpoint(identity=identity, history=table["history"], state=state)


def epochs_done(folder: Path, identity: dict[str, Any]) -> int:
    """How many epochs the checkpoint in `folder` has; one of another run is an error."""
    table = index_of(folder, identity)
    return len(table["history"]) if table else 0


def index_of(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON of the checkpoint in `folder`, after a check that it belongs to this run."""
    index = folder / INDEX
    if not index.exists():
        return None
    table = files.read_json(index)
    kinds = {"identity": dict, "history": list, "tensors": str, "state": dict}
    if not isinstance(table, dict) or not all(
        isinstance(table.get(key), kind) for key, kind in kinds.items()
    ):
        raise CarsoError(f"{index} is not a checkpoint of carso; delete {folder}")
    if changed := differences(table["identity"], identity):
        raise CarsoError(
            f"{folder} holds a checkpoint of other settings ({few(changed)} changed); "
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
