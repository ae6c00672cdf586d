"""A training says how long it will still take, also where no bar can be seen."""

import re

import pytest

from carso.report.progress import duration, progress


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


def test_an_epoch_and_the_whole_run_say_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as bars:
        advance = bars.start("hardening", 1, 4, 20)
        for _ in range(20):
            advance()
        bars.finish("hardening", 1, {"epoch": 2, "loss": 0.5, "seconds": 600.0})
        bars.start("hardening", 3, 4, 20)
        bars.finish("hardening", 3, {"epoch": 4, "loss": 0.25, "seconds": 600.0})
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if "left in this epoch" in line]
    assert len(told) == 9  # nothing is left after the last step
    assert re.fullmatch(r"hardening 2/4: 50%, \S+ s left in this epoch, \S+ s in all", told[4])
    assert lines[-2].endswith("left 20 min")
    assert "left" not in lines[-1]
