"""TinyImageNet-200 in its official folder layout.

The labels of the official test images were never published, so its validation images serve as the
test split, as in the literature, and validation images are held out of the training images.
"""

from pathlib import Path

import torch

from carso.data.contents import Contents
from carso.data.data_errors import DataError
from carso.data.decoded_cache import decode_once
from carso.data.images import Split
from carso.data.pictures import PictureFormat

FORMAT = PictureFormat(width=64, height=64, mode="RGB")
"""A few of the official images are greyscale; they become colour images like the rest."""


def has_tiny_imagenet(folder: Path) -> bool:
    """Whether the folder has the official names."""
    return (
        (folder / "wnids.txt").is_file()
        and (folder / "train").is_dir()
        and (folder / "val" / "val_annotations.txt").is_file()
    )


def read_tiny_imagenet(folder: Path) -> Contents:
    """Training images in the order of `wnids.txt`, then of file names; names from `words.txt`."""
    identifiers = _lines(folder / "wnids.txt")
    numbers = {identifier: number for number, identifier in enumerate(identifiers)}
    training = _training_files(folder, numbers)
    test = _annotated_files(folder, numbers)
    paths = [path for path, _ in training + test]
    images = decode_once(paths, FORMAT, folder=folder, name="tinyimagenet")
    labels = torch.tensor([label for _, label in training + test])
    count = len(training)
    return Contents(
        training=Split(images=images[:count], labels=labels[:count]),
        test=Split(images=images[count:], labels=labels[count:]),
        classes=_class_names(folder, identifiers),
    )


def _training_files(folder: Path, numbers: dict[str, int]) -> list[tuple[Path, int]]:
    files: list[tuple[Path, int]] = []
    for identifier, label in numbers.items():
        place = folder / "train" / identifier / "images"
        found = sorted(place.glob("*.JPEG"))
        if not found:
            raise DataError(f"{place}: expected the JPEG images of class {identifier}, found none")
        files.extend((path, label) for path in found)
    return files


def _annotated_files(folder: Path, numbers: dict[str, int]) -> list[tuple[Path, int]]:
    annotations = folder / "val" / "val_annotations.txt"
    files: list[tuple[Path, int]] = []
    for number, line in enumerate(_lines(annotations), start=1):
        name, _, rest = line.partition("\t")
        identifier = rest.partition("\t")[0]
        if identifier not in numbers or "/" in name:
            raise DataError(
                f"{annotations}, line {number}: expected a file name and one of the classes of "
                f"wnids.txt, found {line[:80]!r}"
            )
        files.append((folder / "val" / "images" / name, numbers[identifier]))
    return files


def _class_names(folder: Path, identifiers: list[str]) -> tuple[str, ...]:
    """The first word of each class where `words.txt` is there and unambiguous, else identifiers."""
    if not (folder / "words.txt").is_file():
        return tuple(identifiers)
    words = dict(line.split("\t", 1) for line in _lines(folder / "words.txt") if "\t" in line)
    names = tuple(words.get(key, key).split(",")[0].strip() for key in identifiers)
    # Two classes may share a first word; then the identifier keeps them apart.
    return tuple(
        f"{name} ({identifier})" if names.count(name) > 1 else name
        for name, identifier in zip(names, identifiers, strict=True)
    )


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    if not (kept := [line.strip() for line in lines if line.strip()]):
        raise DataError(f"{path}: expected one entry a line, found nothing")
    return kept
