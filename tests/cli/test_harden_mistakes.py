"""What goes wrong around a classifier of the user's own loses nothing and is said in one line."""

from pathlib import Path

import pytest
import torch
from PIL import Image

import carso
from carso import data
from carso.classifiers.brought import of_user
from carso.cli.main import app
from carso.data import ImageData
from carso.errors import CarsoError
from carso.randomness import generator
from carso.scenario.parser import parse
from carso.storage import files
from carso.training.loop import Quiet
from carso.training.train import train

SCENARIO = """
name = "mini"
summary = "as small as it gets"
[data]
set = "fashion-embedded"
[threat]
eps = 0.1
[classifier]
layers = ["0"]
[purifier]
condition = 8
latent = 8
decoder_width = 16
[hardening]
epochs = 1
batch_size = 8
attack_steps = 1
attack_step_size = 0.1
validation_images = 2
"""
NETWORK = """\
from torch import nn

def classifier():
    return nn.Sequential(
        nn.Conv2d({channels}, 4, 4, stride=4), nn.SiLU(), nn.Flatten(), nn.Linear(196, {classes})
    )
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageData:
    """Two classes of ten images."""
    folder = tmp_path_factory.mktemp("photos")
    images = data.load("fashion-embedded").train.balanced(100)
    for number, (image, label) in enumerate(zip(images.images, images.labels, strict=True)):
        if int(label) < 2:
            (folder / str(int(label))).mkdir(exist_ok=True)
            Image.fromarray(image[0].numpy()).save(folder / str(int(label)) / f"{number:03d}.png")
    return data.load(str(folder))


def harden(photos: ImageData, network: Path, folder: Path) -> carso.Carso:
    scenario = parse(SCENARIO, source="mini.toml")
    return train(
        scenario, photos, folder, device=torch.device("cpu"), display=Quiet(), given=network
    )


def written(folder: Path, *, channels: int = 1, classes: int = 2) -> Path:
    path = folder / "own.py"
    path.write_text(NETWORK.format(channels=channels, classes=classes))
    return path


def test_a_file_that_makes_other_weights_each_time_spoils_no_run(
    photos: ImageData, tmp_path: Path
) -> None:
    """Its text is the same, so that only the weights tell the two runs apart."""
    network = written(tmp_path)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        harden(photos, network, tmp_path / "run")
        before = files.sha256(tmp_path / "run" / "classifier.safetensors")
        torch.manual_seed(2)
        with pytest.raises(CarsoError, match="classifier"):
            harden(photos, network, tmp_path / "run")
    assert files.sha256(tmp_path / "run" / "classifier.safetensors") == before


SEEDED = """\
import torch
from torch import nn

def classifier():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 4, 4, stride=4), nn.SiLU(), nn.Flatten(), nn.Linear(196, 2)
        )
    return network
"""


def test_a_comment_in_the_users_file_is_no_other_classifier(
    photos: ImageData, tmp_path: Path
) -> None:
    path = tmp_path / "own.py"
    path.write_text(SEEDED)
    harden(photos, path, tmp_path / "run")
    kept = files.sha256(tmp_path / "run" / "hardening.safetensors")
    path.write_text(f"# The same network.\n{SEEDED}")
    harden(photos, path, tmp_path / "run")
    assert files.sha256(tmp_path / "run" / "hardening.safetensors") == kept
    # As an older revision has it: a hash of the text, whatever that was.
    description = files.read_json(tmp_path / "run" / "defence.json")
    del description["answers"]
    files.write_json(tmp_path / "run" / "defence.json", description | {"classifier": "0" * 64})
    harden(photos, path, tmp_path / "run")
    for other in (
        SEEDED.replace("manual_seed(0)", "manual_seed(1)"),
        SEEDED.replace("SiLU", "ReLU"),
    ):
        path.write_text(other)
        with pytest.raises(CarsoError, match=r"\(the classifier changed\)"):
            harden(photos, path, tmp_path / "run")


def test_a_network_for_other_images_is_one_clear_line(photos: ImageData, tmp_path: Path) -> None:
    with pytest.raises(CarsoError) as error:
        harden(photos, written(tmp_path, channels=3), tmp_path / "run")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("classes", [1, 5])
def test_a_network_of_other_classes_is_refused(
    classes: int, photos: ImageData, tmp_path: Path
) -> None:
    """Too few fail inside a loss, too many only in `carso predict`."""
    with pytest.raises(CarsoError, match="class"):
        harden(photos, written(tmp_path, classes=classes), tmp_path / "run")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return images, images", "a tensor of logits, got tuple"),
        ("raise ValueError('only squares\\nplease')", r"takes no images .*: only squares$"),
        ("raise KeyError", r"takes no images .*: KeyError$"),
    ],
)
def test_a_network_that_is_no_classifier_of_these_images_is_refused(
    body: str, says: str, photos: ImageData, tmp_path: Path
) -> None:
    path = tmp_path / "own.py"
    lines = [
        "from torch import nn",
        "class Odd(nn.Sequential):",
        "    def forward(self, images):",
        "        images = super().forward(images)",
        f"        {body}",
        "def classifier():",
        "    return Odd(nn.Conv2d(1, 4, 4, stride=4), nn.Flatten())",
    ]
    path.write_text("\n".join(lines))
    with pytest.raises(CarsoError, match=says):
        harden(photos, path, tmp_path / "run")


def test_a_key_error_of_the_users_own_code_is_not_a_missing_function(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("def classifier():\n    return {}['weights']\n")
    with pytest.raises(CarsoError, match=r"own\.py failed: KeyError: 'weights'"):
        of_user(path)


def test_an_error_of_many_lines_in_the_users_code_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    code = "from torch import nn\ndef classifier():\n    nn.Linear(2, 2).load_state_dict({})\n"
    path.write_text(code)
    with pytest.raises(CarsoError, match="RuntimeError") as error:
        of_user(path)
    assert "\n" not in str(error.value)


def test_no_epochs_at_all_are_refused(photos: ImageData, tmp_path: Path) -> None:
    scenario = tmp_path / "mini.toml"
    scenario.write_text(SCENARIO.replace("fashion-embedded", photos.origin))
    words = ["harden", str(scenario), "--classifier", str(written(tmp_path)), "--layers", "0"]
    words += ["--run", str(tmp_path / "run"), "--epochs", "0"]
    with pytest.raises(CarsoError, match="epochs"):
        app(words, standalone_mode=False)


def test_the_defence_that_harden_gives_has_the_seed_that_was_asked_for(
    photos: ImageData, tmp_path: Path
) -> None:
    """As with `fit`."""
    defence = carso.harden(
        of_user(written(tmp_path)),
        photos,
        layers=["0"],
        eps=0.1,
        epochs=1,
        steps=1,
        widths=(4, 6),
        blocks=(1, 1),
        validation_images=2,
        seed=4,
    )
    assert torch.equal(defence.noise.get_state(), generator(4, "defence").get_state())


def test_every_call_makes_a_network_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path)
    first, second = of_user(path), of_user(path)
    assert first is not second
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert next(second.parameters()).abs().sum() > 0
