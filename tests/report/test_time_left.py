"""A training says how long it will still take, also where no bar can be seen."""

import re

import pytest

from carso.machine import progress as shown
from carso.machine.progress import duration, progress


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3540, "59 min"),
        (3660, "1 h 01 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_a_duration_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that have passed, in a list of one."""
    now = [0.0]
    monkeypatch.setattr(shown.time, "perf_counter", lambda: now[0])
    return now


def test_any_counted_work_has_a_line_a_minute(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress() as bars:
        done = bars.announced("attacks", 10)
        for _ in range(10):
            clock[0] += 25
            done(1)
    assert capsys.readouterr().err.splitlines() == [
        "attacks",
        "attacks: 30%, 3 min left",
        "attacks: 60%, 2 min left",
        "attacks: 90%, 25 s left",
    ]


def test_what_was_done_before_a_resume_does_not_count_as_fast(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress() as bars:
        advance = bars.start("hardening", 0, 1, 100, 90)
        clock[0] += 60
        advance()
    said = capsys.readouterr().err
    assert "hardening 1/1: 91%, 9 min left in this epoch, 9 min in all" in said


def test_nothing_is_said_where_quiet_is_asked_for(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress(shown=False) as bars:
        done = bars.announced("attacks", 10)
        clock[0] += 100
        done(1)
        bars.finish("hardening", 1, {"epoch": 2, "loss": 0.5, "seconds": 600.0})
    assert capsys.readouterr().err == ""


def test_an_epoch_and_the_whole_run_say_what_is_left(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress() as bars:
        advance = bars.start("hardening", 1, 4, 20)
        for _ in range(20):
            clock[0] += 30
            advance()
        bars.finish("hardening", 1, {"epoch": 2, "loss": 0.5, "seconds": 600.0})
        bars.start("hardening", 3, 4, 20)
        bars.finish("hardening", 3, {"epoch": 4, "loss": 0.25, "seconds": 600.0})
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if "left in this epoch" in line]
    assert len(told) == 9  # nothing is left after the last step
    assert re.fullmatch(r"hardening 2/4: 50%, 5 min left in this epoch, 25 min in all", told[4])
    assert lines[-2].endswith("left 20 min")
    assert "left" not in lines[-1]
