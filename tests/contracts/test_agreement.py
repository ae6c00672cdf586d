"""What this package says of a classifier is what `pyautoattack` says, or worse."""

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


def test_the_adaptive_suite_leaves_no_more_of_a_classifier_than_autoattack() -> None:
    adaptive, standard = (
        json.loads((RESULTS / f"fashion-bare-{name}.json").read_text(encoding="utf-8"))
        for name in ("adaptive", "standard")
    )
    assert standard["subject"].items() <= adaptive["subject"].items(), "other weights"
    assert adaptive["threat"] == standard["threat"]
    assert adaptive["data"]["sha256"] == standard["data"]["sha256"]
    assert adaptive["data"]["count"] == 1000
    assert sum(adaptive["images"]["worst_right"]) <= sum(standard["images"]["worst_right"])
