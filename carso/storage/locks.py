"""One holder at a time: a run, a record or a cache that another process works on is left alone.

The operating system holds the lock and lets it go when its holder ends, however it ends. A note
beside it says who holds it, for the message.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from carso.errors import CarsoError
from carso.storage import files


@contextmanager
def exclusive(folder: Path, what: str, *, wait_seconds: float = 0.0) -> Iterator[None]:
    """Within it, `folder` is this process's own; `what` says in a message what it holds.

    If another process has it, for longer than `wait_seconds`, that is an error which names it.
    """
    path, note = folder / ".lock", folder / ".lock.json"
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=wait_seconds, is_singleton=False, thread_local=False)
        lock.acquire()
    except Timeout:
        raise CarsoError(
            f"{folder}: {what} is being worked on by {holder(note)}; wait for it, or stop it first"
        ) from None
    except NotImplementedError:
        raise CarsoError(
            f"{folder} is on a file system that cannot lock files, so two processes could spoil "
            f"each other's {what}: choose a folder on another one"
        ) from None
    except OSError as error:
        raise CarsoError(f"cannot lock {folder}: {error.strerror or error}") from None
    try:
        files.write_json(note, whoami())
        yield
    finally:
        for file in (note, path):
            with suppress(OSError):
                file.unlink(missing_ok=True)
        if new:
            with suppress(OSError):
                folder.rmdir()  # if nothing came of it
        lock.release()


def whoami() -> dict[str, object]:
    """Who this process is, to whoever meets its lock."""
    return {
        "process": os.getpid(),
        "host": platform.node(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def holder(note: Path) -> str:
    """Who wrote `note`, in words."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return f"process {found['process']} on {found['host']} since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
