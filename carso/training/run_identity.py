"""What tells one run from another: compared key by key, so that a refusal can name the key."""

from __future__ import annotations

from typing import Any


def differences(found: Any, wanted: Any, name: str = "") -> list[str]:
    """The keys whose values differ, with dots, e.g. "hardening.epochs".

    Runs of older revisions have a hash where there are settings now. It says nothing that can be
    compared; but they have their settings in `defence.json`, which are compared when they go on.
    """
    if isinstance(found, str) and isinstance(wanted, dict):
        return []
    if isinstance(found, dict) and isinstance(wanted, dict):
        inside = {key: f"{name}.{key}" if name else key for key in (*wanted, *found)}
        parts = [differences(found.get(k), wanted.get(k), path) for k, path in inside.items()]
        return [changed for part in parts for changed in part]
    return [] if found == wanted else [name]
