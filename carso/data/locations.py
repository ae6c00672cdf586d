"""Where data sets are looked for, and where downloads go."""

import os
from contextlib import suppress
from pathlib import Path

from carso.data.data_errors import DataError
from carso.storage import files

SYSTEM_ROOT = Path("/usr/share/datasets")
"""Where Debian's dataset packages put theirs."""


def cache_root() -> Path:
    """The user's cache: where downloaded sets live, and what is decoded once is kept."""
    return files.cache() / "data"


def search_roots(root: Path | None = None) -> list[Path]:
    """The folders searched, in order; an earlier one wins."""
    roots = [root] if root is not None else []
    if environment := os.environ.get("CARSO_DATA"):
        if not Path(environment).is_dir():
            raise DataError(f"CARSO_DATA must name a folder that holds data sets: {environment}")
        roots.append(Path(environment))
    with suppress(files.NoCacheError):  # what is looked for may lie elsewhere
        roots.append(cache_root())
    return [*roots, SYSTEM_ROOT]
