"""layers = "auto": the earliest activation of each resolution, for any module."""

import json
from pathlib import Path

import pytest
import torch
from support import fails, run
from torch import Tensor, nn

from carso.classifiers.resnet import SmallResNet
from carso.classifiers.wide_resnet import WideResNet
from carso.defence.layers import chosen_layers, earliest, layers_in
from carso.errors import CarsoError
from carso.scenario import parser
from carso.scenario.tables import as_table


class Normalised(nn.Module):
    """Shows the image as it is, and has nothing to learn."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.5) / 0.2


def test_the_first_of_each_resolution_is_taken() -> None:
    network = nn.Sequential(
        Normalised(),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 6, 3, stride=2, padding=1),
        nn.SiLU(),
        nn.Conv2d(6, 6, 3, padding=1),
        nn.Flatten(),
        nn.Linear(384, 2),
    )
    assert chosen_layers(network, (1, 16, 16), "auto") == ("1", "3")
    assert chosen_layers(network, (1, 16, 16), ["5"]) == ("5",)
    assert not any(module._forward_hooks for module in network.modules())


def test_on_networks_that_ship() -> None:
    wide = WideResNet(10, 1, classes=10, channels=1, strides=(2, 2, 2))
    assert chosen_layers(wide, (1, 28, 28), "auto")[0] == "init_conv"
    shapes = {layer.name: layer.shape for layer in layers_in(wide, (1, 28, 28))}
    taken = chosen_layers(wide, (1, 28, 28), "auto")
    assert [shapes[name][1:] for name in taken] == [(28, 28), (14, 14), (7, 7), (4, 4)]
    small = SmallResNet(20, classes=10, channels=3, mean=(0.5,) * 3, std=(0.2,) * 3)
    assert chosen_layers(small, (3, 32, 32), "auto")[0] == "conv1"


def test_none_is_coarser_than_an_eighth_of_the_image_and_tokens_are_maps() -> None:
    pools = [nn.Conv2d(1, 1, 2, stride=2) for _ in range(5)]
    network = nn.Sequential(*pools)
    assert chosen_layers(network, (1, 64, 64), "auto") == ("0", "1", "2")

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(1, 6, 4, stride=4)
            self.mix = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            patches = self.patch(x).flatten(2).transpose(1, 2)
            first = torch.zeros_like(patches[:, :1])
            return self.mix(torch.cat([first, patches], dim=1))  # type: ignore[no-any-return]

    found = {layer.name: layer.resolution for layer in layers_in(Tokens(), (1, 16, 16))}
    assert found == {"patch": (4, 4), "mix": (4, 4)}


def test_a_layer_that_runs_twice_is_left_out() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.again, self.once = nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.once(self.again(self.again(x)))  # type: ignore[no-any-return]

    assert chosen_layers(Twice(), (1, 8, 8), "auto") == ("once",)


def test_a_classifier_without_maps_must_be_told() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with pytest.raises(CarsoError, match="name its layers"):
        earliest(layers_in(network, (1, 8, 8)), (1, 8, 8))


def test_a_scenario_may_say_auto() -> None:
    text = Path(parser.__file__).with_name("scenarios") / "fashion-retrofit-unet.toml"
    lines = [
        'layers = "auto"' if line.startswith("layers = ") else line
        for line in text.read_text().splitlines()
    ]
    scenario = parser.parse("\n".join(lines), source="own.toml")
    assert scenario.classifier.layers == ("auto",)
    assert parser.from_table(as_table(scenario), source="a record") == scenario


OWN = """\
from torch import nn

def classifier():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(1024, 2))
"""


def test_the_command_lists_layers_with_sizes_and_what_would_be_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my.py"
    path.write_text(OWN)
    code, out, err = run(capsys, "layers", path, "--shape", "3,16,16")
    assert not code, err
    assert "4x16x16" in out
    assert out.splitlines()[-1] == "--layers 0"
    code, out, err = run(capsys, "layers", path, "--shape", "3,16,16", "--json")
    rows = json.loads(out)["layers"]
    assert [(row["layer"], row["auto"]) for row in rows] == [
        ("0", True),
        ("1", False),
        ("2", False),
    ]
    fails(capsys, "layers", path, "--shape", "16", says=["C,H,W"])
    fails(capsys, "layers", tmp_path / "none.py", says=["there is no file"])
