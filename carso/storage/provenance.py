"""Where a result comes from: versions, revision, hardware, time."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from carso import __version__

PACKAGES = ("torch", "numpy", "safetensors", "pytorch-optimizer", "pyautoattack")


def provenance() -> dict[str, Any]:
    """What a record carries besides its settings and its outcome."""
    import torch

    return {
        "command": command(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": revision(),
        "memory_format": "channels-last",
        "versions": {"python": platform.python_version(), **versions()},
        "hardware": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "processes": processes(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
    }


def processes() -> int:
    """How many processes share the work."""
    import torch.distributed as group

    together = group.is_available() and group.is_initialized()
    return group.get_world_size() if together else 1


def command() -> str:
    """The command line of this process, of paths from the root only the last part; empty if it is
    neither carso's nor that of a script of its checkout."""
    program, *words = sys.argv
    path = Path(program)
    here = Path(__file__).parents[2]
    if path.stem == "carso" or path.parts[-2:] == ("carso", "__main__.py"):
        begin = ["carso"]
    elif path.suffix == ".py" and path.resolve().is_relative_to(here):
        begin = ["python", str(path.resolve().relative_to(here))]
    else:
        return ""
    return shlex.join([*begin, *(Path(w).name if w.startswith("/") else w for w in words)])


def versions() -> dict[str, str]:
    """The installed versions of the packages that decide a result."""
    found = {"carso": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def revision() -> str:
    """The git revision of the checkout that this code runs from, with "+" if it was changed."""
    here = Path(__file__).parents[2]
    if not (here / ".git").exists():
        return "not a checkout"
    git = ["git", "-C", str(here)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True
        )
    except OSError:
        return "git is not installed"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
