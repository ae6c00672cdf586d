"""The instrument that tries to break the package: a little of it, and that it would notice."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from torture import merged
from torture_calls import outcome
from torture_command_table import OPTIONS
from torture_commands import judged
from torture_flips import State, cut, damaged, flipped, other_digit
from torture_outcomes import Trial, counted, summary
from torture_parts import GOALS, WORDS
from torture_subject import Ended, stable

from carso.cli.main import app
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


def test_the_record_is_of_a_whole_round() -> None:
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    assert found["whole"]["minutes"] <= 60
    for kind, goal in GOALS.items():
        counts = found["kinds"][kind]
        assert counts["distinct" if kind in WORDS else "tried"] >= goal
        assert not counts["short"]


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


def test_a_kind_that_is_tried_again_leaves_what_was_found_before() -> None:
    fault = {"kind": "k", "what": "a", "outcome": "silent", "said": ""}
    counts = {"tried": 2, "right": 1, "silent": 1, "traceback": 0, "unclear": 0}
    first = {"kinds": {"k": counts}, "faults": [fault]}
    again = {"kinds": {"k": {**counts, "right": 2, "silent": 0}}, "faults": []}
    found = merged(merged(first, again), again)
    assert found["faults"] == []
    assert found["kinds"]["k"]["right"] == 2
    assert found["replaced"]["k"] == {**counts, "faults": [fault]}


def test_what_is_tried_twice_counts_once_as_distinct() -> None:
    trials = [Trial(kind="k", what="a", outcome="refused")] * 3
    assert summary(trials)["kinds"]["k"]["distinct"] == 1


def test_every_command_and_every_option_is_tried() -> None:
    wanted = {
        name: {one.opts[-1] for one in command.params if takes_a_value(one)}
        for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    }
    assert wanted.keys() == OPTIONS.keys()
    for name, options in wanted.items():
        assert options <= OPTIONS[name].keys(), name


def takes_a_value(parameter: Any) -> bool:
    return parameter.param_type_name == "option" and not parameter.is_flag


def test_what_is_repaired_without_a_word_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "file").write_text("whole")

    def tried(*, said: str, repaired: bool) -> str:
        def command(words: list[object]) -> Ended:
            if repaired:
                (tmp_path / "place" / "file").write_text("whole")
            return Ended(code=0, out="", err=said, seconds=0.0)

        state = State(
            name="", saved=tmp_path / "saved", place=tmp_path / "place", words=[],
            result=lambda ended: None, wanted=None,
        )  # fmt: skip
        subject: Any = SimpleNamespace(command=command)
        return damaged(subject, state, state.saved / "file", "cut short", Random(0)).outcome

    assert tried(said="", repaired=True) == "silent"
    assert tried(said="carso: file is damaged: it is written again\n", repaired=True) == "mended"
    assert tried(said="", repaired=False) == "unharmed"


def test_faults_are_counted_and_listed() -> None:
    trials = [
        Trial(kind="k", what="a", outcome="refused"),
        Trial(kind="k", what="b", outcome="silent", said="done"),
    ]
    found = summary(trials)
    assert found["kinds"]["k"] == {**counted(Counter(refused=1, silent=1)), "distinct": 2}
    assert (found["kinds"]["k"]["right"], found["kinds"]["k"]["silent"]) == (1, 1)
    assert [fault["what"] for fault in found["faults"]] == ["b"]
