"""Fetching a data set into the user's cache: checked, whole or not at all."""

import base64
import contextlib
import hashlib
import http.client
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from carso.data.archives import extract
from carso.data.data_errors import DataError
from carso.data.locations import cache_root
from carso.data.sources import Mirror, RemoteFile
from carso.storage.files import clear_old_scratch

TIMEOUT = 30.0
"""Seconds without any data before a mirror is given up."""
CHUNK = 1 << 20


def download(name: str, mirrors: Sequence[Mirror]) -> Path:
    """The folder in the user's cache, filled from the first mirror that works."""
    failures = []
    for mirror in mirrors:
        target = cache_root() / mirror.folder
        if target.exists():
            raise DataError(
                f"{target}: expected the whole of {name}, found an incomplete folder; "
                "remove it to download again"
            )
        try:
            fetch(mirror, target)
        except (DataError, OSError, http.client.HTTPException, ValueError) as error:
            failures.append(f"{mirror.files[0].address()}: {error}")
        else:
            return target
    raise DataError(f"{name} could not be downloaded ({'; '.join(failures)})")


def fetch(mirror: Mirror, target: Path) -> None:
    """Make `target` from the mirror's files.

    All work is done in a scratch folder beside it, which takes the final name at the very end and
    disappears if anything fails before that.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    clear_old_scratch(target.parent, ".download-")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as scratch:
        result = Path(scratch) / "result"
        result.mkdir()
        for file in mirror.files:
            if mirror.below is None:
                fetch_file(file, result)
            else:
                archive = fetch_file(file, Path(scratch))
                extract(archive, result, below=mirror.below, keep=mirror.keep)
        if mirror.rebuild is not None:
            mirror.rebuild(result)
        try:
            result.replace(target)
        except OSError:
            if not target.is_dir():  # else another process has just put the same data there
                raise


def fetch_file(file: RemoteFile, folder: Path) -> Path:
    """Stream one file into the folder and check it; a wrong one is removed."""
    address = file.address()
    path = folder / address.rpartition("/")[2]
    try:
        _stream(address, path)
        verify(path, file.checksum)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        raise
    return path


def verify(path: Path, checksum: str) -> None:
    """Refuse a file whose digest is not the one expected."""
    algorithm, _, expected = checksum.partition("-")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, algorithm)
    base64_digest = base64.b64encode(digest.digest()).decode()
    found = base64_digest if algorithm == "sha512" else digest.hexdigest()
    if found != expected:
        raise DataError(f"{path.name}: expected {algorithm} {expected}, found {found}")


def _stream(address: str, path: Path) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    if not address.startswith(("http://", "https://")):
        raise DataError(f"expected an http or https address, found {address}")
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )
    with progress, urllib.request.urlopen(address, timeout=TIMEOUT) as response:
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdecimal() else None
        task = progress.add_task(path.name, total=total)
        received = 0
        with path.open("wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                received += len(chunk)
                progress.advance(task, len(chunk))
    if total is not None and received != total:
        raise DataError(f"{path.name}: expected {total} bytes, received {received}")
