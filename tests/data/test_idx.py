"""IDX files: what is written is read back, and damage is named."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from carso.data import DATA_SETS, DataError, Split, load
from carso.data.idx import read_idx, write_idx
from carso.data.sets import idx_layout

MakeFolder = Callable[..., tuple[Path, Split, Split]]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_set_of_idx_files_is_read_back(idx_folder: MakeFolder, suffix: str) -> None:
    folder, training, test = idx_folder(suffix=suffix)
    data = load("mnist", folder.parent)
    assert data.origin == str(folder)
    assert data.image_shape == (1, 6, 5)
    assert torch.equal(data.test.images, test.images)
    assert len(data.train) + len(data.validation) == len(training)


def test_a_set_may_have_more_than_ten_classes(
    idx_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = tuple("abcdefghijklmnopqrstuvwxyz")
    layout = idx_layout("letters", letters)
    row = replace(DATA_SETS["mnist"], classes=letters, layouts=(layout,), fingerprint=None)
    monkeypatch.setitem(DATA_SETS, "letters", row)
    folder, _, test = idx_folder("letters", classes=26)
    data = load("letters", folder.parent)
    assert data.classes == letters
    assert torch.equal(data.test.labels, test.labels)
    with pytest.raises(DataError, match="expected labels 0 to 9"):
        load("mnist", folder)


def test_the_same_tensor_gives_the_same_bytes(tmp_path: Path) -> None:
    values = torch.arange(24, dtype=torch.uint8).view(2, 3, 4)
    write_idx(tmp_path / "one.gz", values)
    write_idx(tmp_path / "two.gz", values)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert torch.equal(read_idx(tmp_path / "one.gz", dimensions=3), values)


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    path = tmp_path / "whole"
    write_idx(path, torch.arange(60, dtype=torch.uint8).view(3, 4, 5))
    return path.read_bytes()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda whole: b"", "found an empty file"),
        (lambda whole: b"\x00\x00\x08\x01" + whole[4:], "magic number 00000803, found 00000801"),
        (lambda whole: b"PNG!" + whole[4:], "magic number 00000803, found 504e4721"),
        (lambda whole: whole[:10], "truncated within the header"),
        (lambda whole: whole[:-1], r"expected 60 bytes for shape \(3, 4, 5\), found only 59"),
        (lambda whole: whole + b"\x00", "expected 60 bytes .* found more"),
        (lambda whole: whole[:4] + bytes(12), "at least one element"),
        (lambda whole: whole[:4] + b"\xff" * 12 + whole[16:], "4294967295"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_damage_is_named(
    tmp_path: Path, whole: bytes, damage: Callable[[bytes], bytes], message: str, suffix: str
) -> None:
    path = tmp_path / f"damaged{suffix}"
    content = damage(whole)
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_gzip_stream_is_named(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    write_idx(path, torch.randint(256, (9, 20, 20), dtype=torch.uint8))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"images.gz: the gzip stream is truncated"):
        read_idx(path, dimensions=3)


def test_flipped_bits_in_a_gzip_stream_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    write_idx(path, torch.randint(256, (9, 20, 20), dtype=torch.uint8))
    content = bytearray(path.read_bytes())
    content[-6] ^= 0xFF  # within the checksum at the end
    path.write_bytes(content)
    with pytest.raises(DataError, match="intact gzip file"):
        read_idx(path, dimensions=3)


def test_something_else_called_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="intact gzip file"):
        read_idx(path, dimensions=3)


def test_as_many_labels_as_images_are_expected(idx_folder: MakeFolder) -> None:
    folder, training, _ = idx_folder()
    write_idx(folder / "train-labels-idx1-ubyte.gz", training.labels[:-3])
    with pytest.raises(DataError, match=r"each of the 200 images .* found 197"):
        load("mnist", folder)


def test_a_label_without_a_class_is_refused(idx_folder: MakeFolder) -> None:
    folder, training, _ = idx_folder()
    labels = training.labels.clone()
    labels[4] = 10
    write_idx(folder / "train-labels-idx1-ubyte.gz", labels)
    with pytest.raises(DataError, match="labels 0 to 9, found 10"):
        load("mnist", folder)
