"""[hardening] in a scenario file: its defaults, what it may stand with, what a mistake says."""

from dataclasses import fields, replace

import pytest

from carso.defence import aggregation
from carso.errors import CarsoError
from carso.scenario.hardening_settings import VIEWS, HardeningSettings
from carso.scenario.parser import from_table, parse
from carso.scenario.schema import Scenario
from carso.scenario.tables import as_table, distinct

TOP = """\
name = "own"
summary = "a scenario of one's own"

[data]
set = "fashion-embedded"

[threat]
eps = 0.1

[classifier]
depth = 10
width = 1

[purifier]
condition = 16
latent = 8
"""
PAPER = """
[purifier.attacks]
fraction = 0.5

[purifier.training]
epochs = 4
batch_size = 8
plateau_rate = 1e-3
final_rate = 1e-5
warmup_epochs = 1
plateau_epochs = 1
beta_start = 1
beta_end = 2
"""
HARDENING = """
[hardening]
epochs = 3
batch_size = 16
attack_step_size = 0.05
loss = "trades"
view = "logsumexp"
aggregation = "anchored"
anchor = 0.5
patience = 2
"""


def read(text: str) -> Scenario:
    return parse(text, source="own.toml")


def mistake(text: str) -> str:
    """What reading `text` says, which must be one line."""
    with pytest.raises(CarsoError) as error:
        read(text)
    assert "\n" not in str(error.value)
    return str(error.value)


def line_of(text: str, wanted: str) -> int:
    """The number of the last line that starts with `wanted`: [hardening] comes last."""
    return [i for i, line in enumerate(text.splitlines(), 1) if line.startswith(wanted)][-1]


def test_hardening_may_stand_with_the_papers_training_or_instead_of_it() -> None:
    both, alone, paper = (
        read(TOP + PAPER + HARDENING),
        read(TOP + HARDENING),
        read(TOP + PAPER),
    )
    assert (
        both.hardening
        == alone.hardening
        == HardeningSettings(
            epochs=3,
            batch_size=16,
            attack_step_size=0.05,
            loss="trades",
            view="logsumexp",
            aggregation="anchored",
            anchor=0.5,
            patience=2,
        )
    )
    assert alone.purifier.training is None
    assert alone.purifier.attacks is None
    assert alone.training_threat == alone.threat
    assert both.purifier == paper.purifier
    assert paper.hardening is None
    for scenario in (both, alone, paper):
        assert from_table(as_table(scenario), source="record") == scenario
    identities = [distinct(scenario) for scenario in (both, alone, paper)]
    assert all(identities.count(one) == 1 for one in identities)


def test_every_setting_of_hardening_changes_the_identity() -> None:
    scenario = read(TOP + HARDENING)
    own = scenario.hardening
    assert own is not None
    others = {
        "start": "scratch",
        "view": "score",
        "loss": "margin",
        "augment": "flip",
        "aggregation": "mean-logits",
        "attack_precision": "bfloat16",
        "attack_loss": "margin",
    }
    noise = replace(scenario, hardening=replace(own, against="noise", sigma=0.5))
    louder = replace(scenario, hardening=replace(own, against="noise", sigma=0.75))
    led = replace(own, loss="cross-entropy", guide=0.5)
    guided = replace(scenario, hardening=led)
    longer = replace(scenario, hardening=replace(led, guide_epochs=1.0))
    early = replace(led, guide_epochs=1.0, unpainted_epochs=0.5)
    unpainted = replace(scenario, hardening=early)
    found = [distinct(one) for one in (scenario, noise, louder, guided, longer, unpainted)]
    assert all(found.count(one) == 1 for one in found)
    for entry in fields(HardeningSettings):
        if entry.name in ("against", "sigma", "guide", "guide_epochs", "unpainted_epochs"):
            continue  # they only go together: see above
        value = getattr(own, entry.name)
        other = others.get(entry.name, value + 1 if isinstance(value, int) else 0.75)
        changed = replace(scenario, hardening=replace(own, **{entry.name: other}))
        assert distinct(changed) != distinct(scenario), entry.name


def test_views_to_train_through_are_those_of_the_defence_that_have_gradients() -> None:
    assert set(VIEWS) == {*aggregation.VIEWS, "log-prob"} - {"released"}


