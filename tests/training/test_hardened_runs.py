"""A scenario with [hardening], from training to `carso.load`; and `carso.harden` without files."""

import copy
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import carso
from carso.data import ImageData
from carso.defence.on_disk import load
from carso.errors import CarsoError
from carso.purifiers.vae.vae import VAEPurifier
from carso.scenario.hardening_settings import HardeningSettings
from carso.scenario.parser import parse
from carso.scenario.schema import Scenario
from carso.storage import files, tensor_files
from carso.threats.linf import Linf
from carso.training.anchoring import FACTORS
from carso.training.hardening import HardeningStage
from carso.training.loop import Quiet, Row, train_in_memory
from carso.training.scenario_stages import hardening_stage
from carso.training.train import train

CPU = torch.device("cpu")
SCENARIO = """\
name = "small"
summary = "small enough for a test"
seed = 3
[data]
set = "bars"
[threat]
eps = 0.1
[classifier]
depth = 10
width = 1
strides = [2, 2, 2]
layers = ["layer.0.block.0.conv_1", "layer.1.block.0.shortcut"]
[classifier.training]
epochs = 1
batch_size = 16
attack_steps = 1
attack_step_size = 0.05
[purifier]
condition = 8
latent = 8
decoder_width = 16
{paper}
[hardening]
epochs = 2
batch_size = 8
rate = 0.02
attack_steps = 1
attack_step_size = 0.1
validation_images = 8
samples = 3
aggregation = "anchored"
anchor = 0.5
[defence]
samples = 5
"""
PAPER = """\
[purifier.attacks]
fraction = 0.5
steps = 1
step_size = 0.05
[purifier.training]
epochs = 1
batch_size = 16
plateau_rate = 1e-2
final_rate = 1e-3
warmup_epochs = 0
plateau_epochs = 1
beta_start = 0
beta_end = 0
"""

pytestmark = pytest.mark.usefixtures("short_validation")


def scenario(*, paper: bool) -> Scenario:
    return parse(SCENARIO.format(paper=PAPER if paper else ""), source="small.toml")


def images_of(bars: ImageData) -> Tensor:
    return bars.test.batch(slice(None))[0]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("paper", [True, False])
def test_a_hardened_run_loads_as_it_was_trained(
    paper: bool, bars: ImageData, tmp_path: Path
) -> None:
    settings = scenario(paper=paper)
    trained = train(settings, bars, tmp_path, device=CPU, display=Quiet())
    loaded = load(tmp_path)
    chosen = files.read_json(tmp_path / "anchor.json")
    assert chosen["anchor"] in [row["anchor"] for row in chosen["tried"]]
    assert [row["anchor"] for row in chosen["tried"]][:2] == [0.5, 1.0]
    expected = (3, "anchored", chosen["anchor"])
    assert (loaded.samples, loaded.aggregation, loaded.anchor) == expected
    assert (trained.samples, trained.aggregation, trained.anchor) == expected
    weights = tensor_files.load(tmp_path / "hardening.safetensors")
    assert same(dict(loaded.purifier.state_dict()), weights)
    assert same(dict(trained.purifier.state_dict()), weights)
    trained.seed(0)
    torch.testing.assert_close(trained(images_of(bars)), loaded(images_of(bars)))
    record = files.read_json(tmp_path / "hardening.json")
    assert len(record["history"]) == 2
    assert len(record["first_losses"]) == 10
    assert record["sha256"] == files.sha256(tmp_path / "hardening.safetensors")
    assert (record["identity"]["start"] == "scratch") == (not paper)
    assert (tmp_path / "purifier.safetensors").exists() == paper
    assert (tmp_path / "accuracies.json").exists() == paper
    if paper:
        before = tensor_files.load(tmp_path / "purifier.safetensors")
        assert not same(before, weights)
        assert record["identity"]["start"] == tensor_files.fingerprint(before)
    kept = contents(tmp_path)
    train(settings, bars, tmp_path, device=CPU, display=Quiet())  # nothing is left to do
    assert contents(tmp_path) == kept
    assert load(tmp_path, aggregation="mean-logits", samples=2).samples == 2


