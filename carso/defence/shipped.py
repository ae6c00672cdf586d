"""Where defences lie: those that ship with the package, and the folders of runs."""

from __future__ import annotations

from pathlib import Path

from carso.defence import hub
from carso.errors import CarsoError

SHIPPED = Path(__file__).parents[1] / "weights"

DESCRIPTIONS = ("defence.json", "config.json")
"""What the description is called in the folder of a run, and in one that was saved: there it is as
model hubs have it."""


def description_file(folder: Path) -> Path:
    """Where the description is, or would be."""
    found = [folder / name for name in DESCRIPTIONS if (folder / name).is_file()]
    return found[0] if found else folder / DESCRIPTIONS[0]


def names() -> list[str]:
    """The defences whose weights ship with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/defence.json"))


def folder_of(name: str | Path) -> Path:
    """The folder of a shipped defence, of a run, or of one that a hub has."""
    if str(name) in names():
        return SHIPPED / str(name)
    folder = Path(name)
    if description_file(folder).is_file():
        return folder
    if hub.may_be_named(str(name)):
        return hub.fetched(str(name))
    raise CarsoError(
        f"no defence {str(name)!r}: it is neither a shipped name ({', '.join(names())}) "
        "nor the folder of a run with a defence.json"
    )
