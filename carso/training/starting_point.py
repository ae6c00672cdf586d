"""A hardening that begins from the purifier of another run, perhaps around another classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from carso.defence.on_disk import refuse_exchanged
from carso.defence.shipped import folder_of
from carso.errors import CarsoError
from carso.purifiers.base import TrainablePurifier
from carso.scenario.hardening_settings import STARTS, means_a_file
from carso.storage import tensor_files
from carso.storage.tensor_files import few


def weights_of(start: str) -> Path | None:
    """The file of purifier weights that `start` of [hardening] means: itself, or the one of a run
    or of a shipped defence, hardened if it is; None where it names no other run."""
    if start in STARTS:
        return None
    if means_a_file(start):
        if not (path := Path(start)).is_file():
            raise CarsoError(f"start: there is no file {start}")
        return path
    try:
        folder = folder_of(start)
    except CarsoError as error:
        raise CarsoError(f"start is neither of {STARTS} nor a file, and {error}") from None
    for name in ("hardening", "purifier"):
        if (found := folder / f"{name}.safetensors").is_file():
            return found
    raise CarsoError(f"start: {start} has no purifier yet, its training is not finished")


def take(purifier: TrainablePurifier, weights: Path) -> dict[str, Any]:
    """Load into `purifier` every tensor of the file whose name and shape agree; what the run's
    record says of it. What reads the activations may differ from classifier to classifier."""
    refuse_exchanged(weights)
    tensors, own = tensor_files.load(weights), purifier.state_dict()
    taken = {
        name: tensors[name]
        for name, value in own.items()
        if name in tensors and tensors[name].shape == value.shape
    }
    learnt = [name for name in taken if tensors[name].is_floating_point()]
    if not learnt:
        raise CarsoError(f"start: {weights} has no tensor of this purifier, by name and shape")
    damaged = [name for name in learnt if not bool(tensors[name].isfinite().all())]
    if damaged:
        raise CarsoError(f"start: {weights} holds values that are not finite: in {few(damaged)}")
    purifier.load_state_dict({**own, **taken})
    return {
        "fingerprint": tensor_files.fingerprint(tensors),
        "taken": len(taken),
        "of": len(own),
        "new": sorted(own.keys() - taken.keys()),
    }
