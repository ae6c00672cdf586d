"""Scenario files: the paper's values in them, and what a mistake in one of them says."""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from carso.classifiers.registry import layers_of
from carso.data import DATA_SETS
from carso.defence.aggregation import AGGREGATIONS
from carso.errors import CarsoError
from carso.scenario.classifier_settings import ClassifierSettings
from carso.scenario.parser import FOLDER, from_table, names, parse, read
from carso.scenario.purifier_training_settings import BatchAttackSettings
from carso.scenario.schema import Scenario
from carso.scenario.tables import as_table, distinct
from carso.training.batches import shares

PAPER_TRAINING = {
    # initial rate, plateau, final, epochs, warm-up, plateau, annealing, beta from, to, batch, share
    "cifar10": (5e-9, 0.064, 4.346e-4, 200, 25, 25, 150, 25, 34, 5120, 0.5),
    "cifar100": (5e-9, 0.064, 4.346e-4, 200, 25, 25, 150, 25, 34, 2560, 0.15),
    "tinyimagenet": (5e-9, 0.0128, 1.378e-4, 250, 31, 31, 188, 32, 43, 1024, 0.01),
}
PAPER_SIZES = {"cifar10": (512, 128, 3), "cifar100": (512, 128, 3), "tinyimagenet": (768, 192, 4)}
"""fcrepr, fjoint, stages of the layerwise encoder."""
PAPER_LAYERS = [
    *(f"layer.0.block.{b}.conv_{c}" for b in range(4) for c in range(2)),
    *("layer.1.block.0.conv_0", "layer.1.block.0.conv_1", "layer.1.block.0.shortcut"),
    *(f"layer.1.block.{b}.conv_{c}" for b in range(1, 4) for c in range(2)),
    *("layer.2.block.0.conv_0", "layer.2.block.0.conv_1", "layer.2.block.0.shortcut"),
    *(f"layer.2.block.{b}.conv_{c}" for b in range(1, 4) for c in range(2)),
]
PAPER_WEIGHTS = {
    "cifar10": "cifar10_a3_b10_t4_20m_w",
    "cifar100": "cifar100_a5_b12_t4_50m_w",
    "tinyimagenet": "tiny_linf_wrn28_10_w",
}
RELEASED = {  # eps of the attacks in 1/255, images per device, devices, attacked images of a batch
    "cifar10": (31.9, 640, 8, 2560),
    "cifar100": (30.0, 640, 4, 384),
    "tinyimagenet": (35.1, 128, 8, 0),
}

OWN = """\
name = "own"
summary = "a scenario of one's own"

[data]
set = "fashion-embedded"

[threat]
eps = 0.1

[classifier]
depth = 10
width = 1

[classifier.training]
epochs = 2
attack_step_size = 0.05

[purifier]
condition = 16
latent = 8

[purifier.attacks]
fraction = 0.5
bank = "off"
bank_refresh = 3

[purifier.training]
epochs = 4
batch_size = 8
plateau_rate = 1e-3
final_rate = 1e-5
warmup_epochs = 1
plateau_epochs = 1
beta_start = 1
beta_end = 2

[defence]
aggregation = "mean-logits"

[presets.fast.purifier.attacks]
steps = 2

[presets.broken.purifier.attacks]
fraction = 1.5
"""


def line_of(text: str, wanted: str) -> int:
    """The number of the only line that starts with `wanted`."""
    (number,) = [i for i, line in enumerate(text.splitlines(), 1) if line.startswith(wanted)]
    return number


def mistake(text: str, *, preset: str = "") -> str:
    """What reading `text` says, which must be one line."""
    with pytest.raises(CarsoError) as error:
        parse(text, source="own.toml", preset=preset)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_shipped_scenarios_are_these() -> None:
    assert names() == [
        "cifar10",
        "cifar10-resnet18-certified",
        "cifar10-resnet18-retrofit",
        "cifar10-resnet20-certified",
        "cifar10-resnet20-retrofit",
        "cifar10-small",
        "cifar100",
        "convex-anchored-unet",
        "fashion",
        "fashion-anchored-unet",
        "fashion-certified",
        "fashion-flow",
        "fashion-retrofit",
        "fashion-retrofit-unet",
        "fashion-unet",
        "tinyimagenet",
    ]


