"""The IDX files of MNIST and its relatives, plain or gzipped."""

import gzip
import math
import struct
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from carso.data.contents import Contents
from carso.data.data_errors import DataError
from carso.data.images import Split, check_labels

UNSIGNED_BYTE = 0x08
"""The only element type these data sets use, the third byte of the magic number."""

TRAINING = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def find_idx(folder: Path, name: str) -> Path | None:
    """The file of this official name in the folder, plain or gzipped."""
    candidates = (folder / name, folder / f"{name}.gz")
    return next((path for path in candidates if path.is_file()), None)


def has_idx_files(folder: Path) -> bool:
    """Whether all four files of a data set are there."""
    return all(find_idx(folder, name) for name in TRAINING + TEST)


def read_idx_split(folder: Path, names: tuple[str, str], *, classes: int) -> Split:
    """Images (n, 1, H, W) and labels of one pair of files."""
    images_path, labels_path = (find_idx(folder, name) for name in names)
    if images_path is None or labels_path is None:
        raise DataError(f"{folder}: expected the files {names[0]}[.gz] and {names[1]}[.gz]")
    images = read_idx(images_path, dimensions=3)
    labels = read_idx(labels_path, dimensions=1).long()
    if len(images) != len(labels):
        raise DataError(
            f"{labels_path}: expected one label for each of the {len(images)} images "
            f"of {images_path.name}, found {len(labels)}"
        )
    check_labels(labels, classes=classes, path=labels_path)
    return Split(images=images.unsqueeze(1), labels=labels)


def read_idx(path: Path, *, dimensions: int) -> Tensor:
    """A uint8 tensor with this number of dimensions, checked to be whole."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            return _parse(file, path, dimensions)
    except EOFError as error:
        raise DataError(f"{path}: the gzip stream is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: expected an intact gzip file ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _parse(file: BufferedIOBase, path: Path, dimensions: int) -> Tensor:
    expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    magic = file.read(4)
    if magic != expected:
        raise DataError(
            f"{path}: expected an IDX file with magic number {expected.hex()}, "
            f"found {magic.hex() or 'an empty file'}"
        )
    header = file.read(4 * dimensions)
    if len(header) < 4 * dimensions:
        raise DataError(f"{path}: truncated within the header")
    shape = struct.unpack(f">{dimensions}I", header)
    size = math.prod(shape)
    if size == 0:
        raise DataError(f"{path}: expected at least one element, the header says {shape}")
    try:
        content = file.read(size + 1)  # one byte more than there should be, to notice a longer file
    except (OverflowError, MemoryError):
        raise DataError(f"{path}: damaged, its header says {shape}") from None
    if len(content) != size:
        found = "more" if len(content) > size else f"only {len(content)}"
        raise DataError(f"{path}: expected {size} bytes for shape {shape}, found {found}")
    return torch.from_numpy(np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape))


def write_idx(path: Path, values: Tensor) -> None:
    """Write a uint8 tensor; a name that ends in .gz is compressed, the same bytes every time."""
    header = bytes((0, 0, UNSIGNED_BYTE, values.ndim)) + struct.pack(
        f">{values.ndim}I", *values.shape
    )
    content = header + values.to(torch.uint8).contiguous().numpy().tobytes()
    if path.suffix == ".gz":
        content = gzip.compress(content, compresslevel=9, mtime=0)
    path.write_bytes(content)


def read_idx_folder(folder: Path, *, classes: int) -> Contents:
    """The four files of MNIST or a relative of it with so many classes."""
    return Contents(
        training=read_idx_split(folder, TRAINING, classes=classes),
        test=read_idx_split(folder, TEST, classes=classes),
    )
