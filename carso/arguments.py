"""What a caller may give, checked at the doors of the package: one clear line for a mistake.

Values come back as plain Python's, whatever numpy or torch made them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from carso.errors import CarsoError, CarsoTypeError, reason

if TYPE_CHECKING:
    import torch

P = ParamSpec("P")
R = TypeVar("R")


def door(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, with one clear line where its arguments do not fit its signature, or where one
    that is True or False is given something else."""
    signature, what = inspect.signature(function), function.__qualname__.removesuffix(".__init__")
    known = [
        name
        for name, one in signature.parameters.items()
        if one.kind is not one.VAR_KEYWORD and name != "self"
    ]
    flags = {
        name: one.default is None
        for name, one in signature.parameters.items()
        if one.annotation in (bool, "bool", "bool | None")
    }
    open_ended = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            if not open_ended:
                refuse_unknown(what, kwargs, known)
            raise CarsoTypeError(f"{what}(): {error}") from None
        for name, optional in flags.items():
            if name in given and not (optional and given[name] is None):
                flag(name, given[name])
        return function(*args, **kwargs)

    return called


def refuse_unknown(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """One line for a setting that there is not, with the name that comes nearest."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise CarsoTypeError(f"{what} has no setting {name!r}; {hint}")


def shown(value: Any) -> str:
    """A value as a message names it, however large it is."""
    text = " ".join(repr(value).split())
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def whole(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number; one of numpy or torch will do, a float or a bool will not."""
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise CarsoTypeError(f"{name} must be a whole number, got {shown(value)}") from None
    if (least is not None and found < least) or (most is not None and found > most):
        limits = f"at least {least}" if most is None else f"between {least} and {most}"
        raise CarsoError(f"{name} must be {limits}, got {found}")
    return found


def seed_number(value: Any) -> int:
    """A seed: any whole number."""
    return whole("seed", value, least=-(2**63), most=2**64 - 1)


def real(name: str, value: Any) -> float:
    """A number, finite or not."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise CarsoTypeError(f"{name} must be a number, got {shown(value)}") from None


def number(name: str, value: Any, *, above: float = -math.inf, most: float = math.inf) -> float:
    """A finite number; one of numpy, or a tensor of one number, will do."""
    found = real(name, value)
    if not (math.isfinite(found) and above < found <= most):
        low = "" if above == -math.inf else f" above {above:g}"
        high = "" if most == math.inf else f" up to {most:g}"
        raise CarsoError(f"{name} must be a finite number{low}{high}, got {found:g}")
    return found


def text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise CarsoTypeError(f"{name} must be a string, got {shown(value)}")
    return value


def place(name: str, value: Any) -> Path:
    """A path, or the string of one."""
    if not isinstance(value, str | Path):
        raise CarsoTypeError(f"{name} must be a path or a string, got {shown(value)}")
    if not str(value).strip():
        raise CarsoError(f"{name} is an empty path")
    return Path(value)


def names(name: str, value: Any) -> tuple[str, ...]:
    """A list of names; a string is none, though it has letters to iterate over."""
    if isinstance(value, str):
        raise CarsoTypeError(f"{name} must be a list of names, such as [{value!r}], got {value!r}")
    if not isinstance(value, Iterable):
        raise CarsoTypeError(f"{name} must be a list of names, got {shown(value)}")
    found = tuple(value)
    for one in found:
        if not isinstance(one, str):
            raise CarsoTypeError(f"{name} must be a list of names, found {shown(one)} in it")
    return found


def refuse_unreadable(name: str, tensor: Any) -> None:
    """One line for a tensor whose numbers cannot be looked at: a sparse one, or one on meta."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return
    if tensor.is_meta:
        raise CarsoError(f"{name} must hold numbers; this tensor is on meta, which holds none")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise CarsoError(f"{name} must be a plain, dense tensor, got {tensor.layout}")


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise CarsoTypeError(f"{name} must be True or False, got {shown(value)}")
    return value


def device(value: Any) -> torch.device:
    """A device that is there."""
    import torch

    if not isinstance(value, str | torch.device):
        raise CarsoTypeError(f"device must be a string or a torch.device, got {shown(value)}")
    try:
        found = torch.device(value)
        if found.type != "meta":
            torch.zeros(1, device=found).item()
            return found
        why = "it holds no numbers"
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = reason(error).partition(". ")[0][:120]
    raise CarsoError(f"device is cpu, cuda or cuda:N; {str(value)!r} is not usable here: {why}")
