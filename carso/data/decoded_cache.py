"""Decoded images kept in the user's cache: a hundred thousand JPEG files take a while."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from carso.data.locations import cache_root
from carso.data.pictures import SHOW_PROGRESS_FROM, PictureFormat, decode
from carso.errors import CarsoError
from carso.storage import tensor_files
from carso.storage.files import NoCacheError, say_made_again


def decode_once(
    paths: Sequence[Path], expected: PictureFormat, *, folder: Path, name: str
) -> Tensor:
    """`decode`, or its result of an earlier time if no file of the list has changed since."""
    if len(paths) < SHOW_PROGRESS_FROM:  # decoding is about as fast as reading the cache
        return decode(paths, expected)
    try:
        root = cache_root()
    except NoCacheError:
        return decode(paths, expected)
    kept = root / "decoded" / f"{name}-{_key(paths, expected, folder)}.safetensors"
    images = _read(kept, len(paths))
    if images is None:
        images = decode(paths, expected)
        _write(kept, images)
    return images


def _key(paths: Sequence[Path], expected: PictureFormat, folder: Path) -> str:
    """Changes when a file is added, removed, renamed or written to."""
    digest = hashlib.sha256(repr(expected).encode())
    for path in paths:
        # A missing file is left to `decode`, which names it.
        status = path.stat() if path.exists() else None
        entry = (str(path.relative_to(folder)), status and (status.st_size, status.st_mtime_ns))
        digest.update(repr(entry).encode())
    return digest.hexdigest()[:24]


def _read(path: Path, count: int) -> Tensor | None:
    """What is kept; None where there is nothing, or, which is said, something damaged."""
    if not path.is_file():
        return None
    try:
        images = tensor_files.load(path).get("images")
        if images is None or len(images) != count:
            raise CarsoError(f"{path} does not hold {count} images")
    except CarsoError as error:
        say_made_again(f"{error}; they are decoded again")
        return None
    return images


def _write(path: Path, images: Tensor) -> None:
    """Keep the images; without a writable cache, do without."""
    with suppress(OSError, CarsoError):
        tensor_files.save(path, {"images": images.to(torch.uint8)})
