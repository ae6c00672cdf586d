"""A model whose scores have no gradient is attacked by queries, and the record says so."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso import data
from carso.errors import CarsoError
from carso.evaluation.record import read


class Bright(nn.Module):
    """Two classes: dark and bright. `how` cuts the gradient."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, images: Tensor) -> Tensor:
        if self.how == "no_grad":
            with torch.no_grad():
                return self.scores(images)
        if self.how == "inference":
            with torch.inference_mode():
                return self.scores(images)
        label = self.scores(images).argmax(dim=1)
        return label if self.how == "labels" else nn.functional.one_hot(label, 2)

    def scores(self, images: Tensor) -> Tensor:
        mean = images.mean(dim=(1, 2, 3))
        return torch.stack([0.5 - mean, mean - 0.5], dim=1)


def evaluated(how: str, **settings: Any) -> dict[str, Any]:
    images = torch.cat([torch.full((2, 1, 4, 4), 0.45), torch.full((2, 1, 4, 4), 0.95)])
    labels = torch.tensor([0, 0, 1, 1])
    return carso.evaluate(Bright(how), images, labels, eps=0.1, **settings)


@pytest.mark.parametrize("how", ["no_grad", "inference", "one-hot", "labels"])
def test_it_is_asked_instead(how: str, tmp_path: Path) -> None:
    record = evaluated(how, suite="quick", out=tmp_path / "record.json")
    assert record["subject"]["gradients"] is False
    assert [attack["name"] for attack in record["attacks"]] == ["random-points", "square"]
    assert all(attack["black_box"] for attack in record["attacks"])
    assert record["accuracy"]["clean"]["value"] == 1
    assert record["accuracy"]["worst"]["value"] == 0.5  # the two that are near the border fall
    assert record["unreliable"]
    assert "no gradient" in record["verdict"]
    assert read(tmp_path / "record.json")["verdict"] == record["verdict"]


def test_attacks_that_follow_gradients_are_not_taken() -> None:
    with pytest.raises(CarsoError, match="have no gradient, which autoattack would follow"):
        evaluated("one-hot", attacks=["autoattack"])


def test_a_model_with_gradients_says_nothing_of_them() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    images, labels = torch.rand(2, 1, 4, 4), torch.tensor([0, 1])
    record = carso.evaluate(net, images, labels, eps=0.1, suite="quick")
    assert "gradients" not in record["subject"]


def test_a_scripted_classifier_is_evaluated() -> None:
    net = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(16, 4)))
    images, labels = torch.rand(2, 1, 4, 4), torch.tensor([0, 1])
    assert carso.evaluate(net, images, labels, eps=0.1, suite="quick")["data"]["count"] == 2


@pytest.mark.parametrize("how", ["no_grad", "inference", "one-hot"])
def test_no_purifier_is_trained_around_one(how: str) -> None:
    pixels = torch.arange(640).remainder(256).to(torch.uint8).view(40, 1, 4, 4)
    images = data.from_tensors(pixels, torch.arange(40) % 2)
    net = nn.Sequential(nn.Identity(), Bright(how))
    for train in (carso.fit, carso.harden):
        with pytest.raises(CarsoError, match="no gradient, and a purifier is trained by it"):
            train(net, images, layers=["0"], eps=0.1, check_accuracy=False)


def test_a_program_of_torch_export_is_one_line() -> None:
    images, labels = torch.rand(2, 1, 4, 4), torch.tensor([0, 1])
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    program = torch.export.export(net, (images,)).module()
    with pytest.raises(CarsoError, match=r"a program of torch\.export"):
        carso.evaluate(program, images, labels, eps=0.1)
    with pytest.raises(CarsoError, match=r"a program of torch\.export"):
        carso.certify(program, images, labels, sigma=0.1)
