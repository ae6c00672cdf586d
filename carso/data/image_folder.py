"""Anyone's images, sorted into one folder per class.

PATH/CLASS/*.png                      split 80/10/10 here, the same way every time
PATH/{train,val,test}/CLASS/*.png     split by their owner; val and test may be missing
"""

from pathlib import Path

import torch

from carso.data.contents import Contents
from carso.data.data_errors import DataError
from carso.data.images import Split, hold_out
from carso.data.pictures import PictureFormat, common_format, decode

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
)


def read_image_folder(folder: Path) -> Contents:
    """All images of the folder, of one size; greyscale only if most of them are."""
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of class folders, found no folder")
    if not subfolders(folder / "train"):
        classes = _classes(folder)
        files = _files(folder, classes)
        everything = _decode(files, common_format([path for path, _ in files]))
        return _three_parts(everything, classes, folder)
    classes = _classes(folder / "train")
    files = _files(folder / "train", classes)
    expected = common_format([path for path, _ in files])
    training = _decode(files, expected)
    others = {
        part: _decode(_files(folder / part, classes), expected)
        for part in ("val", "test")
        if subfolders(folder / part)
    }
    if not others:
        return _three_parts(training, classes, folder)
    # As in TinyImageNet, a lone val/ is what results are reported on.
    test = others.pop("test" if "test" in others else "val")
    return Contents(training=training, validation=others.get("val"), test=test, classes=classes)


def subfolders(folder: Path) -> list[Path]:
    """Folders in this folder by name, without hidden ones; empty when it does not exist."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _classes(folder: Path) -> tuple[str, ...]:
    names = tuple(path.name for path in subfolders(folder))
    if len(names) < 2:
        raise DataError(
            f"{folder}: expected a folder for each of two or more classes, found {len(names)}"
        )
    return names


def _files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    files: list[tuple[Path, int]] = []
    for place in subfolders(folder):
        if place.name not in classes:
            raise DataError(f"{place}: expected only the classes of the training images, not this")
        found = sorted(p for p in place.iterdir() if p.suffix.lower() in SUFFIXES)
        if not found:
            raise DataError(f"{place}: expected image files directly inside, found none")
        files.extend((path, classes.index(place.name)) for path in found)
    return files


def _decode(files: list[tuple[Path, int]], expected: PictureFormat) -> Split:
    images = decode([path for path, _ in files], expected)
    return Split(images=images, labels=torch.tensor([label for _, label in files]))


def _three_parts(split: Split, classes: tuple[str, ...], folder: Path) -> Contents:
    train, validation, test = hold_out(split, parts=2, origin=str(folder))
    return Contents(training=train, validation=validation, test=test, classes=classes)
