"""What a record says of how it was made."""

import sys
from pathlib import Path

import pytest

from carso.storage.provenance import command, provenance

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/home/me/bin/carso", "evaluate", "runs/mine"], "carso evaluate runs/mine"),
        (["carso", "train", "/home/me/mine.toml"], "carso train mine.toml"),
        ([str(ROOT / "scripts" / "do.py"), "a b"], "python scripts/do.py 'a b'"),
        (["/home/me/secret.py", "x"], ""),
        (["-c", "x"], ""),
    ],
)
def test_a_command_can_be_repeated_and_tells_no_place_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert command() == said


def test_one_process_is_one_process() -> None:
    assert provenance()["hardware"]["processes"] == 1
