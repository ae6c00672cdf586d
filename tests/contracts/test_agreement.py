"""What this package says of a classifier in L2 is what `pyautoattack` says, called directly."""

import json
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_record_in_l2_agrees_with_the_library_image_by_image() -> None:
    record, called = (
        json.loads((RESULTS / place / "fashion-bare-l2-standard.json").read_text(encoding="utf-8"))
        for place in (".", "agreement")
    )
    assert record["threat"] == called["threat"] == {"norm": "L2", "eps": 0.5}
    assert record["subject"] == called["of"]["subject"]
    assert called["direct"] == called["recorded"] == record["images"]["worst_right"]
    assert 0 < sum(called["direct"]) < sum(record["images"]["clean_right"])
