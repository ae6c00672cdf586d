"""What an evaluation has finished, on disk, so that it can go on after being stopped."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carso.errors import CarsoError
from carso.storage import files, json_schema, tensor_files
from carso.storage.files import DamagedFileError

ELAPSED = "elapsed"
SETTINGS = "settings.json"


def begun(folder: Path) -> bool:
    """Whether an evaluation was begun in `folder`."""
    return (folder / SETTINGS).exists()


class FinishedResults:
    """Finished results by name, each a dict of tensors in a file of its own, written atomically.

    Without a folder they are kept in memory only. `settings` decide the result: a folder that
    was begun with others is refused.
    """

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.memory: dict[str, dict[str, Tensor]] = {}
        self.elapsed: dict[str, float] = {}
        if folder is None:
            return
        path = folder / SETTINGS
        settings = json.loads(json.dumps(settings))
        if not path.exists():
            files.write_json(path, settings)
            return
        before = json_schema.read(path, "the settings of an unfinished evaluation")
        if before != settings:
            keys = [key for key in settings if before.get(key) != settings[key]]
            raise CarsoError(
                f"{folder} holds an unfinished evaluation that differs in {', '.join(keys)}; "
                "delete it or write the record elsewhere"
            )

    def get_or_compute(
        self, name: str, compute: Callable[[], dict[str, Tensor]]
    ) -> dict[str, Tensor]:
        """The result called `name`: the one that is kept, or else what `compute` gives."""
        found = self.kept(name)
        if found is None:
            started = time.perf_counter()
            found = compute()
            elapsed = time.perf_counter() - started
            found = {**found, ELAPSED: torch.tensor(elapsed, dtype=torch.float64)}
            self.keep(name, found)
        self.elapsed[name] = float(found[ELAPSED])
        return {key: value for key, value in found.items() if key != ELAPSED}

    @property
    def seconds(self) -> float:
        """The time that the results took, also those that another process made, or this one before
        it was stopped."""
        return sum(self.elapsed.values())

    def kept(self, name: str) -> dict[str, Tensor] | None:
        if self.folder is None:
            return self.memory.get(name)
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            return None
        try:
            return tensor_files.load(path)
        except DamagedFileError as error:
            files.say_made_again(f"{error}; it is made again")
            return None

    def keep(self, name: str, tensors: dict[str, Tensor]) -> None:
        if self.folder is None:
            self.memory[name] = tensors
        else:
            tensor_files.save(self.folder / f"{name}.safetensors", tensors)

    def remove(self) -> None:
        """Everything is in the record now."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def as_tensor(value: Any) -> Tensor:
    """A JSON value as bytes, to be kept beside tensors."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).clone()


def from_tensor(tensor: Tensor) -> Any:
    """The JSON value that `as_tensor` packed."""
    return json.loads(bytes(tensor.tolist()))
