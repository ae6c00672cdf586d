"""Defences on a model hub, by the conventions of huggingface_hub: weights and JSON, never code."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carso.errors import CarsoError, reason
from carso.storage import files

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
FILES = ("*.safetensors", "*.json", "README.md")
"""What is fetched; whatever else lies there stays there."""


def may_be_named(name: str) -> bool:
    """Whether this can be "ORG/NAME" of a hub: where ORG is a folder here, that is meant."""
    return bool(NAME.fullmatch(name)) and not Path(name).parent.is_dir()


def library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise CarsoError(
            "a hub needs huggingface_hub: pip install 'carso[hub]' brings it"
        ) from None
    return huggingface_hub


def fetched(name: str) -> Path:
    """The folder, in the cache of huggingface_hub, of the defence that a hub has as `name`."""
    hub = library()
    try:
        folder = Path(hub.snapshot_download(name, allow_patterns=list(FILES)))
    except Exception as error:  # what a client raises that reaches no server is its own library's
        raise CarsoError(
            f"no defence {name!r}: there is no such folder, and the hub {hub.constants.ENDPOINT} "
            f"does not give it: {reason(error)}"
        ) from None
    refuse_code(name, folder / "config.json")
    return folder


def refuse_code(name: str, config: Path) -> None:
    """One line for what is no defence, or one that would have a module of someone else's run."""
    if not config.is_file():
        raise CarsoError(f"{name} on the hub is no defence of carso: it has no config.json")
    table = files.read_json(config)
    scenario = table.get("scenario") if isinstance(table, dict) else None
    purifier = scenario.get("purifier") if isinstance(scenario, dict) else None
    if not isinstance(purifier, dict):
        raise CarsoError(f"{name} on the hub is no defence of carso: its config.json is another's")
    if ":" in str(purifier.get("kind", "")):
        raise CarsoError(
            f"{name} on the hub wants the code {purifier['kind']!r}: download it and load the "
            "folder, if you know that code"
        )


def pushed(save: Callable[[Path], Path], name: str, *, private: bool) -> str:
    """Upload what `save` writes; the address where it is then."""
    hub = library()
    if not NAME.fullmatch(name):
        raise CarsoError(f"the name on a hub is ORG/NAME, got {name!r}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = save(Path(scratch) / "defence")
        try:
            hub.create_repo(name, private=private, exist_ok=True)
            found = hub.upload_folder(
                repo_id=name, folder_path=folder, commit_message="A defence, saved by carso"
            )
        except Exception as error:
            raise CarsoError(
                f"the hub {hub.constants.ENDPOINT} does not take {name!r}: {reason(error)}"
            ) from None
    return str(found.commit_url)