@pytest.mark.parametrize("name", names())
def test_a_shipped_scenario_is_named_as_its_file_and_can_train_everything(name: str) -> None:
    scenario = read(name)
    assert scenario.name == name
    assert scenario.summary
    assert scenario.data.set in DATA_SETS
    assert scenario.data.fallback in {*DATA_SETS, ""}
    assert scenario.defence.aggregation in AGGREGATIONS
    brought = scenario.classifier.kind == "autoattack-resnet18"  # with its weights
    assert brought or scenario.classifier.training is not None


def test_the_default_needs_no_download() -> None:
    data = read("fashion").data
    assert (data.set, data.fallback) == ("fashion-mnist", "fashion-embedded")
    assert DATA_SETS[data.fallback].shipped is not None
    assert read("fashion").threat.eps == 0.1


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "tinyimagenet", "cifar10-small"])
def test_eps_is_eight_pixel_levels(name: str) -> None:
    scenario = read(name)
    assert scenario.threat.eps == 8 / 255
    assert scenario.training_threat.eps == 8 / 255


@pytest.mark.parametrize("name", PAPER_TRAINING)
def test_training_is_the_papers_table(name: str) -> None:
    purifier = read(name).purifier
    training = purifier.training
    assert (
        training.initial_rate,
        training.plateau_rate,
        training.final_rate,
        training.epochs,
        training.warmup_epochs,
        training.plateau_epochs,
        training.epochs - training.warmup_epochs - training.plateau_epochs,
        training.beta_start,
        training.beta_end,
        training.batch_size,
        purifier.attacks.fraction,
    ) == PAPER_TRAINING[name]
    assert (training.radam_beta1, training.radam_beta2, training.radam_eps) == (0.9, 0.999, 1e-8)
    assert training.weight_decay == 0.0
    assert (training.lookahead_decay, training.lookahead_steps) == (0.8, 6)


@pytest.mark.parametrize("name", PAPER_TRAINING)
def test_attacks_are_the_papers_table_and_never_reused(name: str) -> None:
    attacks = read(name).purifier.attacks
    assert (attacks.steps, attacks.step_size) == (40, 0.01)
    assert (attacks.bank, attacks.device_batch) == ("off", 0)


@pytest.mark.parametrize("name", PAPER_TRAINING)
def test_architectures_and_samples_are_the_papers(name: str) -> None:
    scenario = read(name)
    purifier, classifier = scenario.purifier.own, scenario.classifier
    assert (purifier.condition, purifier.latent, purifier.stages) == PAPER_SIZES[name]
    assert purifier.decoder_width == 256
    assert (classifier.depth, classifier.width, classifier.strides) == (28, 10, (1, 2, 2))
    assert list(layers_of(classifier)) == PAPER_LAYERS
    assert classifier.weights[0] == PAPER_WEIGHTS[name]
    assert scenario.defence.samples == 8
    assert scenario.defence.aggregation == "double-exponential"


@pytest.mark.parametrize("name", PAPER_TRAINING)
def test_a_paper_file_sets_every_hyperparameter_itself(name: str) -> None:
    """A default that changes must not change the paper's scenarios."""
    scenario = read(name)
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    keys = [
        *asdict(scenario.purifier.training),
        *("fraction", "steps", "step_size", "bank", "condition", "latent", "stages"),
        *("depth", "width", "strides", "weights", "samples", "aggregation"),
    ]
    written = {line.split("=")[0].strip() for line in text.splitlines() if "=" in line}
    assert [key for key in keys if key not in written] == []


