"""The set shipped with the package."""

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from carso.data import DATA_SETS, DataError, ImageData, Split, load
from carso.data.idx import TEST, TRAINING, read_idx_split, write_idx

REPOSITORY = Path(__file__).parents[2]
EMBEDDED = REPOSITORY / "carso" / "data" / "embedded" / "fashion"


@pytest.fixture(scope="module")
def data() -> ImageData:
    return load("fashion-embedded")


def rows(split: Split) -> set[bytes]:
    return {image.numpy().tobytes() for image in split.images}


def test_counts_shapes_and_names(data: ImageData) -> None:
    assert (len(data.train), len(data.validation), len(data.test)) == (9_000, 1_000, 2_000)
    assert data.image_shape == (1, 28, 28)
    assert len(data.classes) == 10
    assert data.classes[9] == "Ankle boot"
    assert data.origin == "embedded"


def test_every_split_is_balanced(data: ImageData) -> None:
    for split, per_class in ((data.train, 900), (data.validation, 100), (data.test, 200)):
        assert split.labels.bincount().tolist() == [per_class] * 10


def test_splits_share_no_image(data: ImageData) -> None:
    train, validation, test = rows(data.train), rows(data.validation), rows(data.test)
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_pixels_use_the_whole_range_and_fit_the_statistics(data: ImageData) -> None:
    images, _ = data.train.batch(slice(None))
    assert images.min() == 0
    assert images.max() == 1
    assert images.mean().item() == pytest.approx(data.mean[0], abs=2e-3)
    assert images.std().item() == pytest.approx(data.std[0], abs=2e-3)


def test_the_fingerprint_is_the_one_in_the_table(data: ImageData) -> None:
    assert data.fingerprint == DATA_SETS["fashion-embedded"].fingerprint


def test_a_damaged_installation_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "fashion"
    shutil.copytree(EMBEDDED, damaged)
    split = read_idx_split(damaged, TEST, classes=10)
    split.images[0, 0, 14, 14] ^= 1
    write_idx(damaged / f"{TEST[0]}.gz", split.images.squeeze(1))
    row = replace(DATA_SETS["fashion-embedded"], shipped=damaged)
    monkeypatch.setitem(DATA_SETS, "fashion-embedded", row)
    with pytest.raises(DataError, match="expected fashion-embedded with fingerprint"):
        load("fashion-embedded")


def test_a_part_is_not_taken_for_the_whole() -> None:
    with pytest.raises(DataError, match=r"expected fashion-mnist, found .* fashion-embedded"):
        load("fashion-mnist", EMBEDDED)


def test_the_package_carries_the_licence() -> None:
    assert "Zalando SE" in (EMBEDDED / "README.md").read_text(encoding="utf-8")


def test_the_script_chooses_the_documented_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a made-up full set whose first pixels spell each image's number within its class."""
    path = REPOSITORY / "scripts" / "make_embedded_fashion.py"
    monkeypatch.syspath_prepend(str(path.parent))
    specification = importlib.util.spec_from_file_location("make_embedded_fashion", path)
    assert specification is not None
    assert specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)

    source, output = tmp_path / "source", tmp_path / "output"
    source.mkdir()
    for names, per_class in ((TRAINING, 6_000), (TEST, 1_000)):
        number = torch.arange(per_class).repeat_interleave(10)
        images = torch.stack([number // 256, number % 256], dim=1).to(torch.uint8)
        write_idx(source / names[0], images.view(-1, 1, 2))
        write_idx(source / names[1], torch.arange(10).repeat(per_class))
    monkeypatch.setattr(sys, "argv", ["make", str(source), str(output)])
    script.main()

    for names, expected in (
        (TRAINING, [*range(900), *range(5_400, 5_500)]),
        (TEST, [*range(200)]),
    ):
        split = read_idx_split(output, names, classes=10)
        numbers = split.images[:, 0, 0, 0].int() * 256 + split.images[:, 0, 0, 1]
        for label in range(10):
            assert numbers[split.labels == label].tolist() == expected
