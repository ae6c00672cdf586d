"""A device that is not the CPU, as far as torch can pretend: tensors that say they are elsewhere.

Each holds a tensor of the CPU, which computes for it. What a GPU refuses is refused: a tensor of
the CPU among those of the device, save a single number in arithmetic or an index; a generator of
the CPU for a draw on the device; a way into numpy. Torch's place for devices of others ("private
use") gives it a name, a guard and autograd.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretended"
INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""These take an index of the CPU for a tensor of a GPU."""
ACROSS = ("aten::_to_copy", "aten::copy_")
"""What carries a tensor from one device to the other."""


class OtherDeviceError(RuntimeError):
    """What a GPU would refuse."""


class ElsewhereTensor(torch.Tensor):
    """A tensor that is on the pretended device; `inner` has its values."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> ElsewhereTensor:
        made: ElsewhereTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=torch.device(NAME, 0),
        )  # fmt: skip
        made.inner = inner
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"elsewhere: {self.inner!r}"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, **settings: Any) -> Tensor:
        return torch.tensor(data, **{"dtype": self.dtype, **settings}).to(self.device)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else super().__format__(spec)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation of torch, on the device where its tensors are, or is asked for."""
    given = tree_flatten((args, kwargs))[0]
    here = [one for one in given if isinstance(one, ElsewhereTensor)]
    asked = kwargs.get("device")
    asked = None if asked is None else torch.device(asked).type
    if not here and asked != NAME:
        return func(*args, **kwargs)
    name = func._schema.name
    if name not in ACROSS:
        refuse_mixed(func, name, given, args)
    wrappers = {id(one.inner): one for one in here}
    if torch.Tag.inplace_view in func.tags:  # the outer shape changes along
        with no_dispatch():
            func(*args, **kwargs)
    args, kwargs = tree_map(unwrapped, (args, kwargs))
    if asked == NAME:
        kwargs["device"] = torch.device("cpu")
    made = func(*args, **kwargs)
    if name == "aten::_to_copy" and asked is not None and asked != NAME:
        return made  # back on the CPU
    if name == "aten::copy_" and not isinstance(given[0], ElsewhereTensor):
        return given[0]

    def wrapped(one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        known = wrappers.get(id(one))
        assert known is None or known.shape == one.shape, name
        return ElsewhereTensor(one) if known is None else known

    return tree_map(wrapped, made)


def unwrapped(one: Any) -> Any:
    return one.inner if isinstance(one, ElsewhereTensor) else one


def refuse_mixed(func: Any, name: str, given: list[Any], args: tuple[Any, ...]) -> None:
    """An error where a GPU would give one."""
    if any(isinstance(one, torch.Generator) for one in given):
        raise OtherDeviceError(f"{name} on {NAME} is given a generator of the CPU")
    if name in INDEXED and isinstance(args[0], ElsewhereTensor):
        given = tree_flatten((args[0], args[2:]))[0]  # an index may be of the CPU
    for one in given:
        if not isinstance(one, Tensor) or isinstance(one, ElsewhereTensor):
            continue
        if one.dim() == 0 and torch.Tag.pointwise in func.tags:
            continue
        raise OtherDeviceError(f"{name} on {NAME} meets a tensor of the CPU, {tuple(one.shape)}")


class PretendedDevice(TorchDispatchMode):
    """Within it, what is asked for on the device is made there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class DeviceModule(_DummyBackendModule):
    """What torch asks of a device besides tensors: there are two, and their random numbers are the
    CPU's."""

    def device_count(self) -> int:
        return 2

    def get_rng_state(self, device: object = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def set_up() -> None:
    """Once in a process, which is another one from then on: torch has an accelerator."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=DeviceModule())


@contextmanager
def pretended() -> Iterator[torch.device]:
    """The device, which is there within it."""
    with PretendedDevice():
        yield torch.device(NAME, 0)


def report(found: Mapping[str, Any]) -> NoReturn:
    """Say it, and end at once: torch cannot stop the thread of such a device, and now and then
    aborts an interpreter that ends with it."""
    print(json.dumps(found), flush=True)
    os._exit(0)
