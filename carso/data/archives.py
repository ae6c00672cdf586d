"""Taking wanted files out of tar and zip archives, and nothing else.

Every member is looked at before anything is written: an archive with a path that leaves the target
folder, a link or a device is refused whole.
"""

import gzip
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from carso.data.data_errors import DataError

DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    RuntimeError,
)
"""What the standard library raises for broken archives, or for compression it does not know."""


def extract(archive: Path, folder: Path, *, below: str, keep: tuple[str, ...]) -> None:
    """Write the members under `below` that `keep` names (a file, or "folder/") into the folder."""
    try:
        opener = _extract_zip if zipfile.is_zipfile(archive) else _extract_tar
        opener(archive, folder, below, keep)
    except DAMAGE as error:
        raise DataError(f"{archive}: expected an intact archive ({error})") from error
    missing = [name for name in keep if not (folder / name).exists()]
    if missing:
        raise DataError(f"{archive}: expected {below}/{missing[0]} inside, found no such member")


def _extract_tar(archive: Path, folder: Path, below: str, keep: tuple[str, ...]) -> None:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            _check_path(member.name, archive)
            if not (member.isfile() or member.isdir()):
                raise DataError(f"{archive}: refused, {member.name!r} is a link or a device")
        files = {member.name: member for member in members if member.isfile()}
        for name, target in _wanted(files, below, keep):
            source = tar.extractfile(files[name])
            assert source is not None  # only for links and folders, which `files` leaves out
            with source:
                _write(source, folder / target)


def _extract_zip(archive: Path, folder: Path, below: str, keep: tuple[str, ...]) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            _check_path(member.filename, archive)
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 where no Unix mode was stored
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(f"{archive}: refused, {member.filename!r} is a link or a device")
        names = [name for name in packed.namelist() if not name.endswith("/")]
        for name, target in _wanted(names, below, keep):
            with packed.open(name) as source:
                _write(source, folder / target)


def _check_path(name: str, archive: Path) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts[:1]):
        raise DataError(f"{archive}: refused, {name!r} would be written outside the folder")


def _wanted(names: Iterable[str], below: str, keep: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Each member to extract, with its path relative to `below`."""
    for name in names:
        path = PurePosixPath(name)
        if not path.is_relative_to(below):
            continue
        inner = path.relative_to(below).as_posix()
        if any(inner == kept or (kept.endswith("/") and inner.startswith(kept)) for kept in keep):
            yield name, Path(inner)


def _write(source: IO[bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(source, file)
