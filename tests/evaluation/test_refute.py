"""Which images a refutation attacks anew, and what it takes from a record."""

import math
from typing import Any

import pytest
from refute import chosen, spent_per_image, summary, widest_break


def record() -> dict[str, Any]:
    """Five images: the first is wrong without attack, the second falls to the first attack, the
    third to the third from a lead of 0.4, the others stand with leads of 0.2 and 3."""
    attacks = [
        attack([None, 0, 5, 5, 5], [None, -1.0, 0.9, 0.9, 4.0], 500),
        attack([None, None, 5, 5, 5], [None, None, 0.4, 0.8, 3.5], 300),
        attack([None, None, 0, 5, 5], [None, None, -0.1, 0.2, 3.0], 200),
    ]
    return {
        "attacks": attacks,
        "images": {
            "clean_right": [0, 5, 5, 5, 5],
            "clean_margin": [-2.0, 2.0, 2.0, 2.0, 6.0],
            "worst_right": [0, 0, 0, 4, 5],
            "worst_margin": [-2.0, -1.0, -0.1, 0.2, 3.0],
        },
        "data": {"count": 5, "set": "some", "split": "test"},
        "suite": {"draws": 5},
        "subject": {"name": "one"},
        "threat": {"eps": 0.1},
        "provenance": {"command": "carso", "revision": "abc"},
        "seed": 0,
    }


def attack(right: list[int | None], margin: list[float | None], backward: int) -> dict[str, Any]:
    passes = {"backward": backward, "forward": backward}
    facts = {"name": "a", "what": "b", "attacked": 5, "broken": 1, "seconds": 1.0}
    return {"right": right, "margin": margin, "passes": passes, **facts}


def test_the_widest_break_is_that_of_the_later_attacks() -> None:
    """The first two attacks break images from anywhere, and do not count."""
    assert widest_break(record()) == 0.4
    without = record()
    del without["attacks"][2]
    assert widest_break(without) == -math.inf


def test_the_weakest_that_stand_are_attacked_anew() -> None:
    assert chosen(record(), least=1) == ([3], 0.4)
    assert chosen(record(), least=50) == ([3, 4], 3.0)


def test_the_budget_is_gradients_of_an_image() -> None:
    assert spent_per_image(record()) == pytest.approx(1000 / 5)


def test_the_worse_of_two_verdicts_counts() -> None:
    """Luck counts against the record: an image that does better now takes nothing back."""
    found = {**record(), "images": {"worst_right": [1, 5], "worst_margin": [-0.1, 2.0]}}
    told = summary(record(), found, [3, 4])
    assert told["taken"] == pytest.approx(3 / 5 / 5)
    assert told["broken"] == 0
    better = {**found, "images": {"worst_right": [5, 0], "worst_margin": [0.3, -1.0]}}
    told = summary(record(), better, [3, 4])
    assert told["taken"] == pytest.approx(5 / 5 / 5)
    assert told["broken"] == 1