@pytest.mark.parametrize("name", RELEASED)
def test_the_released_preset_changes_what_the_released_code_did_and_no_more(name: str) -> None:
    eps, device_batch, devices, _ = RELEASED[name]
    paper, released = read(name), read(name, preset="released")
    attacks, training = released.purifier.attacks, released.purifier.training
    assert round(released.training_threat.eps * 255, 1) == eps
    std = DATA_SETS[released.data.set].std
    assert math.isclose(released.training_threat.eps, 8 / 255 / (sum(std) / 3), rel_tol=1e-12)
    assert released.threat == paper.threat  # the defence is still judged at 8/255
    assert attacks.device_batch == device_batch
    assert device_batch * devices == training.batch_size
    undone = replace(
        released,
        preset="",
        purifier=replace(
            released.purifier,
            attacks=replace(attacks, eps=paper.purifier.attacks.eps, device_batch=0),
        ),
    )
    assert undone == paper


@pytest.mark.parametrize("name", RELEASED)
def test_released_shares_of_a_batch(name: str) -> None:
    purifier = read(name, preset="released").purifier
    batch = purifier.training.batch_size
    counts = shares(0, batch, purifier.attacks)
    assert len(set(counts)) == 1
    assert sum(counts) == RELEASED[name][3]
    if name == "tinyimagenet":  # as the paper says it, the same scenario attacks some images
        assert sum(shares(0, batch, read(name).purifier.attacks)) == 10


@pytest.mark.parametrize("name", RELEASED)
def test_the_hardened_preset_adds_hardening_and_no_more(name: str) -> None:
    paper, hardened = read(name), read(name, preset="hardened")
    assert paper.hardening is None
    assert hardened.hardening is not None
    assert replace(hardened, preset="", hardening=None) == paper
    reached = hardened.hardening.attack_steps * hardened.hardening.attack_step_size
    assert reached > paper.threat.eps  # an attack can cross the ball


def test_presets_say_what_they_are() -> None:
    assert read("cifar10").preset == ""
    assert read("cifar10", preset="released").preset == "released"
    text = (FOLDER / "cifar10.toml").read_text(encoding="utf-8")
    written = 'preset = "released"\n' + text
    assert parse(written, source="x.toml") == read("cifar10", preset="released")


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    scenario = read(str(path))
    assert isinstance(scenario, Scenario)
    assert scenario.name == "own"
    assert (scenario.classifier.depth, scenario.purifier.own.latent) == (10, 8)
    assert scenario.training_threat.eps == 0.1
    assert read(str(path), preset="fast").purifier.attacks.steps == 2
    assert scenario.purifier.attacks.steps == 40


@pytest.mark.parametrize(
    ("table", "right", "wrong"),
    [
        ("data", "set", "sett"),
        ("classifier", "width", "widht"),
        ("classifier.training", "attack_step_size", "attack_stepsize"),
        ("purifier", "latent", "latnet"),
        ("purifier.attacks", "fraction", "fractoin"),
        ("purifier.training", "plateau_rate", "plateu_rate"),
        ("purifier.training", "beta_end", "beta_ends"),
        ("defence", "aggregation", "agregation"),
    ],
)
def test_a_misspelt_key_is_named_with_line_table_and_the_right_one(
    table: str, right: str, wrong: str
) -> None:
    text = OWN.replace(f"\n{right} =", f"\n{wrong} =", 1)
    message = mistake(text)
    assert message.startswith(f"own.toml, line {line_of(text, wrong + ' =')}:")
    assert repr(wrong) in message
    assert table in message
    assert f"did you mean {right!r}" in message


def test_a_misspelt_table_is_named_with_its_line() -> None:
    text = OWN.replace("[purifier.attacks]", "[purifier.atacks]", 1)
    message = mistake(text)
    assert f"line {line_of(text, '[purifier.atacks]')}:" in message
    assert "'atacks'" in message
    assert "did you mean 'attacks'" in message


