"""Weights of a folder are those that the JSON beside them describes, or they are refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import carso
from carso.defence.shipped import SHIPPED
from carso.errors import CarsoError
from carso.storage import files, tensor_files


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(SHIPPED / name, folder / name))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("fashion", "classifier"),
        ("fashion", "purifier"),
        ("fashion-retrofit", "classifier"),
        ("fashion-retrofit", "hardening"),
    ],
)
def test_other_weights_than_described_are_refused(tmp_path: Path, name: str, file: str) -> None:
    """Whole and readable, with a checksum of its own that is right: but not the file of the run."""
    folder = copied(name, tmp_path)
    path = folder / f"{file}.safetensors"
    tensors = {key: torch.zeros_like(value) for key, value in tensor_files.load(path).items()}
    tensor_files.save(path, tensors)
    with pytest.raises(CarsoError, match=f"{file}.json beside it describes.*SHA-256") as caught:
        carso.load(folder)
    assert "\n" not in str(caught.value)


def test_weights_without_a_note_are_taken(tmp_path: Path) -> None:
    folder = copied("fashion", tmp_path)
    (folder / "classifier.json").unlink()
    (folder / "purifier.json").unlink()
    carso.load(folder)


@pytest.mark.parametrize("content", ["[]", "{}", '{"sha256": 3}', "no JSON"])
def test_a_note_that_says_nothing_is_refused(tmp_path: Path, content: str) -> None:
    folder = copied("fashion", tmp_path)
    (folder / "purifier.json").write_text(content)
    with pytest.raises(CarsoError, match=r"purifier\.json"):
        carso.load(folder)


def test_an_edited_description_is_refused(tmp_path: Path) -> None:
    folder = copied("fashion", tmp_path)
    path = folder / "defence.json"
    files.write_json(path, files.read_json(path))
    carso.load(folder)
    table = json.loads(path.read_text())
    table["scenario"]["defence"]["samples"] = 1
    path.write_text(json.dumps(table))
    with pytest.raises(CarsoError, match="damaged or was edited"):
        carso.load(folder)


def without_classifier(folder: Path) -> Path:
    """A defence whose classifier somebody else has."""
    found = copied("fashion-retrofit-unet", folder)
    (found / "classifier.safetensors").unlink()
    note = files.read_json(found / "classifier.json")
    note["source"] = {"name": "theirs.pt", "sha256": "0" * 64}
    files.write_json(found / "classifier.json", note)
    return found


def test_a_classifier_that_is_not_in_the_folder_is_given_by_who_has_it(tmp_path: Path) -> None:
    whole = carso.load("fashion-retrofit-unet", seed=0)
    folder, images = without_classifier(tmp_path), torch.rand(4, 1, 28, 28)
    with pytest.raises(CarsoError, match=r"fetch theirs\.pt and give it, by --classifier FILE"):
        carso.load(folder)
    loaded = carso.load(folder, classifier=whole.classifier, seed=0)
    torch.testing.assert_close(loaded(images), whole(images), rtol=0, atol=0)


def test_another_classifier_is_not_taken_for_it(tmp_path: Path) -> None:
    other = carso.load("fashion").classifier
    with pytest.raises(CarsoError, match=r"other weights than .* come from theirs\.pt"):
        carso.load(without_classifier(tmp_path), classifier=other)


def test_what_is_known_of_a_classifier_elsewhere_says_where_it_is_published() -> None:
    with pytest.raises(CarsoError, match=r"fetch models/fashion_mnist\.pth of locuslab/convex_adv"):
        carso.load("convex-anchored-unet")
    with pytest.raises(CarsoError, match=r"fetch \S+12fca82f\.th of akamaster/pytorch_resnet"):
        carso.load("cifar10-resnet20-retrofit")
