"""Reading the pickles of CIFAR without letting them run code.

A pickle may name any function and have it called. The CIFAR files need only what rebuilds a numpy
array; anything else is refused before it is looked up.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from carso.data.data_errors import DataError


def _encode_latin1(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes at protocol 2 (`_codecs.encode`), and nothing more."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} where only latin1 is expected")
    return text.encode(encoding)


_RECONSTRUCT = cast(Callable[..., Any], np.empty(0).__reduce__()[0])
"""numpy's own function under whichever module name the installed version keeps it."""

ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode_latin1,
}


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")
        return ALLOWED[module, name]


def read_pickled_dictionary(path: Path) -> dict[str, Any]:
    """The dictionary a CIFAR file consists of; strings of Python 2 come back as str."""
    try:
        with path.open("rb") as file:
            content = _RestrictedUnpickler(file, encoding="latin1").load()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # damaged bytes can make the unpickler raise almost anything
        raise DataError(f"{path}: expected an intact CIFAR pickle ({error})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a dictionary, found {type(content).__name__}")
    return content
