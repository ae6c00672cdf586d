"""Where the committed records are, for the scripts that make documents of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
WEIGHTS = ROOT / "carso" / "weights"
FASHION = WEIGHTS / "fashion"


def in_one_line(main: Callable[[], None]) -> None:
    """Run a script; a mistake in its input ends it with one line."""
    from carso.errors import CarsoError

    try:
        main()
    except CarsoError as error:
        raise SystemExit(str(error)) from None


def record(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
