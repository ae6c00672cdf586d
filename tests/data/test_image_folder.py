"""Anyone's images in class folders."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from carso.data import DataError, load


def write_images(folder: Path, count: int, *, mode: str = "RGB", suffix: str = "png") -> None:
    """Random images of 6x4 pixels; the first pixel of each is its number."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(count)
    for number in range(count):
        pixels = generator.integers(256, size=(4, 6, len(mode)), dtype=np.uint8)
        pixels[0, 0] = number
        Image.fromarray(pixels.squeeze()).save(folder / f"{number:03}.{suffix}")


def first_pixels(images: torch.Tensor) -> list[int]:
    return [int(value) for value in images[:, 0, 0, 0]]


@pytest.mark.parametrize("prefix", ["folder:", ""])
def test_class_folders_are_split_80_10_10(tmp_path: Path, prefix: str) -> None:
    for name in ("cat", "dog"):
        write_images(tmp_path / name, 20)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    data = load(f"{prefix}{tmp_path}")
    assert data.name == f"folder:{tmp_path}"
    assert data.classes == ("cat", "dog")
    assert data.image_shape == (3, 4, 6)
    for split, expected in (
        (data.train, range(16)),
        (data.validation, range(16, 18)),
        (data.test, range(18, 20)),
    ):
        assert first_pixels(split.images) == [*expected, *expected]
        assert split.labels.bincount().tolist() == [len(expected)] * 2
    assert data.fingerprint == load(f"folder:{tmp_path}").fingerprint


@pytest.mark.parametrize(
    ("parts", "sizes"),
    [
        (("train",), (32, 4, 4)),
        (("train", "test"), (36, 4, 6)),
        (("train", "val"), (36, 4, 6)),
        (("train", "val", "test"), (40, 6, 6)),
    ],
)
def test_the_owner_of_a_folder_may_split_it(
    tmp_path: Path, parts: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    for part in parts:
        for name in ("cat", "dog"):
            write_images(tmp_path / part / name, 20 if part == "train" else 3)
    data = load(f"folder:{tmp_path}")
    assert (len(data.train), len(data.validation), len(data.test)) == sizes


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for name in ("bicycle", "train"):
        write_images(tmp_path / name, 4)
    assert load(f"folder:{tmp_path}").classes == ("bicycle", "train")


def test_mean_and_deviation_are_of_the_training_images(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_images(tmp_path / name, 10)
    data = load(f"folder:{tmp_path}")
    images, _ = data.train.batch(slice(None))
    assert data.mean == pytest.approx(images.double().mean((0, 2, 3)).tolist())
    assert data.std == pytest.approx(images.double().std((0, 2, 3), unbiased=False).tolist())


@pytest.mark.parametrize(("grey", "colour", "channels"), [(9, 3, 1), (3, 9, 3), (6, 6, 3)])
def test_the_more_common_kind_of_image_decides(
    tmp_path: Path, grey: int, colour: int, channels: int
) -> None:
    write_images(tmp_path / "cat", grey, mode="L")
    write_images(tmp_path / "dog", colour)
    assert load(f"folder:{tmp_path}").image_shape == (channels, 4, 6)


def test_an_image_of_another_size_is_named(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_images(tmp_path / name, 4)
    Image.new("RGB", (7, 4)).save(tmp_path / "dog" / "001.png")
    with pytest.raises(DataError, match=r"dog/001.png: expected 6x4 pixels .* found 7x4"):
        load(f"folder:{tmp_path}")


@pytest.mark.parametrize("kept", [0, 20, 120])
def test_a_damaged_image_is_named(tmp_path: Path, kept: int) -> None:
    for name in ("cat", "dog"):
        write_images(tmp_path / name, 4)
    path = tmp_path / "dog" / "002.png"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"dog/002.png: expected an intact image file") as caught:
        load(f"folder:{tmp_path}")
    assert "\n" not in str(caught.value)


def test_sixteen_bits_are_refused_rather_than_clipped(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_images(tmp_path / name, 4)
    Image.fromarray(np.full((4, 6), 40_000, np.uint16)).save(tmp_path / "dog" / "003.png")
    with pytest.raises(DataError, match="expected 8 bits a channel, found mode I;16"):
        load(f"folder:{tmp_path}")


def test_folders_that_cannot_be_a_set_are_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: expected a folder of class folders"):
        load(f"folder:{tmp_path / 'absent'}")
    write_images(tmp_path / "cat", 4)
    with pytest.raises(DataError, match="two or more classes, found 1"):
        load(f"folder:{tmp_path}")
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="dog: expected image files directly inside"):
        load(f"folder:{tmp_path}")
    write_images(tmp_path / "dog", 2)
    with pytest.raises(DataError, match="at least 3 training images of each class"):
        load(f"folder:{tmp_path}")


def test_test_images_of_an_unknown_class_are_refused(tmp_path: Path) -> None:
    for place in ("train/cat", "train/dog", "test/cat", "test/wolf"):
        write_images(tmp_path / place, 4)
    with pytest.raises(DataError, match="test/wolf: expected only the classes of the training"):
        load(f"folder:{tmp_path}")


def test_images_without_contrast_are_refused(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("L", (3, 3), 7).save(tmp_path / name / f"{number}.png")
    with pytest.raises(DataError, match="without contrast"):
        load(f"folder:{tmp_path}")
