"""CIFAR-10 and CIFAR-100 in their official layouts: the Python pickles and the binary files."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from carso.data.contents import Contents
from carso.data.data_errors import DataError
from carso.data.images import Split, check_labels, join
from carso.data.restricted_pickle import read_pickled_dictionary

IMAGE_SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
"""Bytes of one image in the binary version: the label, then the pixels of each channel in turn."""

CIFAR10_TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR10_TEST = "test_batch"


def has_cifar10_pickles(folder: Path) -> bool:
    """Whether all six batches of the Python version are there."""
    return all((folder / name).is_file() for name in (*CIFAR10_TRAINING, CIFAR10_TEST))


def has_cifar10_binary(folder: Path) -> bool:
    """Whether all six batches of the binary version are there."""
    return all((folder / f"{name}.bin").is_file() for name in (*CIFAR10_TRAINING, CIFAR10_TEST))


def has_cifar100(folder: Path) -> bool:
    """Whether the three files of the Python version are there."""
    return all((folder / name).is_file() for name in ("train", "test", "meta"))


def read_cifar10_pickles(folder: Path) -> Contents:
    """The Python version of CIFAR-10."""
    batches = [read_pickle(folder / name, "labels", classes=10) for name in CIFAR10_TRAINING]
    test = read_pickle(folder / CIFAR10_TEST, "labels", classes=10)
    return Contents(training=join(batches), test=test)


def read_cifar10_binary(folder: Path) -> Contents:
    """The binary version of CIFAR-10, which holds the same images in the same order."""
    batches = [read_binary(folder / f"{name}.bin") for name in CIFAR10_TRAINING]
    return Contents(training=join(batches), test=read_binary(folder / f"{CIFAR10_TEST}.bin"))


def read_cifar100(folder: Path) -> Contents:
    """The Python version of CIFAR-100 with its 100 fine classes, named by its `meta` file."""
    names = read_pickled_dictionary(folder / "meta").get("fine_label_names")
    if not isinstance(names, list) or len(names) != 100:
        raise DataError(f"{folder / 'meta'}: expected 100 names under 'fine_label_names'")
    return Contents(
        training=read_pickle(folder / "train", "fine_labels", classes=100),
        test=read_pickle(folder / "test", "fine_labels", classes=100),
        classes=tuple(str(name) for name in names),
    )


def read_pickle(path: Path, label_key: str, *, classes: int) -> Split:
    """One file of the Python version: `data` is (n, 3072) bytes, `label_key` n numbers."""
    content = read_pickled_dictionary(path)
    pixels = _pixels(content.get("data"), path)
    labels = content.get(label_key)
    _check_label_list(labels, label_key, len(pixels), classes, path)
    images = torch.from_numpy(pixels).view(-1, *IMAGE_SHAPE)
    return Split(images=images, labels=torch.tensor(labels))


def _pixels(data: Any, path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not isinstance(data, np.ndarray):
        raise DataError(f"{path}: expected an array under 'data', found {type(data).__name__}")
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS or len(data) == 0:
        raise DataError(
            f"{path}: expected 'data' as uint8 (n, {PIXELS}), found {data.dtype} {data.shape}"
        )
    return np.array(data, order="C")  # a copy that torch may own and write to


def _check_label_list(labels: Any, key: str, count: int, classes: int, path: Path) -> None:
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise DataError(f"{path}: expected a list of whole numbers under {key!r}")
    if len(labels) != count:
        raise DataError(f"{path}: expected {count} labels, one for each image, found {len(labels)}")
    outside = [label for label in labels if not 0 <= label < classes]
    if outside:
        raise DataError(f"{path}: expected labels 0 to {classes - 1}, found {outside[0]}")


def read_binary(path: Path) -> Split:
    """One file of the binary version."""
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) == 0 or len(content) % RECORD:
        raise DataError(
            f"{path}: expected a whole number of {RECORD}-byte images, found {len(content)} bytes"
        )
    records = torch.from_numpy(content.reshape(-1, RECORD))
    labels = records[:, 0].long()
    check_labels(labels, classes=10, path=path)
    images = records[:, 1:].reshape(-1, *IMAGE_SHAPE)
    return Split(images=images, labels=labels)
