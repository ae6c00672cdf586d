"""Reads a scenario from TOML, strictly: an unknown key is an error, not a default."""

from __future__ import annotations

import difflib
import math
import re
import sys
import tomllib
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from carso.errors import CarsoError
from carso.scenario.classifier_settings import AUTO
from carso.scenario.purifier_settings import KINDS, PurifierSettings
from carso.scenario.schema import Scenario
from carso.threats import norms as threats
from carso.threats.threat import Threat

FOLDER = Path(__file__).parent / "scenarios"


def names() -> list[str]:
    """The scenarios that ship with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(name: str, *, preset: str = "") -> Scenario:
    """The scenario of a shipped name or of a TOML file of the user's own."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        if name.endswith(".toml"):
            raise CarsoError(f"no scenario {name!r}: there is no such file")
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise CarsoError(
            f"no scenario {name!r}: {hint}shipped are {', '.join(names())}; "
            "a file of your own ends in .toml"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CarsoError(f"{path} is not a readable text file: {error}") from None
    scenario = parse(text, source=path.name, preset=preset)
    if ":" in scenario.purifier.kind and (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.append(folder)  # a purifier of the user's own lives beside the file
    return scenario


def parse(text: str, *, source: str, preset: str = "") -> Scenario:
    """The scenario written in `text`; `source` names it in messages."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CarsoError(f"{source} is not valid TOML: {error}") from None
    presets = table.pop("presets", {})
    if not isinstance(presets, dict) or not all(isinstance(v, dict) for v in presets.values()):
        raise CarsoError(f"{source}: presets must be tables, [presets.NAME.TABLE]")
    preset = preset or table.get("preset", "")
    if not isinstance(preset, str):
        raise Place(source, text).error("preset", f"preset must be of type str, got {preset!r}")
    if preset:
        if preset not in presets:
            known = ", ".join(sorted(presets)) or "none"
            raise CarsoError(f"{source} has no preset {preset!r}; it has: {known}")
        table = merged(table, presets[preset]) | {"preset": preset}
    return cast(Scenario, build(Scenario, table, Place(source, text, preset=preset)))


def merged(table: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`table` with the values of `changes`, table by table."""
    result = dict(table)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if nested else value
    return result


class Place:
    """Where in the file a key stands, so that an error can say so."""

    def __init__(
        self, source: str, text: str, path: tuple[str, ...] = (), *, preset: str = ""
    ) -> None:
        self.source, self.text, self.path, self.preset = source, text, path, preset

    def inside(self, key: str) -> Place:
        return Place(self.source, self.text, (*self.path, key), preset=self.preset)

    def line(self, key: str) -> int | None:
        """The line that sets `key` in the table of this path, else the one that opens the table.

        A line of the chosen preset comes before one of the file's own tables; a table that is
        written inside another's line stands where that key stands.
        """
        own, changed, opened = None, None, None
        table: tuple[str, ...] | None = ()
        in_preset = False
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[([^\]]+)\]", line):
                table = tuple(part.strip() for part in header[1].split("."))
                in_preset = table[:2] == ("presets", self.preset)
                if table[0] == "presets":
                    table = table[2:] if in_preset else None
                opened = number if table == self.path and opened is None else opened
                here = table == (*self.path, key)
            else:
                here = table == self.path and bool(re.match(rf"\s*{re.escape(key)}\s*=", line))
            if here and in_preset:
                changed = changed or number
            elif here:
                own = own or number
        parent = Place(self.source, self.text, self.path[:-1], preset=self.preset)
        return changed or own or opened or (parent.line(self.path[-1]) if self.path else None)

    def error(self, key: str, message: str) -> CarsoError:
        line = self.line(key)
        where = f"{self.source}, line {line}" if line else self.source
        return CarsoError(f"{where}: {message}")


def build(
    kind: type, table: dict[str, Any], place: Place, *, beside: tuple[str, ...] = (), **made: Any
) -> object:
    """The dataclass `kind` from a TOML table, each value checked against its annotation.

    `beside` are keys of the same table that belong to another dataclass, `made` are values that
    are no business of the table.
    """
    if kind is PurifierSettings and not made:
        return build_purifier(table, place)
    table = without_retired(table, place)
    hints = typing.get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}
    header = ".".join(place.path) or "the top of the file"
    for key in table:
        if key not in known:
            names = (*known, *beside)
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
            raise place.error(key, f"unknown key {key!r} in {header}; {hint}")
    values: dict[str, Any] = dict(made)
    for name, entry in known.items():
        if name in made:
            continue
        if name in table:
            values[name] = convert(hints[name], table[name], name, place)
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise place.error(name, f"{header} lacks the key {name!r}")
    try:
        return kind(**values)
    except CarsoError as error:
        # Every message begins with its key, after the tables in which that stands.
        *inside, key = str(error).split()[0].split(".")
        for name in inside:
            place = place.inside(name)
        raise place.error(key, str(error).removeprefix(".".join([*inside, ""]))) from None