def test_a_scenario_that_trains_no_purifier_is_refused() -> None:
    message = mistake(TOP)
    assert message.startswith(f"own.toml, line {line_of(TOP, '[purifier]')}: purifier must be")
    assert "[purifier.training]" in message
    assert "[hardening]" in message


@pytest.mark.parametrize("left_out", ["attacks", "training"])
def test_the_papers_attacks_and_training_come_together(left_out: str) -> None:
    attacks, _, training = PAPER.partition("\n[purifier.training]")
    text = TOP + (attacks if left_out == "training" else f"\n[purifier.training]{training}")
    message = mistake(text + HARDENING)
    assert message.startswith("own.toml, line ")
    assert "attacks" in message
    assert "training" in message


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("epochs", "hardening lacks the key 'epochs'"),
        ("attack_step_size", "attack_step_size must be above 0"),
    ],
)
def test_a_missing_key_is_named(key: str, says: str) -> None:
    lines = [line for line in HARDENING.splitlines() if not line.startswith(f"{key} =")]
    text = TOP + "\n".join(lines)
    message = mistake(text)
    assert f"line {line_of(text, '[hardening]')}: {says}" in message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("attack_step_size", "attack_stepsize"), ("anchor", "ancor"), ("patience", "patiance")],
)
def test_a_misspelt_key_is_named_with_its_line_and_the_right_one(right: str, wrong: str) -> None:
    text = TOP + PAPER + HARDENING.replace(f"\n{right} =", f"\n{wrong} =")
    message = mistake(text)
    assert message.startswith(f"own.toml, line {line_of(text, wrong)}: unknown key {wrong!r}")
    assert f"in hardening; did you mean {right!r}?" in message


def test_a_misspelt_table_is_named() -> None:
    message = mistake(TOP + PAPER + HARDENING.replace("[hardening]", "[hardning]"))
    assert "'hardning'" in message
    assert "did you mean 'hardening'" in message


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('start = "sratch"', "scratch"),
        ('start = ""', "a weight file"),
        ("cutmix = 1.5", "a share in [0, 1]"),
        ("clean_share = 1.0", "a share in [0, 1)"),
        ("label_smoothing = 1.0", "a share in [0, 1)"),
        ("weight_perturbation = -0.1", "at least 0"),
        ("attack_steps_end = -1", "at least 0"),
        ("end_epochs = -1.0", "at least 0"),
        ("epochs = 0", "at least 1"),
        ("batch_size = 1", "at least 2"),
        ("rate = 0.0", "above 0"),
        ("warmup = 1.0", "a share in (0, 1)"),
        ("weight_decay = -1.0", "at least 0"),
        ('view = "released"', "mean-logits"),
        ("eps = 8.0", "8/255"),
        ("eps_epochs = -1.0", "at least 0"),
        ("attack_steps = 0", "at least 1"),
        ("attack_step_size = 2.5", "[0, 1] pixel scale"),
        ('attack_precision = "float16"', "bfloat16"),
        ('loss = "mse"', "cross-entropy"),
        ("trades_weight = -1.0", "at least 0"),
        ("reconstruction = -1.0", "at least 0"),
        ("features = -1.0", "at least 0"),
        ('augment = "rotate"', "flip-shift"),
        ("average = 1.0", "in [0, 1)"),
        ("patience = -1", "at least 0"),
        ("validation_images = 0", "at least 1"),
        ("samples = 0", "at least 1"),
        ('aggregation = "median"', "anchored"),
        ("anchor = -0.5", "at least 0"),
        ("anchor = inf", "finite"),
        ("anchor = nan", "finite"),
        ("features = inf", "finite"),
        ('patience = "2"', "type int"),
        ("epochs = 2.5", "type int"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_file_line_and_key(line: str, says: str) -> None:
    key, _, value = line.partition(" = ")
    kept = [other for other in HARDENING.splitlines() if not other.startswith(f"{key} =")]
    text = TOP + PAPER + "\n".join([*kept, line]) + "\n"
    message = mistake(text)
    assert message.startswith(f"own.toml, line {line_of(text, line)}: {key} must be")
    assert says in message
    assert value.strip('"') in message


def test_a_damaged_record_of_hardening_is_one_clear_line() -> None:
    table = as_table(read(TOP + HARDENING))
    table["hardening"]["anchor"] = -2.0
    with pytest.raises(CarsoError, match=r"^record: anchor must be at least 0, got -2\.0$"):
        from_table(table, source="record")
