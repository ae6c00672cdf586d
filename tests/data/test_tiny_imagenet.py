"""TinyImageNet in its official layout, and the cache of its decoded images."""

import tarfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from carso.data import DataError, decoded_cache, load
from carso.data.archives import extract
from carso.data.pictures import PictureFormat


def tiny_imagenet(root: Path) -> Path:
    """The official layout with two classes; one image is greyscale."""
    folder = root / "tiny-imagenet-200"
    for identifier in ("n02", "n01"):
        place = folder / "train" / identifier / "images"
        place.mkdir(parents=True)
        for number in range(3):
            mode = "L" if number == 1 else "RGB"
            Image.new(mode, (64, 64)).save(place / f"{identifier}_{number}.JPEG")
    (folder / "val" / "images").mkdir(parents=True)
    for number in range(2):
        Image.new("RGB", (64, 64), (255, 0, 0)).save(folder / f"val/images/val_{number}.JPEG")
    annotations = "val_0.JPEG\tn01\t0\t0\t9\t9\nval_1.JPEG\tn02\t0\t0\t9\t9\n"
    (folder / "val" / "val_annotations.txt").write_text(annotations)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    return folder


def test_tiny_imagenet_tests_on_the_official_validation_images(tmp_path: Path) -> None:
    folder = tiny_imagenet(tmp_path)
    data = load("tinyimagenet", tmp_path)
    assert data.image_shape == (3, 64, 64)
    assert data.classes == ("n02", "n01")
    assert data.test.labels.tolist() == [1, 0]
    assert (data.test.images[:, 0] > 250).all()
    assert data.train.labels.tolist() == [0, 0, 1, 1]
    assert data.validation.labels.tolist() == [0, 1]
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tcrane\n")
    assert load("tinyimagenet", tmp_path).classes == ("crane", "goldfish")
    (folder / "words.txt").write_text("n01\tcrane, bird\nn02\tcrane, machine\n")
    assert load("tinyimagenet", tmp_path).classes == ("crane (n02)", "crane (n01)")


def test_tiny_imagenet_damage_is_named(tmp_path: Path) -> None:
    folder = tiny_imagenet(tmp_path)
    annotations = folder / "val" / "val_annotations.txt"
    annotations.write_text("val_0.JPEG\tn09\t0\t0\t9\t9\n")
    with pytest.raises(DataError, match=r"val_annotations.txt, line 1: expected .* 'val_0.JPEG"):
        load("tinyimagenet", tmp_path)
    annotations.write_text("gone.JPEG\tn01\t0\t0\t9\t9\n")
    with pytest.raises(DataError, match=r"gone.JPEG: expected an intact image file"):
        load("tinyimagenet", tmp_path)
    (folder / "wnids.txt").write_text("n02\nn01\nn04\n")
    with pytest.raises(DataError, match="expected the JPEG images of class n04, found none"):
        load("tinyimagenet", tmp_path)


def test_decoded_images_are_kept_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_installed: Path
) -> None:
    monkeypatch.setattr(decoded_cache, "SHOW_PROGRESS_FROM", 1)
    decoded = []
    real = decoded_cache.decode

    def counted(paths: list[Path], expected: PictureFormat) -> torch.Tensor:
        decoded.append(len(paths))
        return real(paths, expected)

    monkeypatch.setattr(decoded_cache, "decode", counted)
    folder = tiny_imagenet(tmp_path)
    first = load("tinyimagenet", tmp_path)
    assert load("tinyimagenet", tmp_path).fingerprint == first.fingerprint
    assert decoded == [8]
    (kept,) = (nothing_installed / "decoded").iterdir()
    kept.write_bytes(b"damaged")
    assert load("tinyimagenet", tmp_path).fingerprint == first.fingerprint
    Image.new("RGB", (64, 64), (0, 9, 0)).save(folder / "val/images/val_0.JPEG")
    assert load("tinyimagenet", tmp_path).fingerprint != first.fingerprint
    assert decoded == [8, 8, 8]


@pytest.mark.shared
def test_the_shared_part_of_tiny_imagenet(shared_data: Path, tmp_path: Path) -> None:
    archive = shared_data / "tiny-imagenet-200-sample.tar"
    if not archive.is_file():
        pytest.skip(f"{archive} is not there")
    folder = tmp_path / "tiny-imagenet-200"
    extract(archive, folder, below=folder.name, keep=("train/", "val/", "wnids.txt"))
    with tarfile.open(archive) as tar:
        pictures = sum(name.endswith(".JPEG") for name in tar.getnames())
    data = load("tinyimagenet", tmp_path)
    assert len(data.classes) == 200
    assert (len(data.train), len(data.validation), len(data.test)) == (3_600, 400, 800)
    assert len(data.train) + len(data.validation) + len(data.test) == pictures
    assert data.test.labels.bincount().tolist() == [4] * 200
    images, _ = data.train.batch(slice(None))
    assert images.mean((0, 2, 3)).tolist() == pytest.approx(data.mean, abs=0.02)
