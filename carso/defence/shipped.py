"""Where defences lie: those that ship with the package, and the folders of runs."""

from __future__ import annotations

from pathlib import Path

from carso.errors import CarsoError

SHIPPED = Path(__file__).parents[1] / "weights"


def names() -> list[str]:
    """The defences whose weights ship with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/defence.json"))


def folder_of(name: str | Path) -> Path:
    """The folder of a shipped defence or of a run."""
    if str(name) in names():
        return SHIPPED / str(name)
    folder = Path(name)
    if (folder / "defence.json").is_file():
        return folder
    raise CarsoError(
        f"no defence {str(name)!r}: it is neither a shipped name ({', '.join(names())}) "
        "nor the folder of a run with a defence.json"
    )
