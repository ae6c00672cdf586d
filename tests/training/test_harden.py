"""`carso harden` as a user meets it: around a network of their own, or weights of a known one."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import fails, run, write_photos
from torch import nn

import carso
from carso.classifiers.brought import of_user
from carso.classifiers.wide_resnet import WideResNet
from carso.cli.main import main
from carso.errors import CarsoError
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import Effort, Suite, margin
from carso.evaluation.suites import SUITES
from carso.scenario import parser
from carso.storage import files, tensor_files
from carso.threats.l2 import L2

MINI = """
name = "mini"
summary = "as small as it gets"
[data]
set = "{data}"
[threat]
eps = 0.1
[classifier]
depth = 10
width = 1
strides = [2, 2, 2]
[purifier]
condition = 8
latent = 8
decoder_width = 16
[hardening]
epochs = 2
batch_size = 8
attack_steps = 1
attack_step_size = 0.1
validation_images = 2
samples = 3
aggregation = "anchored"
anchor = 0.5
"""
OWN = """\
import torch
from torch import nn

def classifier():
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 4, stride=4), nn.SiLU(), nn.Flatten(), nn.Linear(196, 2)
    )
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2, generator=generator)
    return network
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two classes of twelve images, a scenario, and a network of the user's own."""
    folder = tmp_path_factory.mktemp("harden")
    write_photos(folder / "photos")
    (folder / "mini.toml").write_text(MINI.format(data=folder / "photos"))
    (folder / "own.py").write_text(OWN)
    return folder


@pytest.fixture(scope="module")
def hardened(place: Path) -> Path:
    """The run around the user's own network, by the command line."""
    words = ["harden", str(place / "mini.toml"), "--classifier", str(place / "own.py")]
    words += ["--layers", "0, 3", "--run", str(place / "run"), "--epochs", "1", "--eps", "0.05"]
    arguments, sys.argv = sys.argv, ["carso", *words]
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        sys.argv = arguments
    assert not stop.value.code
    return place / "run"


def own_network(place: Path) -> nn.Module:
    return of_user(place / "own.py")


def test_a_network_of_ones_own_is_hardened_and_loads_again(hardened: Path, place: Path) -> None:
    defence = carso.load(hardened, classifier=own_network(place))
    chosen = files.read_json(hardened / "anchor.json")["anchor"]
    assert (defence.samples, defence.aggregation, defence.anchor) == (3, "anchored", chosen)
    assert defence.purifier.layers == ("0", "3")
    assert defence.scenario.name == "own"
    assert defence.scenario.threat.eps == 0.05
    assert defence.scenario.hardening is not None
    assert defence.scenario.hardening.epochs == 1
    assert defence.classes == ("class0", "class1")
    weights = tensor_files.load(hardened / "classifier.safetensors")
    for name, value in own_network(place).state_dict().items():
        assert torch.equal(weights[name], value), name
    spoiled = own_network(place)
    with torch.no_grad():
        for parameter in spoiled.parameters():
            parameter.zero_()
    images = torch.rand(4, 1, 28, 28)
    other = carso.load(hardened, classifier=spoiled)  # its weights come from the run
    torch.testing.assert_close(other(images), defence(images))


