"""Where the committed records are, for the scripts that make documents of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
WEIGHTS = ROOT / "carso" / "weights"
FASHION = WEIGHTS / "fashion"


def record(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