def test_hardening_starts_from_the_papers_purifier(
    bars: ImageData, learnt: nn.Module, prepared: VAEPurifier
) -> None:
    settings = scenario(paper=True)
    settings = replace(settings, classifier=replace(settings.classifier, layers=("norm", "out")))
    frozen = carso.Carso(copy.deepcopy(learnt), prepared).classifier
    start = copy.deepcopy(prepared).deployed()
    stage = hardening_stage(settings, bars, frozen, CPU, start=start)
    assert same(dict(stage.purifier.state_dict()), deepcopy(prepared).deployed().state_dict())
    scratch = hardening_stage(settings, bars, frozen, CPU, start=None)
    assert not same(dict(scratch.purifier.state_dict()), deepcopy(prepared).deployed().state_dict())
    again = hardening_stage(settings, bars, frozen, CPU, start=None)
    assert same(dict(scratch.purifier.state_dict()), dict(again.purifier.state_dict()))
    assert stage.identity != scratch.identity
    assert settings.hardening is not None
    asked = replace(settings, hardening=replace(settings.hardening, start="scratch"))
    anew = hardening_stage(asked, bars, frozen, CPU, start=copy.deepcopy(prepared).deployed())
    assert same(dict(anew.purifier.state_dict()), dict(scratch.purifier.state_dict()))
    assert anew.identity["start"] == "scratch"


class Stopping(Quiet):
    """Stops hardening after its first epoch."""

    def finish(self, stage: str, epoch: int, row: Row) -> None:
        if stage == "hardening":
            raise KeyboardInterrupt


def test_a_run_stopped_while_hardening_goes_on_and_another_one_is_refused(
    bars: ImageData, tmp_path: Path
) -> None:
    settings = scenario(paper=False)
    with pytest.raises(KeyboardInterrupt):
        train(settings, bars, tmp_path, device=CPU, display=Stopping())
    assert not (tmp_path / "hardening.safetensors").exists()
    kept = contents(tmp_path)
    own = settings.hardening
    assert own is not None
    for key, value in (("anchor", 2.0), ("features", 1.0)):
        other = replace(own, **{key: value})
        with pytest.raises(CarsoError, match=rf"other settings \(hardening\.{key} changed\)"):
            train(replace(settings, hardening=other), bars, tmp_path, device=CPU, display=Quiet())
    other_run = replace(scenario(paper=True), hardening=None)
    with pytest.raises(CarsoError, match=r"\(purifier\.attacks, purifier\.training, hardening ch"):
        train(other_run, bars, tmp_path, device=CPU, display=Quiet())
    assert contents(tmp_path) == kept
    resumed = train(settings, bars, tmp_path, device=CPU, display=Quiet())
    straight = train(settings, bars, tmp_path / "straight", device=CPU, display=Quiet())
    assert same(dict(resumed.purifier.state_dict()), dict(straight.purifier.state_dict()))


def made_by_an_older_revision(folder: Path) -> None:
    """Files as they were when settings had fewer keys, and one more, and identities a hash."""
    description = files.read_json(folder / "defence.json")
    table = description["scenario"]
    for part, keys in (("classifier", ("kind", "mean", "std")), ("hardening", ("spread",))):
        for key in keys:
            del table[part][key]
    table["purifier"]["training"]["loss_scale"] = 1.0
    files.write_json(folder / "defence.json", description)
    for path in (*folder.glob("*/checkpoint.json"), *folder.glob("*.json")):
        content = files.read_json(path)
        if "identity" in content:
            content["identity"]["settings"] = "fcfa1c7b36b43880"
            files.write_json(path, content)


def test_a_run_of_an_older_revision_goes_on_and_one_with_another_value_is_refused(
    bars: ImageData, tmp_path: Path
) -> None:
    settings = scenario(paper=True)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(settings, bars, folder, device=CPU, display=Stopping())
    made_by_an_older_revision(folder)
    kept = contents(folder)
    own = settings.hardening
    assert own is not None
    other = replace(settings, hardening=replace(own, spread=0.1))
    with pytest.raises(CarsoError, match=r"\(hardening\.spread changed\)"):
        train(other, bars, folder, device=CPU, display=Quiet())
    assert contents(folder) == kept
    resumed = train(settings, bars, folder, device=CPU, display=Quiet())
    straight = train(settings, bars, tmp_path / "straight", device=CPU, display=Quiet())
    assert same(dict(resumed.purifier.state_dict()), dict(straight.purifier.state_dict()))
    for name in ("classifier.json", "purifier.json"):  # finished before: not written anew
        assert (folder / name).read_bytes() == kept[folder / name]