@pytest.mark.parametrize("given", ["[1]", "[1, 1, 1]", "[1, -1]"])
def test_blocks_on_the_way_up_are_one_number_per_finer_level(given: str) -> None:
    unet = 'kind = "unet"\nwidths = [4, 6, 8]\nblocks = [0, 2, 2]\n'
    text = OWN.replace("condition = 16\nlatent = 8\n", f"{unet}up_blocks = {given}\n")
    assert "up_blocks must be a number for each of the 2 finer levels" in mistake(text)
    assert parse(text.replace(given, "[1, 1]"), source="own.toml").purifier.own.up_blocks == (1, 1)


def test_an_unknown_key_at_the_top_is_named() -> None:
    message = mistake("sede = 3\n" + OWN)
    assert "line 1:" in message
    assert "'sede'" in message
    assert "'seed'" in message


def test_a_key_is_looked_for_in_its_own_table() -> None:
    """`epochs` stands in two tables: the line must be that of the wrong one."""
    text = OWN.replace("epochs = 4", "epochs = 0")
    message = mistake(text)
    assert f"line {line_of(text, 'epochs = 0')}:" in message


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("eps = 0.1", "eps = 8.0", "[0, 1] pixel scale"),
        ("eps = 0.1", "eps = -0.1", "[0, 1] pixel scale"),
        ("eps = 0.1", "eps = nan", "finite"),
        ("epochs = 2", "epochs = 0", "at least 1"),
        ("attack_step_size = 0.05", "attack_step_size = 2.5", "[0, 1] pixel scale"),
        ("condition = 16", "condition = 0", "at least 1"),
        ("fraction = 0.5", "fraction = 50.0", "a share in [0, 1]"),
        ('bank = "off"', 'bank = "of"', "memory"),
        ("bank_refresh = 3", "bank_refresh = -1", "epochs"),
        ("batch_size = 8", "batch_size = 1", "at least 2"),
        ("plateau_rate = 1e-3", "plateau_rate = 0.0", "above 0"),
        ("warmup_epochs = 1", "warmup_epochs = 9", "at most epochs = 4"),
        ("beta_end = 2", "beta_end = 0", "at least beta_start"),
    ],
)
def test_a_value_out_of_range_is_named_with_key_line_and_units(
    right: str, wrong: str, says: str
) -> None:
    text = OWN.replace(f"\n{right}\n", f"\n{wrong}\n", 1)
    message = mistake(text)
    key, value = wrong.split(" = ")
    assert message.startswith(f"own.toml, line {line_of(text, wrong)}: {key}")
    assert says in message
    if key != "warmup_epochs":  # which is judged together with the plateau
        assert value.strip('"') in message


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("depth = 10", "depth = 12"),
        ("width = 1", "width = 0"),
        ("width = 1", "strides = [1, 2, 3]"),
        ('aggregation = "mean-logits"', 'aggregation = "double-exponentail"'),
        ("beta_end = 2", "beta_end = 2\nradam_beta1 = 1.5"),
        ("beta_end = 2", "beta_end = 2\nradam_beta2 = -0.1"),
        ("beta_end = 2", "beta_end = 2\nradam_eps = -1e-8"),
    ],
)
def test_a_value_that_would_fail_only_later_is_refused_when_it_is_read(
    right: str, wrong: str
) -> None:
    text = OWN.replace(f"\n{right}\n", f"\n{wrong}\n", 1)
    wrong = wrong.splitlines()[-1]
    message = mistake(text)
    assert f"line {line_of(text, wrong)}:" in message
    assert wrong.split(" = ")[0] in message


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_aggregation_can_be_chosen(name: str) -> None:
    text = OWN.replace('"mean-logits"', f'"{name}"')
    assert parse(text, source="own.toml").defence.aggregation == name


def test_a_table_may_be_written_in_one_line_and_the_error_still_names_it() -> None:
    inline = 'attacks = { fraction = 2.0, bank = "off" }'
    start, end = OWN.index("[purifier.attacks]"), OWN.index("[purifier.training]")
    text = (OWN[:start] + OWN[end:]).replace("latent = 8", f"latent = 8\n{inline}")
    message = mistake(text)
    assert f"line {line_of(text, inline)}: fraction" in message


