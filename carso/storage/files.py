"""Files are written whole or not at all."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from carso.errors import CarsoError

CHECKSUM = "checksum"
"""The key of the checksum in a JSON file."""


class DamagedFileError(CarsoError):
    """A file does not hold what was written to it."""


class NoCacheError(CarsoError):
    """Nothing says where this user keeps files."""


def say_made_again(what: str) -> None:
    """A line for a file that does not hold what was written to it, and is made again: nothing is
    repaired in silence."""
    print(f"carso: {what}", file=sys.stderr)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    If the block fails, or the disk is full, the file that was there stays as it was. What a process
    that was killed a day ago or earlier left beside it is deleted.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clear_old_scratch(path.parent, f".{path.name}.")
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise CarsoError(f"cannot write {path}: {error.strerror}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's own mode is for the owner only
        temporary.replace(path)
    except OSError as error:
        raise CarsoError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path, *, folder: bool = False) -> None:
    """Refuse a file, or a `folder`, that cannot be written, before hours are spent on it."""
    try:
        if path.exists() and path.is_dir() != folder:
            what = "it is no folder" if folder else "it is a folder"
            raise CarsoError(f"cannot write {path}: {what}")
        parent = path if folder else path.parent
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise CarsoError(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder`, new or empty until then, when the block ends well.

    If the block fails, nothing of it is left.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        clear_old_scratch(folder.parent, f".{folder.name}.")
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        raise CarsoError(f"cannot write {folder}: {error.strerror}") from None
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp's own mode is for the owner only
        temporary.replace(folder)
    except OSError as error:
        raise CarsoError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


LEFT_OVER = re.compile(r"\..+\.(json|safetensors|csv|html|md|tex|png)\.[a-z0-9_]{8}")
"""The names of what `replacing` was writing when its process was killed."""
DAY = 86_400.0


def clear_left_over(folder: Path, *, of: str = "") -> None:
    """Delete what killed processes left half written in `folder` and below, or, with `of`, beside
    the one file of that name. Only for who holds the lock: another may be writing just now."""
    found = folder.glob(f".{glob.escape(of)}.*") if of else folder.rglob(".*.*")
    for path in found:
        if LEFT_OVER.fullmatch(path.name) and path.is_file():
            with suppress(OSError):
                path.unlink()


def clear_old_scratch(folder: Path, prefix: str) -> None:
    """Delete scratch files and folders in `folder` that `tempfile` named and that are a day old: no
    lock says whether their process lives, but nothing of it takes that long."""
    for path in folder.glob(glob.escape(prefix) + "[a-z0-9_]" * 8):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime <= DAY:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def write_text(path: Path, text: str) -> None:
    """`text` as the whole content of `path`, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """`value`, sealed, as indented JSON, atomically; NaN is refused, since JSON has none."""
    write_text(path, json.dumps(sealed(value), indent=1, allow_nan=False) + "\n")


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """`value` with a checksum, which `read_json` compares."""
    return {**value, CHECKSUM: checksum(json.loads(json.dumps(value)))}


def read_json(path: Path) -> Any:
    """The JSON value in `path`; without its checksum, which must be right if there is one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CarsoError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DamagedFileError(f"{path} is not a readable JSON file: {error}") from None
    if isinstance(value, dict) and CHECKSUM in value:
        wanted = value.pop(CHECKSUM)
        if wanted != checksum(value):
            raise DamagedFileError(f"{path} is damaged or was edited: its checksum does not fit")
    return value


def checksum(value: Any) -> str:
    """A SHA-256 of a JSON value, however it is laid out."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache() -> Path:
    """The user's cache: downloaded data, and what is decoded once."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "carso"
    except RuntimeError:  # neither HOME nor an entry of this user says where home is
        raise NoCacheError(
            "there is no home folder to keep downloads in: set XDG_CACHE_HOME, or HOME"
        ) from None
