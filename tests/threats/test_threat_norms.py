"""A threat is named by its norm, and none passes for another."""

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from carso.errors import CarsoError
from carso.threats.l2 import L2
from carso.threats.linf import Linf
from carso.threats.norms import THREATS, as_table, threat_of


@dataclass(frozen=True)
class Impostor:
    """It has the name of one of ours."""

    eps: float = 0.5
    norm: str = "L2"


def test_every_threat_is_found_by_its_own_norm() -> None:
    for norm, kind in THREATS.items():
        assert kind.norm == norm
        assert threat_of(norm=norm, eps=0.5) == kind(eps=0.5)
    assert threat_of(eps=0.1) == Linf(eps=0.1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"norm": "L2"}, "eps is missing"),
        ({"norm": "L7", "eps": 0.5}, "norm must be one of Linf, L2, got 'L7'"),
        ({"threat": L2(eps=0.5), "eps": 0.5}, "give none beside"),
        ({"threat": Linf(eps=0.5), "norm": "L2"}, "give none beside"),
        ({"threat": Impostor()}, "'L2' is carso's own"),
    ],
)
def test_what_is_not_clear_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(CarsoError, match=says):
        threat_of(**given)


def test_a_table_says_the_norm_unless_it_is_the_one_of_earlier_runs() -> None:
    assert as_table(Linf(eps=0.1)) == {"eps": 0.1}
    assert as_table(L2(eps=0.5)) == {"norm": "L2", "eps": 0.5}


def test_threats_are_made_without_torch() -> None:
    code = (
        "import sys; from carso.threats.norms import threat_of; threat_of(norm='L2', eps=1.0);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