def build_threat(table: dict[str, Any], place: Place) -> object:
    """[threat], whose norm says of which ball the rest speaks."""
    norm = table.get("norm", threats.DEFAULT)
    if norm not in tuple(threats.THREATS):
        known = ", ".join(map(repr, threats.THREATS))
        raise place.error("norm", f"norm must be one of {known}, got {norm!r}")
    own = {key: value for key, value in table.items() if key != "norm"}
    return build(threats.THREATS[norm], own, place)


PURIFIER_KEYS = ("kind", "attacks", "training")
"""What [purifier] has whatever its kind."""


def build_purifier(table: dict[str, Any], place: Place) -> object:
    """[purifier], whose other keys are settings of the chosen kind."""
    every = {key: value for key, value in table.items() if key in PURIFIER_KEYS}
    own = {key: value for key, value in table.items() if key not in PURIFIER_KEYS}
    kind = every.get("kind", "vae")
    if not isinstance(kind, str) or (kind not in KINDS and ":" not in kind):
        known = ", ".join(map(repr, KINDS))
        raise place.error("kind", f"kind must be one of {known} or 'module:Class', got {kind!r}")
    settings: Any = own
    if kind in KINDS:
        settings = build(KINDS[kind], own, place, beside=PURIFIER_KEYS)
    return build(PurifierSettings, every, place, own=settings)


RETIRED: dict[tuple[str, ...], tuple[Any, str]] = {
    ("purifier", "training", "loss_scale"): (
        1.0,
        "the released code multiplies the loss by the number of devices only because it averages "
        "their gradients after that; here they are summed, so there is nothing to multiply",
    ),
}
"""Keys that scenarios had once: the value at which they did nothing, and why they are gone. Runs
and records of that time still have them."""


def without_retired(table: dict[str, Any], place: Place) -> dict[str, Any]:
    """`table` without keys that are gone; one that would have done something is an error."""
    gone = {key: RETIRED[*place.path, key] for key in table if (*place.path, key) in RETIRED}
    for key, (neutral, why) in gone.items():
        if table[key] != neutral:
            raise place.error(key, f"{key} is no longer a setting, got {table[key]!r}: {why}")
    return {key: value for key, value in table.items() if key not in gone}


def convert(hint: Any, value: Any, key: str, place: Place) -> Any:
    """`value` as the annotation `hint` wants it; integers serve as floats, lists as tuples."""
    if isinstance(hint, types.UnionType):
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    if is_dataclass(hint) or hint is Threat:
        if not isinstance(value, dict):
            raise place.error(key, f"{key} must be a table, got {value!r}")
        if hint is Threat:
            return build_threat(value, place.inside(key))
        return build(cast(type, hint), value, place.inside(key))
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if (key, value) == ("layers", "auto"):
            return AUTO
        if not isinstance(value, list):
            raise place.error(key, f"{key} must be a list, got {value!r}")
        return tuple(convert(inner, item, key, place) for item in value)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise place.error(key, f"{key} must be of type {hint.__name__}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise place.error(key, f"{key} must be finite, got {value!r}")
    return value


def from_table(table: dict[str, Any], *, source: str) -> Scenario:
    """The scenario that `as_table` wrote."""
    plain = {key: value for key, value in table.items() if value is not None}
    return cast(Scenario, build(Scenario, without_none(plain), Place(source, "")))


def without_none(table: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null: an absent table is an absent key."""
    return {
        key: without_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }
