"""The instrument that tries to break the package: a little of it, and that it would notice."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from torture_calls import outcome
from torture_commands import judged
from torture_flips import cut, flipped, other_digit
from torture_outcomes import Trial, counted, summary
from torture_subject import Ended, stable

from carso.errors import CarsoError

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "results" / "torture.json"


@pytest.mark.slow
def test_a_little_of_everything(tmp_path: Path) -> None:
    """It finds no fault but those that the committed record lists, which should be none."""
    out = tmp_path / "torture.json"
    command = [sys.executable, "scripts/torture.py", "--short", "--out", str(out)]
    own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=own)
    assert out.exists(), result.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert len(found["kinds"]) == 8
    listed = json.loads(RECORD.read_text(encoding="utf-8"))["faults"]
    known = {(fault["kind"], fault["what"]) for fault in listed}
    new = [fault for fault in found["faults"] if (fault["kind"], fault["what"]) not in known]
    assert new == []


def test_the_record_counts_what_it_lists() -> None:
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    listed = Counter((fault["kind"], fault["outcome"]) for fault in found["faults"])
    for kind, counts in found["kinds"].items():
        wrong = {name: counts[name] for name in ("silent", "traceback", "unclear")}
        assert wrong == {name: listed[kind, name] for name in wrong}
        assert counts["tried"] == counts["right"] + sum(wrong.values())


@pytest.mark.parametrize(
    ("code", "err", "expected"),
    [
        (2, "carso: no such thing\n", "refused"),
        (2, "carso: no such thing\ncarso: and more\n", "unclear"),
        (2, "no such thing\n", "unclear"),
        (2, "", "unclear"),
        (1, "carso: no such thing\n", "unclear"),
        (-11, "", "unclear"),
        (0, "", "silent"),
        (1, "Traceback (most recent call last):\nKeyError: 3\n", "traceback"),
    ],
)
def test_only_one_clear_line_is_a_refusal(code: int, err: str, expected: str) -> None:
    assert judged(Ended(code=code, out="", err=err, seconds=0.0)) == expected


def test_only_one_clear_error_is_a_refusal() -> None:
    def raising(error: Exception) -> None:
        raise error

    assert outcome(lambda: raising(CarsoError("one line")))[0] == "refused"
    assert outcome(lambda: raising(CarsoError("two\nlines")))[0] == "unclear"
    assert outcome(lambda: raising(KeyError("x")))[0] == "traceback"
    assert outcome(lambda: None)[0] == "silent"


def test_every_damage_is_one() -> None:
    content = b'{"value": 0.125, "epochs": [10, 20]}'
    for damage in (flipped, other_digit, cut):
        for seed in range(20):
            assert damage(content, Random(seed)) != content
    for seed in range(20):
        json.loads(other_digit(content, Random(seed)))


def test_what_differs_from_time_to_time_is_not_compared() -> None:
    assert stable({"a": [{"seconds": 1, "b": 2}], "provenance": {}}) == {"a": [{"b": 2}]}


def test_faults_are_counted_and_listed() -> None:
    trials = [
        Trial(kind="k", what="a", outcome="refused"),
        Trial(kind="k", what="b", outcome="silent", said="done"),
    ]
    found = summary(trials)
    assert found["kinds"]["k"] == counted(Counter(refused=1, silent=1))
    assert (found["kinds"]["k"]["right"], found["kinds"]["k"]["silent"]) == (1, 1)
    assert [fault["what"] for fault in found["faults"]] == ["b"]
