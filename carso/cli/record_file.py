"""The file of a command's record: what it is called, and what is said of it in the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class RecordFile:
    """Where a command puts its record, and whether one lay there before."""

    def __init__(self, out: Path | None, defence: str, words: Sequence[str]) -> None:
        """`out` where it is given, else in records/, named after the defence and all that the
        `words` say."""
        name = "-".join([Path(defence).name, *words])
        self.path = out or Path("records") / f"{name}.json"
        self.before = changed_at(self.path)

    def show(self, record: dict[str, Any], *, as_json: bool, drawn: str) -> None:
        """Print what the record says, and where it is; `drawn` is what `carso report` adds to the
        tables."""
        from carso.report.write import terminal

        if as_json:
            print(json.dumps(record, indent=1))
            return
        print("\n".join(terminal([record])))
        print(f"record: {self.path}  (carso report {self.path} makes tables and {drawn} of it)")
        if self.before is not None and self.before == changed_at(self.path):
            made = record["provenance"].get("made", "before")
            print(f"nothing was computed: the record was made {made}; --again makes it anew")


def changed_at(path: Path) -> int | None:
    """When a file was written last; None where there is none."""
    return path.stat().st_mtime_ns if path.is_file() else None


def that_differ(words: dict[str, bool]) -> list[str]:
    """The words for what is asked otherwise than usual."""
    return [word for word, differs in words.items() if differs]
