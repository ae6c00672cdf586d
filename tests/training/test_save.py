"""What `fit` and `harden` made is saved, and `carso.load` gives it back bit for bit."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso.data import ImageData
from carso.defence.on_disk import Deployed
from carso.errors import CarsoError
from carso.storage import files

SMALL = {"condition": 8, "latent": 4, "decoder_width": 8}


def images(bars: ImageData) -> Tensor:
    return bars.test.batch(slice(None))[0]


@pytest.fixture(scope="module")
def fitted(learnt: nn.Module, bars: ImageData) -> Deployed:
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 16, "steps": 1, **SMALL}
    network = copy.deepcopy(learnt)
    return carso.fit(network, bars, layers=["conv"], eps=0.1, samples=3, **settings)


@pytest.fixture(scope="module")
def hardened(learnt: nn.Module, bars: ImageData) -> Deployed:
    return carso.harden(
        copy.deepcopy(learnt), bars, layers=["conv"], eps=0.1, steps=1, epochs=1, batch_size=16,
        validation_images=8, samples=2, aggregation="anchored", kind="vae", **SMALL,
    )  # fmt: skip


def again(defence: Deployed, folder: Path, learnt: nn.Module) -> Deployed:
    empty = copy.deepcopy(learnt)
    for parameter in empty.parameters():
        parameter.data.zero_()  # its weights must come from the folder
    return carso.load(defence.save(folder), classifier=empty)


def test_what_was_fitted_comes_back(
    fitted: Deployed, learnt: nn.Module, bars: ImageData, tmp_path: Path
) -> None:
    found = again(fitted, tmp_path / "saved", learnt)
    fitted.seed(0)
    assert torch.equal(found(images(bars)), fitted(images(bars)))
    assert found.samples == 3
    assert found.classes == bars.classes
    assert found.hardened is False


def test_what_was_hardened_comes_back_with_its_anchor(
    hardened: Deployed, learnt: nn.Module, bars: ImageData, tmp_path: Path
) -> None:
    found = again(hardened, tmp_path / "saved", learnt)
    hardened.seed(0)
    assert torch.equal(found(images(bars)), hardened(images(bars)))
    assert (found.aggregation, found.anchor) == ("anchored", hardened.anchor)
    assert found.hardened is True


def test_what_was_hardened_from_what_was_fitted_keeps_its_kind(
    fitted: Deployed, learnt: nn.Module, bars: ImageData, tmp_path: Path
) -> None:
    """The scenario of hardening would build a U-Net."""
    given: dict[str, Any] = {"steps": 1, "epochs": 1, "batch_size": 16, "validation_images": 8}
    made = carso.harden(
        copy.deepcopy(learnt), bars, layers=["conv"], eps=0.1, start=fitted.purifier, **given
    )
    found = again(made, tmp_path / "saved", learnt)
    made.seed(0)
    assert torch.equal(found(images(bars)), made(images(bars)))
    assert type(found.purifier) is type(fitted.purifier)
    assert found.scenario.purifier.arguments()["condition"] == SMALL["condition"]


def test_a_purifier_that_the_settings_do_not_make_is_not_saved(
    fitted: Deployed, learnt: nn.Module, bars: ImageData, tmp_path: Path
) -> None:
    by_hand = copy.deepcopy(fitted.purifier)
    del by_hand.made_as  # type: ignore[attr-defined]
    given: dict[str, Any] = {"steps": 1, "epochs": 1, "batch_size": 16, "validation_images": 8}
    made = carso.harden(
        copy.deepcopy(learnt), bars, layers=["conv"], eps=0.1, start=by_hand, **given
    )
    with pytest.raises(CarsoError, match=r"by hand \(VAEPurifier\) .* cannot be saved: start from"):
        made.save(tmp_path / "saved")
    with pytest.raises(CarsoError, match=r"by hand \(VAEPurifier\) cannot be loaded from a folder"):
        carso.harden(
            copy.deepcopy(learnt), bars, layers=["conv"], eps=0.1, start=by_hand,
            out=tmp_path / "saved", **given,
        )  # fmt: skip
    assert not (tmp_path / "saved").exists()


def test_a_classifier_of_ones_own_is_asked_for(fitted: Deployed, tmp_path: Path) -> None:
    folder = fitted.save(tmp_path / "saved")
    with pytest.raises(CarsoError, match="class Sequential makes: give it"):
        carso.load(folder)


def test_what_is_in_the_folder_is_checked(
    fitted: Deployed, learnt: nn.Module, tmp_path: Path
) -> None:
    folder = fitted.save(tmp_path / "saved")
    (folder / "purifier.json").unlink()
    shutil.copy(folder / "classifier.json", folder / "purifier.json")
    with pytest.raises(CarsoError, match=r"purifier\.json beside it describes"):
        carso.load(folder, classifier=copy.deepcopy(learnt))


def test_a_network_that_carso_knows_need_not_be_given_again(tmp_path: Path) -> None:
    shipped = carso.load("fashion", samples=2)
    found = carso.load(shipped.save(tmp_path / "saved"))
    points = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    shipped.seed(0)
    assert torch.equal(found(points), shipped(points))
    assert found.samples == 2
    assert files.read_json(tmp_path / "saved" / "config.json")["code"] == ""


def test_a_failed_save_leaves_nothing(fitted: Deployed, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CarsoError, match="cannot write"):
        fitted.save(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
