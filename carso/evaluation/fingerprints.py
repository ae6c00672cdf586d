"""Which model and which images these are: what must be equal for an evaluation to be the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from inspect import isroutine
from typing import Any, Protocol, runtime_checkable

import numpy
import torch
from torch import Generator, Tensor, nn

from carso.storage import tensor_files


@runtime_checkable
class Fingerprinted(Protocol):
    """A purifier that is no module may say itself which one it is."""

    def fingerprint(self) -> str:
        """Equal for two purifiers that draw the same candidates, and for no others."""
        ...


class UnknownStateError(Exception):
    """Something whose state cannot be read, so that nobody can say whether it is the same."""


def weights(model: nn.Module) -> str:
    """Which weights a module has: those that a file of them would hold."""
    return tensor_files.fingerprint(model.state_dict())


def model_identity(components: Mapping[str, Any]) -> str | None:
    """Which model it is that answers from `components`; None where that cannot be told.

    Besides the weights it covers buffers that no file holds (such as mean and std), the classes
    of the modules with their settings, and purifiers that are no modules.
    """
    try:
        return digest({name: state(component) for name, component in components.items()})
    except UnknownStateError:
        return None


def images_identity(images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Which images these are."""
    found = hashlib.sha256(images.contiguous().numpy().tobytes())
    found.update(labels.contiguous().numpy().tobytes())
    return {"count": len(images), "sha256": found.hexdigest()}


def examples_identity(examples: Tensor) -> str:
    """Which adversarial images these are."""
    return tensor_files.fingerprint({"examples": examples})


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def state(value: Any, within: tuple[int, ...] = ()) -> Any:
    """All that decides what `value` does, as JSON; `within` are the objects that it is part of."""
    if isinstance(value, nn.Module):
        return module_state(value)
    if isinstance(value, Fingerprinted) and not isinstance(value, type):
        return value.fingerprint()
    found = plain_state(value)
    if found is not None:
        return found
    if id(value) in within:
        return "itself"
    inside = (*within, id(value))
    if isinstance(value, Mapping):
        return [[state(key, inside), state(value[key], inside)] for key in value]
    if isinstance(value, list | tuple):
        return [state(item, inside) for item in value]
    names = attributes(value)
    if names is None:
        raise UnknownStateError(type(value).__qualname__)
    inner = {name: state(getattr(value, name), inside) for name in names}
    return [type(value).__qualname__, inner]


def plain_state(value: Any) -> Any:
    """The same of what has no parts; None for anything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return [type(value).__name__, repr(value)]
    if isinstance(value, Tensor):
        return tensor_files.fingerprint({"": value})
    if isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
        return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, torch.dtype | torch.device | bytes):
        return repr(value)
    if isinstance(value, Generator):
        return "generator"  # every use of it is seeded
    return value.__qualname__ if isinstance(value, type) else None


def attributes(value: Any) -> list[str] | None:
    """The names of what an object keeps; None where it keeps it out of sight."""
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    if isroutine(value) or isinstance(value, partial):
        return None
    if not isinstance(getattr(value, "__dict__", None), dict):
        return None
    return sorted(vars(value))


def module_state(module: nn.Module) -> Any:
    """Parameters, buffers (also those that a file of its weights leaves out), classes and plain
    settings of a module and of those in it."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    parts = [
        [name, type(part).__qualname__, part.extra_repr(), settings(part)]
        for name, part in module.named_modules()
    ]
    return [tensor_files.fingerprint(tensors), parts]


def settings(module: nn.Module) -> dict[str, Any]:
    """Its public attributes that are plain values."""
    found = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name == "training":
            continue
        items = value if isinstance(value, list | tuple) else [value]
        plain = [plain_state(item) for item in items]
        if None not in plain:
            found[name] = plain
    return found