def test_a_wrong_value_of_a_preset_is_named_with_the_presets_own_line() -> None:
    assert parse(OWN, source="own.toml").purifier.attacks.fraction == 0.5
    message = mistake(OWN, preset="broken")
    assert f"line {line_of(OWN, 'fraction = 1.5')}:" in message
    assert "fraction" in message


@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        ("eps = 0.1", 'eps = "0.1"', "float"),
        ("depth = 10", "depth = 10.0", "int"),
        ("depth = 10", "depth = true", "int"),
        ("width = 1", "strides = 2", "list"),
        ('set = "fashion-embedded"', "set = 3", "str"),
        ("latent = 8", "latent = [8]", "int"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_key_line_and_type(
    right: str, wrong: str, kind: str
) -> None:
    text = OWN.replace(f"\n{right}\n", f"\n{wrong}\n", 1)
    message = mistake(text)
    assert f"line {line_of(text, wrong)}: {wrong.split(' = ')[0]} must be" in message
    assert kind in message


def test_a_table_must_be_a_table() -> None:
    start, end = OWN.index("[defence]"), OWN.index("[presets.fast")
    message = mistake("defence = 8\n" + OWN[:start] + OWN[end:])
    assert message == "own.toml, line 1: defence must be a table, got 8"


def test_whole_numbers_serve_as_floats() -> None:
    scenario = parse(OWN.replace("eps = 0.1", "eps = 1"), source="own.toml")
    assert type(scenario.threat.eps) is float


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("the top of the file", 'name = "own"'),
        ("threat", "eps = 0.1"),
        ("classifier.training", "epochs = 2"),
        ("purifier.training", "plateau_rate = 1e-3"),
    ],
)
def test_a_missing_key_is_named_with_its_table(table: str, line: str) -> None:
    text = OWN.replace(f"{line}\n", "", 1)
    message = mistake(text)
    key = line.split(" = ")[0]
    assert f"{table} lacks the key {key!r}" in message
    if "." in table:
        assert f"line {line_of(text, f'[{table}]')}:" in message


def test_a_missing_table_is_named() -> None:
    start, end = OWN.index("[threat]"), OWN.index("[classifier]")
    assert "lacks the key 'threat'" in mistake(OWN[:start] + OWN[end:])


@pytest.mark.parametrize("broken", ["eps = = 1", "[threat", "eps 0.1", 'name = "twice"'])
def test_invalid_toml_is_one_line_with_its_place(broken: str) -> None:
    text = OWN.replace('\nsummary = "a scenario of one\'s own"', f'\n{broken}\nsummary = "s"')
    message = mistake(text)
    assert message.startswith("own.toml is not valid TOML")
    assert "line 2" in message


def test_a_file_that_is_no_text_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b'name = "\xff\xfe"\n')
    with pytest.raises(CarsoError, match=r"own\.toml"):
        read(str(path))


def test_an_unknown_scenario_lists_those_there_are_and_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(CarsoError, match="did you mean 'tinyimagenet'") as error:
        read("tinyimagnet")
    assert all(name in str(error.value) for name in names())
    with pytest.raises(CarsoError, match="no scenario"):
        read(str(tmp_path / "absent.toml"))


def test_an_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(CarsoError, match=r"no preset 'release'; it has: hardened, released"):
        read("cifar10", preset="release")
    with pytest.raises(CarsoError, match="it has: none"):
        read("fashion", preset="released")


@pytest.mark.parametrize("name", names())
def test_a_scenario_survives_being_recorded(name: str) -> None:
    scenario = read(name)
    assert from_table(as_table(scenario), source="record") == scenario


def test_a_preset_and_an_absent_training_survive_being_recorded() -> None:
    released = read("tinyimagenet", preset="released")
    assert from_table(as_table(released), source="record") == released
    brought = replace(released, classifier=replace(released.classifier, training=None))
    assert from_table(as_table(brought), source="record") == brought


def test_a_damaged_record_is_one_clear_line() -> None:
    table = as_table(read("fashion"))
    table["purifier"]["attacks"]["fraction"] = 7.0
    with pytest.raises(CarsoError, match=r"^record: fraction must be a share"):
        from_table(table, source="record")


