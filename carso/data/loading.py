"""`load`: from the name of a data set to its three splits."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from carso import arguments
from carso.data.contents import Contents
from carso.data.data_errors import DataError, DataNotFoundError
from carso.data.image_folder import read_image_folder
from carso.data.images import (
    ImageData,
    ImageFacts,
    Split,
    channel_statistics,
    check_labels,
    fingerprint_of,
    hold_out,
    numbered,
)
from carso.data.locations import search_roots
from carso.data.sets import DATA_SETS, DataSet, FileLayout
from carso.data.sources import MIRRORS

FOLDER_PREFIX = "folder:"


@arguments.door
def load(name: str | Path, root: Path | str | None = None, *, download: bool = False) -> ImageData:
    """The data set of this name, from the first folder that holds it.

    `name` is a key of `DATA_SETS`, or a folder of images in class folders ("folder:PATH", or just
    the path). A known set is looked for in `root`, $CARSO_DATA, the user's cache and the system's
    data sets; with `download` it is fetched into the cache when none of them holds it.
    """
    name = str(arguments.place("the name of a data set", name)) if name != "" else ""
    root = None if root is None else arguments.place("root", root)
    if root is not None and not root.is_dir():  # also where the set lies elsewhere
        raise DataError(f"{root}: expected a folder that holds data sets, found no folder")
    if name in DATA_SETS:
        return _load_known(name, root, download)
    if name.startswith(FOLDER_PREFIX) or (name and Path(name).is_dir()):
        folder = Path(name.removeprefix(FOLDER_PREFIX)).expanduser()
        contents = read_image_folder(folder)
        return _assemble(f"{FOLDER_PREFIX}{folder}", contents, None, origin=str(folder))
    raise DataError(
        f"unknown data set {name!r}; expected one of {', '.join(DATA_SETS)}, "
        f"or {FOLDER_PREFIX}PATH with images in class folders"
    )


def facts(name: str) -> ImageFacts:
    """What is known of a set of the table without its files; classes that only they name are
    numbered."""
    if name not in DATA_SETS:
        raise DataError(
            f"data set {name!r} is not known without its files; known are {', '.join(DATA_SETS)}"
        )
    known = DATA_SETS[name]
    return ImageFacts(
        image_shape=known.image_shape,
        classes=known.classes or numbered(known.unnamed),
        mean=known.mean,
        std=known.std,
    )


@arguments.door
def from_tensors(images: Tensor, labels: Tensor, *, classes: Sequence[str] = ()) -> ImageData:
    """A data set from tensors: bytes (n, C, H, W), labels (n,); 80/10/10 in each class."""
    classes = arguments.names("classes", classes)
    whole = Split(images=images, labels=labels)
    if not len(labels):
        raise DataError("a data set needs at least one image, got none")
    known = tuple(classes) or tuple(str(label) for label in range(int(labels.max()) + 1))
    check_labels(labels, classes=len(known), path=Path("labels"))
    train, validation, test = hold_out(whole, parts=2, origin="tensors")
    contents = Contents(classes=known, training=train, validation=validation, test=test)
    return _assemble("tensors", contents, None, origin="tensors")


def available(root: Path | None = None) -> list[tuple[str, str | None]]:
    """Every known set and the folder it would be read from, or None."""
    places = []
    for name, known in DATA_SETS.items():
        found = _find(known, root)
        origin = "embedded" if known.shipped else str(found[1]) if found else None
        places.append((name, origin))
    return places


def _load_known(name: str, root: Path | None, download: bool) -> ImageData:
    known = DATA_SETS[name]
    found = _find(known, root)
    downloaded = found is None and download
    if downloaded:
        _download(name)
        found = _find(known, root)
    if found is None:
        raise DataNotFoundError(_not_found(name, known, root))
    layout, folder = found
    contents = layout.read(folder)
    origin = "embedded" if known.shipped else str(folder)
    data = _assemble(name, contents, known, origin=origin)
    must_be_official = downloaded or known.shipped is not None
    _check_fingerprint(data, known, folder, must_be_official=must_be_official)
    return data


def _find(known: DataSet, root: Path | None) -> tuple[FileLayout, Path] | None:
    if known.shipped is not None:
        return known.layouts[0], known.shipped
    if root is not None and not root.is_dir():
        raise DataError(f"{root}: expected a folder that holds data sets, found no folder")
    for place in search_roots(root):
        for layout in known.layouts:
            for folder in (place / layout.folder, place):
                if _readable(layout, folder):
                    return layout, folder
    return None


def _readable(layout: FileLayout, folder: Path) -> bool:
    try:
        return layout.present(folder)
    except OSError:  # a folder that may not be looked into holds nothing for us
        return False


def _download(name: str) -> None:
    from carso.data.download import download

    if name not in MIRRORS:
        raise DataError(
            f"{name} cannot be downloaded, no place to fetch it from is known: get its files from "
            "its authors, and give the folder that holds them with --data DIR"
        )
    download(name, MIRRORS[name])


def _not_found(name: str, known: DataSet, root: Path | None) -> str:
    searched = ", ".join(str(place) for place in search_roots(root))
    folders = " or ".join(f"{layout.folder}/" for layout in known.layouts)
    fetch = ", or fetch it with --download" if name in MIRRORS else ""
    return (
        f"{name} not found: searched {searched} for {folders}; "
        f"give the folder that holds it with --data DIR{fetch}"
    )


def _assemble(name: str, contents: Contents, known: DataSet | None, *, origin: str) -> ImageData:
    train, validation = contents.training, contents.validation
    if validation is None:
        train, validation = hold_out(train, origin=origin)
    mean, std = (known.mean, known.std) if known else channel_statistics(train)
    if 0 in std:
        raise DataError(f"{origin}: expected images that differ, found a channel without contrast")
    return ImageData(
        name=name,
        classes=known.classes if known and known.classes else contents.classes,
        train=train,
        validation=validation,
        test=contents.test,
        mean=mean,
        std=std,
        origin=origin,
        fingerprint=fingerprint_of((train, validation, contents.test)),
    )


def _check_fingerprint(
    data: ImageData, known: DataSet, folder: Path, *, must_be_official: bool
) -> None:
    """Refuse damaged data of ours, and another known set under this one's name.

    MNIST and Fashion-MNIST have the same file names, so only the content can tell them apart.
    """
    if data.fingerprint == known.fingerprint:
        return
    for other, row in DATA_SETS.items():
        if row.fingerprint == data.fingerprint:
            raise DataError(f"{folder}: expected {data.name}, found the images of {other}")
    if must_be_official and known.fingerprint is not None:
        raise DataError(
            f"{folder}: expected {data.name} with fingerprint {known.fingerprint}, "
            f"found {data.fingerprint}; the files are damaged, install or download them again"
        )
