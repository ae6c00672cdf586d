"""Classifiers that are brought: by name, by a weight file, by Python code."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import fails, run
from torch import nn

import carso
from carso import data
from carso.classifiers import known_files
from carso.classifiers.brought import known, load_classifier, of_user
from carso.classifiers.known_files import KNOWN, KnownFile, installed_file, settled
from carso.classifiers.registry import KINDS, build, layers_of
from carso.classifiers.resnet import SmallResNet
from carso.classifiers.wide_resnet import WideResNet
from carso.data import DataNotFoundError, ImageFacts
from carso.defence.representation import Representation
from carso.errors import CarsoError
from carso.scenario.classifier_settings import NETWORK_KEYS, ClassifierSettings
from carso.scenario.parser import names, parse
from carso.storage import files, tensor_files
from carso.training.loop import Quiet
from carso.training.train import train

IMAGES = {
    "convex-fashion": data.facts("fashion-mnist"),
    **dict.fromkeys(("wide-resnet", "resnet", "autoattack-resnet18"), data.facts("cifar10")),
}


@pytest.mark.parametrize("kind", NETWORK_KEYS)
def test_every_kind_is_built_and_has_the_layers_worth_reading(kind: str) -> None:
    settings = ClassifierSettings(kind=kind)
    if kind == "wide-resnet":
        settings = ClassifierSettings(depth=10, width=1)
    images: ImageFacts = IMAGES[kind]
    network = build(settings, images).eval()
    assert network(torch.rand(2, *images.image_shape)).shape == (2, len(images.classes))
    shapes = Representation(network, layers_of(settings)).shapes(images.image_shape)
    assert len(shapes) == len(layers_of(settings)) > 0


def test_the_table_of_kinds_is_that_of_the_scenarios() -> None:
    assert KINDS.keys() == NETWORK_KEYS.keys()
    for row in KNOWN.values():
        assert row.scenario in names()
        assert len(row.sha256) == 64


def test_a_network_normalises_as_it_is_told_and_else_as_the_data_set_says() -> None:
    images = data.facts("cifar10")
    for kind in ("wide-resnet", "resnet"):
        settings = ClassifierSettings(kind=kind, depth=10 if kind == "wide-resnet" else 20)
        network = build(settings, images)
        assert isinstance(network, WideResNet | SmallResNet)
        assert network.std.flatten().tolist() == pytest.approx(images.std)
        told = replace(settings, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
        network = build(told, images)
        assert isinstance(network, WideResNet | SmallResNet)
        assert network.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
        assert network.std.flatten().tolist() == pytest.approx([0.4, 0.5, 0.6])


def test_the_network_inside_an_installed_package_needs_no_download() -> None:
    network = carso.load_classifier("autoattack-resnet18")
    assert not network.training
    assert sum(p.numel() for p in network.parameters()) == 11_173_962
    weights = tensor_files.load(installed_file("autoattack-resnet18"))
    assert torch.equal(network.state_dict()["linear.weight"], weights["linear.weight"])


def test_it_labels_images_that_it_was_not_trained_on() -> None:
    try:
        images, labels = data.load("cifar10").test.balanced(50).batch(slice(None))
    except DataNotFoundError as error:
        pytest.skip(str(error))
    with torch.no_grad():
        answers = carso.load_classifier("autoattack-resnet18")(images).argmax(dim=1)
    assert (answers == labels).sum() >= 43  # of 95 in a hundred


def test_a_spoiled_file_of_an_installed_network_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = replace(KNOWN["autoattack-resnet18"], sha256="0" * 64)
    monkeypatch.setitem(KNOWN, "autoattack-resnet18", row)
    with pytest.raises(CarsoError, match="reinstall pyautoattack"):
        load_classifier("autoattack-resnet18")


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file like those that are published: names of a wrapper, under a key, with more beside."""
    network = SmallResNet(20, classes=10)
    state = {f"module.{name}": value for name, value in network.state_dict().items()}
    path = tmp_path / "resnet20.th"
    torch.save({"best_prec1": 91.7, "state_dict": state}, path)
    row = replace(KNOWN["akamaster-resnet20"], sha256=files.sha256(path))
    monkeypatch.setitem(KNOWN, "akamaster-resnet20", row)
    return path


def test_a_known_file_brings_its_layout_and_how_it_normalises(published: Path) -> None:
    network = load_classifier(published)
    assert isinstance(network, SmallResNet)
    assert network.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    stored = torch.load(published, weights_only=True)["state_dict"]
    assert torch.equal(network.linear.weight, stored["module.linear.weight"])


