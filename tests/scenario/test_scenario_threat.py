"""[threat] of a scenario: the norm says which ball, and goes without saying in Linf."""

import pytest

from carso.errors import CarsoError
from carso.scenario.parser import from_table, names, parse, read
from carso.scenario.schema import Scenario
from carso.scenario.tables import as_table
from carso.threats.l2 import L2
from carso.threats.linf import Linf

ROUND = """\
name = "round"
summary = "for a test"

[data]
set = "fashion-embedded"

[threat]
norm = "L2"
eps = 1.5

[classifier]
depth = 10
width = 1

[classifier.training]
epochs = 1
attack_step_size = 1.2

[purifier]
condition = 8
latent = 4
decoder_width = 8

[purifier.attacks]
fraction = 0.5
eps = 2.0
step_size = 1.1

[purifier.training]
epochs = 1
batch_size = 8
plateau_rate = 1e-3
final_rate = 1e-4
warmup_epochs = 0
plateau_epochs = 0
beta_start = 0
beta_end = 1

[hardening]
epochs = 1
eps = 3.0
attack_step_size = 1.3
"""


def scenario(text: str = ROUND) -> Scenario:
    return parse(text, source="round.toml")


def test_a_scenario_in_l2_trains_in_l2_at_radii_beyond_a_pixel() -> None:
    found = scenario()
    assert found.threat == L2(eps=1.5)
    assert found.training_threat == L2(eps=2.0)
    assert as_table(found)["threat"] == {"norm": "L2", "eps": 1.5}
    assert from_table(as_table(found), source="record") == found


def test_linf_goes_without_saying_as_in_all_earlier_runs() -> None:
    for name in names():
        if not name.endswith("-certified"):  # certificates are of L2
            assert read(name).threat.norm == "Linf"
            assert set(as_table(read(name))["threat"]) == {"eps"}
    flat = ROUND.replace('norm = "L2"', "norm = 'Linf'").replace("eps = 1.5", "eps = 0.1")
    for large in ("attack_step_size = 1.2", "attack_step_size = 1.3", "step_size = 1.1"):
        flat = flat.replace(large, large.split("=")[0] + "= 0.1")
    flat = flat.replace("eps = 2.0", "eps = 0.2").replace("eps = 3.0", "eps = 0.3")
    assert scenario(flat).threat == Linf(eps=0.1)
    assert scenario(flat) == scenario(flat.replace("norm = 'Linf'\n", ""))


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ('norm = "L2"', 'norm = "l2"', "line 8: norm must be one of 'Linf', 'L2', got 'l2'"),
        ('norm = "L2"', "norm = [2]", r"line 8: norm must be one of 'Linf', 'L2', got \[2\]"),
        ("eps = 1.5", "eps = 0.0", "line 9: eps of L2 is the length of the whole change"),
        ("eps = 1.5", "epsilon = 1.5", "line 9: unknown key 'epsilon' in threat"),
        ('norm = "L2"', "", r"line 9: eps is on the \[0, 1\] pixel scale"),
    ],
)
def test_a_mistake_is_named_with_its_line(line: str, instead: str, says: str) -> None:
    with pytest.raises(CarsoError, match=rf"^round\.toml, {says}"):
        scenario(ROUND.replace(line, instead))


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("attack_step_size", "attack_step_size = 1.2"),
        ("eps", "eps = 2.0"),
        ("step_size", "\nstep_size = 1.1"),
    ],
)
def test_in_linf_no_length_is_beyond_the_range_of_a_pixel(key: str, line: str) -> None:
    lines = ["attack_step_size = 1.2", "eps = 2.0", "\nstep_size = 1.1", "eps = 3.0",
             "attack_step_size = 1.3"]  # fmt: skip
    text = ROUND.replace('norm = "L2"', 'norm = "Linf"').replace("eps = 1.5", "eps = 0.1")
    for other in lines:
        text = text if other == line else text.replace(other, other.split("=")[0] + "= 0.1")
    number = text[: text.index(line) + 1].count("\n") + 1
    wanted = rf"^round\.toml, line {number}: {key} must be on the \[0, 1\] pixel scale"
    with pytest.raises(CarsoError, match=wanted):
        scenario(text)