def test_no_hardening_leaves_a_scenario_as_the_paper_has_it(
    bars: ImageData, tmp_path: Path
) -> None:
    trained = train(
        replace(scenario(paper=True), hardening=None), bars, tmp_path, device=CPU, display=Quiet()
    )
    assert (trained.samples, trained.aggregation) == (5, "double-exponential")
    loaded = load(tmp_path)
    assert (loaded.samples, loaded.aggregation) == (5, "double-exponential")
    with pytest.raises(CarsoError, match=r"small has no \[hardening\]"):
        hardening_stage(
            replace(scenario(paper=True), hardening=None), bars, trained.classifier, CPU, start=None
        )


# carso.harden.


def test_harden_is_the_stage_in_one_call(
    bars: ImageData, network: nn.Module, prepared: VAEPurifier
) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    start = {name: value.clone() for name, value in prepared.state_dict().items()}
    defence = carso.harden(
        network,
        bars,
        layers=["norm", "out"],
        eps=0.08,
        epochs=2,
        scenario="fashion-retrofit",
        start=prepared,
        batch_size=16,
        aggregation="anchored",
        anchor=0.5,
        samples=3,
        seed=4,
    )
    assert (defence.samples, defence.aggregation) == (3, "anchored")
    assert defence.anchor in [0.5 * factor for factor in FACTORS]
    assert defence.classifier.classifier is network
    assert same(before, dict(network.state_dict()))
    assert same(start, dict(prepared.state_dict()))  # a copy of it is trained
    assert prepared.posterior is not None
    assert not any(p.requires_grad for p in defence.parameters())
    stage = HardeningStage(
        defence.classifier,
        copy.deepcopy(prepared),
        bars,
        hardening=HardeningSettings(
            start="purifier",
            epochs=2,
            batch_size=16,
            rate=2e-3,
            attack_steps=2,
            attack_step_size=0.06,  # three quarters of eps, as in the scenario
            eps_epochs=0.25,
            augment="nudge",
            average=0.999,
            aggregation="anchored",
            anchor=0.5,
            samples=3,
        ),
        threat=Linf(eps=0.08),
        seed=4,
        device=CPU,
        identity={},
    )
    train_in_memory(stage, Quiet())
    expected = dict(stage.result().state_dict())
    assert same(dict(defence.purifier.state_dict()), expected)
    assert not same({name: start[name] for name in expected}, expected)


def test_harden_from_scratch_predicts_and_repeats(bars: ImageData, learnt: nn.Module) -> None:
    def made(seed: int, harden: Callable[..., carso.Carso] = carso.harden) -> carso.Carso:
        sizes = {"widths": (4, 6), "blocks": (1, 1)}
        return harden(
            copy.deepcopy(learnt),
            bars,
            layers=["norm"],
            eps=0.1,
            epochs=1,
            steps=1,
            batch_size=16,
            seed=seed,
            **sizes,
        )

    first, second, other = made(0), made(0), made(1)
    assert first.predict(images_of(bars)).shape == (12,)
    states = [dict(defence.purifier.state_dict()) for defence in (first, second, other)]
    assert same(states[0], states[1])
    assert not same(states[0], states[2])
    assert first.purifier.layers == ("norm",)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"layers": ["nrom"]}, "no layer 'nrom'"),
        ({"eps": 8.0}, "8/255"),
        ({"loss": "mse"}, "loss must be one of"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"steps": -1}, "attack_steps must be at least 1"),
        ({"steps": 0}, "attack_steps must be at least 1"),
        ({"aggregation": "median"}, "aggregation must be one of"),
        ({"view": "released"}, "view must be one of"),
        ({"anchor": -1.0}, "anchor must be at least 0"),
        ({"aggregation": "anchored", "anchor": float("inf")}, "anchor must be finite"),
    ],
)
def test_what_harden_cannot_do_is_said_before_it_trains(
    wrong: dict[str, object], says: str, bars: ImageData, network: nn.Module
) -> None:
    settings = {"layers": ["norm"], "eps": 0.1, "widths": (4, 6), "blocks": (1, 1)}
    with pytest.raises(CarsoError, match=says):
        carso.harden(network, bars, **{**settings, **wrong})  # type: ignore[arg-type]
