"""Refutations: which images are attacked anew, with how much, and what is counted."""

import math
from pathlib import Path
from typing import Any

import pytest
import refute
from records import record as read_record

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def attack(right: list[Any], margin: list[Any], backward: int = 100) -> dict[str, Any]:
    return {"right": right, "margin": margin, "passes": {"backward": backward, "forward": 0},
            "name": "a", "what": "w", "attacked": 1, "broken": 0, "seconds": 1.0}  # fmt: skip


def record() -> dict[str, Any]:
    """Four images: one breaks at once, one by the third attack from a lead of 0.7, two stand."""
    return {
        "attacks": [
            attack([0, 5, 5, 5], [-1.0, 0.7, 0.2, 3.0]),
            attack([None, 5, 5, 5], [None, 0.9, 0.3, 2.0]),
            attack([None, 0, 5, 5], [None, -0.1, 0.4, 2.5], backward=200),
        ],
        "images": {
            "clean_right": [5, 5, 5, 5],
            "clean_margin": [9.0, 9.0, 9.0, 9.0],
            "worst_right": [0, 0, 5, 4],
            "worst_margin": [-1.0, -0.1, 0.2, 2.0],
        },
        "data": {"count": 4, "set": "s", "split": "test"},
        "subject": {"name": "n"},
        "suite": {"draws": 5},
        "threat": {"eps": 0.1},
        "provenance": {"command": "c", "revision": "r"},
        "seed": 1,
    }


def test_the_widest_break_is_of_the_later_attacks() -> None:
    assert refute.widest_break(record()) == pytest.approx(0.7)
    early = record()
    early["attacks"] = early["attacks"][:2]
    assert refute.widest_break(early) == -math.inf


def test_all_that_stand_within_it_are_taken_and_never_fewer_than_asked_for() -> None:
    assert refute.chosen(record(), least=1) == ([2], pytest.approx(0.7))
    assert refute.chosen(record(), least=2) == ([2, 3], 2.0)


def test_the_budget_is_ten_times_the_records() -> None:
    assert refute.spent_per_image(record()) == 100
    for gradients in (4_000, 10_000, 50_000):
        plan = refute.long_attacks(1, gradients)
        (descents,) = [p.attack for p in plan.attacks if p.name.startswith("refine")]
        spent = 2100 + (1 + descents.restarts) * descents.steps * (1 + descents.targets)
        assert gradients <= spent <= gradients + 200


def test_what_is_taken_never_counts_for_the_record() -> None:
    """An image that fresh draws find better than before changes nothing."""
    found = {
        **record(),
        "images": {"worst_right": [2, 5], "worst_margin": [0.1, 2.0]},
        "data": {"count": 2},
    }
    summary = refute.summary(record(), found, [2, 3])
    assert summary["taken"] == pytest.approx((5 - 2) / 5 / 4)
    assert summary["broken"] == 0
    assert summary["gradients"] == 200


@pytest.mark.parametrize("name", ["fashion-hardened-adaptive", "fashion-bare-adaptive"])
def test_shipped_records_leave_some_to_attack(name: str) -> None:
    found = read_record(RESULTS / f"{name}.json")
    index, limit = refute.chosen(found, 50)
    assert 50 <= len(index) < found["data"]["count"] / 2
    margins = [found["images"]["worst_margin"][i] for i in index]
    assert margins == sorted(margins)
    assert margins[-1] <= limit
