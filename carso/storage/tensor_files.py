"""Tensors in files: safetensors always, `.pt` only as weights, never as a program."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from carso import arguments
from carso.errors import CarsoError, CarsoTypeError
from carso.storage.files import DamagedFileError, replacing

CHECKSUM = "carso_fingerprint"
"""The key of the checksum in the header of a file that `save` wrote."""


def save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """`tensors` as a safetensors file, atomically, with a checksum of them in its header."""
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(plain, temporary, metadata={CHECKSUM: fingerprint(plain)})
        except SafetensorError as error:  # it wraps the operating system's own errors
            raise OSError(str(error)) from None


def load(path: Path) -> dict[str, Tensor]:
    """The named tensors of a safetensors file, or of a `.pt` file that holds only weights.

    A file without a suffix must be a safetensors file: the authors of some publish it so.
    """
    if not path.is_file():
        raise CarsoError(f"there is no file {path}")
    if path.suffix in {".safetensors", ""}:
        return load_safetensors(path)
    if path.suffix not in {".pt", ".pth", ".th"}:
        raise CarsoError(f"weights are .safetensors, .pt, .pth or .th files, got {path.name}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch asks whoever meets an odd file to report it
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises nearly anything
        raise CarsoError(f"{path} is damaged or holds more than weights{code(error)}") from None
    return unwrapped(content, path)


def code(error: Exception) -> str:
    """What a refused file would have run, where torch says so. The rest of its message is left
    out: it tells how to load the file nevertheless."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    return f": it would run {found[1]}, which could be anything" if found else ""


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, compared with the checksum that `save` gave it."""
    try:
        with safe_open(path, framework="pt") as file:
            wanted = (file.metadata() or {}).get(CHECKSUM)
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise DamagedFileError(f"{path} is damaged or no safetensors file: {error}") from None
    if wanted is not None and wanted != fingerprint(tensors):
        raise DamagedFileError(f"{path} is damaged: its tensors are not those that were written")
    return tensors


def unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    """The state dict inside the dicts that training scripts wrap around it."""
    while isinstance(content, Mapping):
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(key): value for key, value in content.items()}
        wrappers = ("state_dict", "model_state_dict", "model", "ema", "net", "params")
        inner = next((content[key] for key in wrappers if key in content), None)
        if inner is None:
            break
        content = inner
    raise CarsoError(f"{path} holds no state dict: a mapping from names to tensors is wanted")


@arguments.door
def load_weights(module: nn.Module, path: Path | str) -> None:
    """Load a weight file into `module`; a file that does not fit is refused with the reason."""
    if not isinstance(module, nn.Module):
        raise CarsoTypeError(f"module must be a torch.nn.Module, got {arguments.shown(module)}")
    load_into(module, load(arguments.place("path", path)), source=str(path))


def load_into(
    module: nn.Module, tensors: Mapping[str, Tensor], *, source: str, what: str = ""
) -> None:
    """Load `tensors` into `module`, or say in one line which keys or shapes do not fit `what` it
    is."""
    state, own = dict(tensors), module.state_dict()
    wrapped = all(name.startswith("module.") for name in state)
    if wrapped and not any(name.startswith("module.") for name in own):
        state = {name.removeprefix("module."): value for name, value in state.items()}
    counters = {name for name in own if name.endswith("num_batches_tracked")}
    for name in counters - state.keys():
        state[name] = own[name]  # older files lack it, and inference never reads it
    missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    shapes = [
        f"{name} is {tuple(state[name].shape)}, not {tuple(own[name].shape)}"
        for name in sorted(own.keys() & state.keys())
        if own[name].shape != state[name].shape
    ]
    problems = [
        f"{len(names)} keys {kind} ({few(names)})"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("misshapen", shapes))
        if names
    ]
    if problems:
        what = what or type(module).__name__
        raise CarsoError(f"{source} does not fit {what}: {'; '.join(problems)}")
    damaged = [
        name
        for name, value in sorted(state.items())
        if not value.is_meta and not bool(value.isfinite().all())
    ]
    if damaged:
        raise CarsoError(f"{source} holds values that are not finite: in {few(damaged)}")
    module.load_state_dict(state)


def few(names: list[str], most: int = 4) -> str:
    """The first of `names`, and how many more there are."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A SHA-256 over names, shapes and bytes: which weights these are."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