def test_a_network_that_is_not_given_or_does_not_fit_is_one_clear_line(
    hardened: Path, capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    with pytest.raises(CarsoError, match=r"that own\.py makes: give it, by --classifier") as error:
        carso.load(hardened)
    assert str(hardened) in str(error.value)
    with pytest.raises(CarsoError, match="does not fit Linear"):
        carso.load(hardened, classifier=nn.Linear(3, 2))
    picture = next((place / "photos").rglob("*.png"))
    for command in (("predict", hardened, picture), ("evaluate", hardened, "--images", "2")):
        fails(capsys, *command, says=["own.py", "--classifier FILE.py"])


def test_predict_and_evaluate_take_the_network(
    hardened: Path,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def shortest(seed: int, samples: int) -> Suite:
        effort = Effort(images=2, steps=1, queries=1, eps=(0.0,))
        return Suite(
            name="quick", attacks=(margin(1, 1, AttackedView(samples=samples)),), effort=effort
        )

    monkeypatch.setitem(SUITES, "quick", shortest)
    own = ("--classifier", place / "own.py")
    picture = sorted((place / "photos").rglob("*.png"))[0]
    code, out, err = run(capsys, "predict", hardened, picture, "--json", *own)
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["samples"] == 3
    defence = carso.load(hardened, classifier=own_network(place))
    with Image.open(picture) as opened:
        image = torch.from_numpy(np.array(opened)).view(1, 1, 28, 28) / 255
    probability = defence.predict_proba(image)[0]
    assert row["probability"] == pytest.approx(float(probability.max()), rel=1e-4)
    assert row["label"] == defence.classes[int(probability.argmax())]
    alone = own_network(place)(image).argmax()
    assert row["classifier_alone"] == defence.classes[int(alone)]
    words = ("evaluate", hardened, "--images", "2", "--draws", "1", "--out", tmp_path / "r.json")
    code, _, err = run(capsys, *words, *own)
    assert code == 0, err
    record = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    subject = record["subject"]
    chosen = files.read_json(hardened / "anchor.json")["anchor"]
    assert (subject["aggregation"], subject["anchor"], subject["samples"]) == (
        "anchored",
        chosen,
        3,
    )
    assert record["threat"]["eps"] == 0.05


def test_hardening_again_goes_on_and_other_settings_are_refused(
    hardened: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("harden", place / "mini.toml", "--classifier", place / "own.py", "--layers", "0,3")
    words = (*words, "--run", hardened, "--eps", "0.05")
    kept = {path: path.read_bytes() for path in hardened.glob("hard*") if path.is_file()}
    assert len(kept) == 2
    code, out, err = run(capsys, *words, "--epochs", "1")
    assert code == 0, err
    assert f"carso predict {hardened} IMAGE... --classifier {place / 'own.py'}" in out
    fails(capsys, *words, says=["other settings", "hardening.epochs changed"])  # two epochs
    fails(capsys, *words, "--epochs", "1", "--seed", "5", says=["other settings", "seed changed"])
    assert {path: path.read_bytes() for path in hardened.glob("hard*") if path.is_file()} == kept


def test_weights_of_the_scenarios_network_need_no_code(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    network = WideResNet(10, 1, classes=2, channels=1, strides=(2, 2, 2))
    path = tmp_path / "mine.safetensors"
    tensor_files.save(path, network.state_dict())
    words = ("harden", place / "mini.toml", "--run", tmp_path / "run", "--epochs", "1")
    code, out, err = run(capsys, *words, "--classifier", path)
    assert code == 0, err
    assert "--classifier" not in out
    defence = carso.load(tmp_path / "run")
    assert defence.scenario.name == "mini-hardened"
    for name, value in network.state_dict().items():
        assert torch.equal(defence.classifier.classifier.state_dict()[name], value), name
    fails(capsys, *words, "--classifier", tmp_path / "none.pt", says=["there is no file"])
    tensor_files.save(tmp_path / "wrong.safetensors", {"a": torch.zeros(2)})
    wrong = (*words, "--classifier", tmp_path / "wrong.safetensors")
    fails(capsys, *wrong, says=["does not fit WideResNet"])


def test_another_norm_is_hardened_in_and_needs_its_eps(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("harden", place / "mini.toml", "--classifier", place / "own.py", "--layers", "0,3")
    words = (*words, "--run", tmp_path / "run", "--epochs", "1", "--norm")
    fails(capsys, *words, "L2", says=["--norm L2 needs an --eps: 0.1 is meant in Linf"])
    fails(capsys, *words, "L3", "--eps", "1", says=["there is no norm 'L3'; there are Linf, L2"])
    assert not (tmp_path / "run").exists()
    code, _, err = run(capsys, *words, "L2", "--eps", "1.5")
    assert code == 0, err
    defence = carso.load(tmp_path / "run", classifier=own_network(place))
    assert defence.scenario.threat == L2(eps=1.5)
    hardening = defence.scenario.hardening
    assert hardening is not None
    own = parser.read(str(place / "mini.toml")).hardening
    assert own is not None
    # What the scenario says for its own eps of 0.1, of the new radius.
    assert hardening.attack_step_size == pytest.approx(own.attack_step_size * 15)
    # The same radius in the other norm is another run.
    other = (*words, "Linf", "--eps", "0.5")
    fails(capsys, *other, says=["other settings", "threat.norm"])


def test_wrong_words_are_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("harden", place / "mini.toml", "--run", tmp_path / "run", "--classifier")
    own = (*words, place / "own.py")
    fails(capsys, *own, "--layers", "0,9", says=["no layer '9'", "nearest"])
    fails(capsys, *own, "--layers", "0", "--eps", "8", says=["eps", "8/255"])
    fails(capsys, "harden", place / "mini.toml", says=["--classifier"])
    cases = {
        "raise ValueError('no luck')": ["failed", "ValueError: no luck"],
        "def classifier(:": ["failed", "SyntaxError"],
        "import nothing_of_that_name": ["failed", "nothing_of_that_name"],
        "def clasifier(): pass": ["defines no function classifier()"],
        "def classifier(): return 3": ["gives int, not a torch module"],
    }
    for number, (text, says) in enumerate(cases.items()):
        path = tmp_path / f"wrong{number}.py"
        path.write_text(text + "\n")
        fails(capsys, *words, path, "--layers", "0", says=[path.name, *says])
    fails(capsys, *words, tmp_path / "absent.py", "--layers", "0", says=["absent.py"])
    unhardened = tmp_path / "paper.toml"
    unhardened.write_text((place / "mini.toml").read_text().partition("[hardening]")[0])
    fails(capsys, "harden", unhardened, *own[-2:], "--layers", "0", says=["[hardening]"])
    assert not (tmp_path / "run").exists()


def test_the_call_and_the_command_are_one_recipe(hardened: Path, place: Path) -> None:
    """The command's weights come out of `carso.harden` as well, bit for bit."""
    images = carso.load(hardened, classifier=own_network(place)).scenario.data.set
    defence = carso.harden(
        own_network(place),
        carso.data.load(images),
        scenario=str(place / "mini.toml"),
        layers=["0", "3"],
        epochs=1,
        eps=0.05,
    )
    expected = tensor_files.load(hardened / "hardening.safetensors")
    found = dict(defence.purifier.state_dict())
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize(("kind", "made"), [("unet", "UNetPurifier"), ("flow", "FlowPurifier")])
def test_a_purifier_of_another_kind_is_a_word_away(
    kind: str, made: str, place: Path, tmp_path: Path
) -> None:
    defence = carso.harden(
        own_network(place),
        carso.data.load(str(place / "photos")),
        scenario=str(place / "mini.toml"),
        layers=["0"],
        eps=0.05,
        epochs=1,
        kind=kind,
        widths=(4, 6),
        blocks=(1, 1),
    )
    assert type(defence.purifier).__name__ == made
    again = carso.load(defence.save(tmp_path / "saved"), classifier=own_network(place))
    images = carso.data.load(str(place / "photos")).test.batch(slice(2))[0]
    for one in (defence, again):
        one.seed(0)
    assert torch.equal(defence(images), again(images))
    with pytest.raises(CarsoError, match="'wdths'"):
        carso.harden(
            own_network(place),
            carso.data.load(str(place / "photos")),
            layers=["0"],
            eps=0.05,
            wdths=3,
        )