def test_a_scenario_takes_the_settings_of_a_known_file(published: Path) -> None:
    known_settings = KNOWN["akamaster-resnet20"].settings
    wide = ClassifierSettings(depth=10, width=2, layers=("layer.0.block.0.conv_0",))
    assert settled(wide, published) == known_settings
    own = ClassifierSettings(kind="resnet", depth=20, layers=("conv1",))
    assert settled(own, published) == replace(known_settings, layers=("conv1",))
    assert settled(wide, None) == wide
    published.write_bytes(published.read_bytes() + b" ")
    assert settled(wide, published) == wide


def test_what_is_not_known_is_one_line_that_says_what_is(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "other.pt")
    for name in ("resnet20", str(tmp_path / "other.pt")):
        with pytest.raises(CarsoError, match=r"autoattack-resnet18.*ResNet-20") as error:
            load_classifier(name)
        assert "\n" not in str(error.value)


def test_a_known_classifier_is_evaluated_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On the images and at the eps that it was trained for; a file by its content."""
    network = build(ClassifierSettings(kind="convex-fashion"), IMAGES["convex-fashion"])
    path = tmp_path / "convex.pth"
    torch.save(network.state_dict(), path)
    row: KnownFile = replace(KNOWN["convex-fashion"], sha256=files.sha256(path))
    monkeypatch.setitem(known_files.KNOWN, "convex-fashion", row)
    assert known(str(path)) == (row, path)
    out = tmp_path / "record.json"
    words = ("--images", "10", "--suite", "quick", "--out", out)
    code, _, err = run(capsys, "evaluate", path, "--bare", *words)
    assert code == 0, err
    record = files.read_json(out)
    assert record["threat"]["eps"] == 0.1
    assert record["data"]["set"].startswith("fashion")
    assert record["scenario"]["classifier"]["kind"] == "convex-fashion"
    fails(capsys, "evaluate", path, *words, says=["is a classifier, not a defence", "--bare"])


def test_a_file_that_changes_the_path_keeps_what_it_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules that it imports later, when the network first runs, are found there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "own.py"
    path.write_text(
        "import sys\nfrom torch import nn\n"
        f"sys.path.insert(0, {str(tmp_path / 'elsewhere')!r})\n"
        "def classifier():\n    return nn.Linear(2, 2)\n"
    )
    before = list(sys.path)
    assert isinstance(of_user(path), nn.Module)
    assert sys.path == [str(tmp_path / "elsewhere"), *before]


def test_a_file_that_replaces_the_path_is_let_do_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "own.py"
    path.write_text(
        "import sys\nfrom torch import nn\nsys.path[:] = sys.path[1:]\n"
        "def classifier():\n    return nn.Linear(2, 2)\n"
    )
    before = list(sys.path)
    of_user(path)
    assert sys.path == before


RETROFIT = """
name = "retrofit"
summary = "as small as it gets"
[data]
set = "cifar10"
[threat]
eps = 0.03
[classifier]
{network}
[purifier]
condition = 8
latent = 8
decoder_width = 16
[hardening]
epochs = 1
batch_size = 8
attack_steps = 1
attack_step_size = 0.02
validation_images = 2
samples = 2
"""


@pytest.mark.parametrize("network", ["", 'kind = "autoattack-resnet18"\nlayers = ["conv1"]'])
def test_a_known_classifier_is_defended_and_loads_again(
    network: str, published: Path, tmp_path: Path
) -> None:
    """With its own mean and std, not those of the images; the installed one without a file."""
    images = torch.randint(256, (30, 3, 32, 32), dtype=torch.uint8)
    few = data.from_tensors(images, torch.arange(10).repeat(3))
    given = None if network else published
    scenario = parse(RETROFIT.format(network=network), source="retrofit.toml")
    folder, cpu = tmp_path / "run", torch.device("cpu")
    trained = train(scenario, few, folder, device=cpu, display=Quiet(), given=given)
    loaded = carso.load(folder)
    original = load_classifier(given or "autoattack-resnet18")
    pixels = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(loaded.classifier(pixels), original(pixels))
    assert loaded.purifier.layers == (("conv1",) if network else ("conv1", "layer1", "layer2"))
    assert trained.purifier.layers == loaded.purifier.layers
    again = train(scenario, few, folder, device=cpu, display=Quiet(), given=given)
    assert torch.equal(
        next(iter(again.purifier.state_dict().values())),
        next(iter(trained.purifier.state_dict().values())),
    )