def test_an_identity_has_what_differs_from_the_defaults_and_no_more() -> None:
    attacks = BatchAttackSettings(fraction=0.5, steps=40, bank="disk")
    assert distinct(attacks) == {"fraction": 0.5, "bank": "disk"}
    assert distinct(read("cifar10")) == distinct(read("cifar10"))
    assert distinct(read("cifar10")) != distinct(read("cifar10", preset="released"))
    identity = distinct(read("fashion-retrofit"))
    assert json.loads(json.dumps(identity)) == identity  # as it comes back from a file
    assert "defence" not in identity  # at its default


def test_an_identity_is_the_same_after_a_key_is_added() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Before:
        size: int
        rate: float = 0.1

    @dataclass(frozen=True, kw_only=True)
    class After(Before):
        shape: tuple[int, ...] = (1, 2)
        inner: Before = field(default_factory=lambda: Before(size=3))

    assert distinct(After(size=1)) == distinct(Before(size=1)) == {"size": 1}
    assert distinct(After(size=1, shape=(2,))) == {"size": 1, "shape": [2]}
    assert distinct(After(size=1, inner=Before(size=4))) == {"size": 1, "inner": {"size": 4}}


def with_loss_scale(value: float) -> dict[str, Any]:
    table = as_table(read("cifar10"))
    table["purifier"]["training"]["loss_scale"] = value
    return table


def test_a_key_that_is_gone_is_read_where_it_did_nothing_and_else_refused_with_the_reason() -> None:
    """Runs and records that were made before have it."""
    assert from_table(with_loss_scale(1.0), source="record") == read("cifar10")
    with pytest.raises(CarsoError, match=r"loss_scale is no longer a setting, got 8\.0: .*summed"):
        from_table(with_loss_scale(8.0), source="record")


def classifier(text: str) -> ClassifierSettings:
    lines = (FOLDER / "fashion.toml").read_text(encoding="utf-8")
    before, after = lines.split("[classifier]")[0], lines.partition("[purifier]")[2]
    return parse(f"{before}[classifier]\n{text}\n[purifier]{after}", source="own.toml").classifier


def test_a_kind_of_network_has_its_own_settings() -> None:
    assert classifier("") == ClassifierSettings(depth=28, width=10, strides=(1, 2, 2))
    small = classifier('kind = "resnet"')
    assert (small.depth, small.width, small.strides) == (20, None, None)
    assert classifier('kind = "resnet"\ndepth = 56').depth == 56
    assert layers_of(small) == ("conv1", "layer1", "layer2")
    scaled = classifier('kind = "resnet"\nmean = [0.5, 0.5, 0.5]\nstd = [0.2, 0.2, 0.2]')
    assert scaled.std == (0.2, 0.2, 0.2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('kind = "resnet"\nwidth = 2', "width must be left out where kind is 'resnet', got 2"),
        ('kind = "resnet"\ndepth = 28', r"depth must be one of \(20, 32, 44, 56\), got 28"),
        ('kind = "resnet18"', r"kind must be one of \('wide-resnet', 'resnet'"),
        ('kind = "autoattack-resnet18"\ndepth = 18', "depth must be left out"),
        ('kind = "resnet"\nmean = [0.5]', "std must be as long as mean"),
        ('kind = "resnet"\nmean = [0.5]\nstd = [0.0]', "std must be above 0"),
    ],
)
def test_a_wrong_setting_of_a_network_is_one_line(text: str, says: str) -> None:
    with pytest.raises(CarsoError, match=rf"^own\.toml, line \d+: {says}"):
        classifier(text)


def test_a_network_that_comes_with_its_weights_is_not_trained() -> None:
    trained = "[classifier.training]\nepochs = 1\nattack_step_size = 0.1"
    with pytest.raises(CarsoError, match=r"training must be left out .* whose weights come with"):
        classifier(f'kind = "autoattack-resnet18"\n{trained}')
