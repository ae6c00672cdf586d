"""What a record says of its own making: all that it takes to run it again, and what it took."""

from __future__ import annotations

from typing import Any

from carso.report import record_tables
from carso.report.table_formats import Row, Table

Record = dict[str, Any]


def facts(record: Record) -> list[tuple[str, str]]:
    """All that it takes to run it again, and what it took."""
    made, suite, data = record.get("provenance", {}), record["suite"], record["data"]
    passes = [attack["passes"] for attack in record["attacks"]]
    forward, backward = (sum(p[way] for p in passes) for way in ("forward", "backward"))
    where = [data.get(key, "") for key in ("set", "split", "selection", "origin")]
    found = [
        ("made", made.get("made", "")),
        ("seed", str(record.get("seed", ""))),
        ("threat", f"{record_tables.norm(record)}, eps = {record['threat']['eps']!r}"),
        ("suite", suite_words(suite)),
        ("images", ": ".join(filter(None, [str(data["count"]), ", ".join(filter(None, where))]))),
        ("SHA-256 of the images", data["sha256"]),
        ("fingerprint of the data set", data.get("fingerprint", "")),
        ("weights", record["subject"].get("weights", "")),
        ("revision", revision(made.get("revision", ""))),
        ("versions", ", ".join(f"{k} {v}" for k, v in made.get("versions", {}).items())),
        ("hardware", hardware(made.get("hardware", {}))),
        ("time", duration(made["seconds"]) if "seconds" in made else ""),
        (
            "passes of the attacks",
            f"{forward:,} forward, {backward:,} backward, of one image each",
        ),
    ]
    return [(name, value) for name, value in found if value]


def suite_words(suite: dict[str, Any]) -> str:
    words = [suite["name"], f"verdicts on {counted(suite['draws'], 'draw')}"]
    if suite.get("chunk"):
        words.append(f"chunks of {counted(suite['chunk'], 'image')}")
    if suite.get("samples"):
        words.append(f"{counted(suite['samples'], 'candidate')} per step of an attack")
    if suite.get("gradient_cosine") is not None:
        words.append(f"cosine of two single gradients {suite['gradient_cosine']}")
    one = "each attack on all images" if suite.get("independent") else "attacks in turn"
    return ", ".join([*words, one])


def revision(text: str) -> str:
    return f"{text[:-1]}, with changes" if text.endswith("+") else text


def hardware(found: dict[str, Any]) -> str:
    if not found:
        return ""
    words = [str(found.get("processor") or "processor unknown")]
    words += [counted(found[key], key[:-1]) for key in ("cores", "threads") if found.get(key)]
    return ", ".join([*words, *found.get("gpus", [])] if found.get("gpus") else [*words, "no GPU"])


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    """Seconds, and what they are to a person."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{seconds:.0f} s ({hours} h {minutes} min)"
    return f"{seconds:.0f} s ({minutes} min {rest} s)" if minutes else f"{seconds:.1f} s"


def settings(record: Record) -> Table:
    """The settings of each attack, and what it spent."""
    rows: list[Row] = [
        (
            attack["name"],
            attack["through"],
            attack["settings"],
            f"{attack['passes']['forward']:,}",
            f"{attack['passes']['backward']:,}",
            f"{attack['seconds']:.1f}",
        )
        for attack in record["attacks"]
    ]
    return ("attack", "through", "settings", "forward", "backward", "seconds"), rows
