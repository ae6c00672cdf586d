"""The attack of docs/extending.md stands in a suite beside ours, in either norm."""

import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_attack.py"


@pytest.mark.parametrize("threat", [{}, {"norm": "L2", "eps": 1.0}])
def test_the_example_is_evaluated(threat: dict[str, Any]) -> None:
    record = runpy.run_path(str(EXAMPLE))["main"](12, **threat)
    mine, ours = record["attacks"]
    assert (mine["name"], mine["settings"]) == ("stripes", "Stripes(tries=20)")
    assert mine["black_box"]
    assert not ours["black_box"]
    assert mine["attacked"] > 0
    assert mine["passes"]["backward"] == 0
    assert mine["reasons"] == []  # a black box has no gradients, and needs none
    assert record["threat"]["norm"] == threat.get("norm", "Linf")
