"""CIFAR files, and pickles that try to do more than hold data."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from carso.data import DataError, Split, load
from carso.data.cifar import CIFAR10_TEST, CIFAR10_TRAINING, read_binary, read_pickle
from carso.data.restricted_pickle import read_pickled_dictionary

MakeSplit = Callable[..., Split]


def write_pickle(path: Path, split: Split, key: str = "labels", **changes: Any) -> None:
    content = {"data": split.images.flatten(1).numpy(), key: split.labels.tolist()} | changes
    path.write_bytes(pickle.dumps(content, protocol=2))


def write_binary(path: Path, split: Split) -> None:
    records = torch.cat([split.labels.to(torch.uint8)[:, None], split.images.flatten(1)], dim=1)
    path.write_bytes(records.numpy().tobytes())


@pytest.fixture
def batches(random_split: MakeSplit) -> dict[str, Split]:
    names = (*CIFAR10_TRAINING, CIFAR10_TEST)
    return {name: random_split(4 + n, shape=(3, 32, 32)) for n, name in enumerate(names)}


def test_both_versions_of_cifar10_hold_the_same(tmp_path: Path, batches: dict[str, Split]) -> None:
    for version in ("py", "bin"):
        (tmp_path / version / f"cifar-10-batches-{version}").mkdir(parents=True)
    for name, split in batches.items():
        write_pickle(tmp_path / "py" / "cifar-10-batches-py" / name, split)
        write_binary(tmp_path / "bin" / "cifar-10-batches-bin" / f"{name}.bin", split)
    python, binary = load("cifar10", tmp_path / "py"), load("cifar10", tmp_path / "bin")
    assert python.fingerprint == binary.fingerprint
    assert python.image_shape == (3, 32, 32)
    assert python.classes[0] == "airplane"
    assert torch.equal(python.test.images, batches[CIFAR10_TEST].images)
    assert len(python.train) + len(python.validation) == sum(range(4, 9)) * 10


def test_cifar100_names_its_classes(tmp_path: Path, random_split: MakeSplit) -> None:
    split = random_split(2, classes=100, shape=(3, 32, 32))
    names = [f"class {number}" for number in range(100)]
    write_pickle(tmp_path / "train", split, "fine_labels")
    write_pickle(tmp_path / "test", split, "fine_labels")
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol=2))
    data = load("cifar100", tmp_path)
    assert data.classes == tuple(names)
    assert len(data.train) == len(data.validation) == 100
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": names[:7]}))
    with pytest.raises(DataError, match="expected 100 names"):
        load("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "expected an array under 'data', found NoneType"),
        ({"data": np.zeros((40, 3072), np.float32)}, "expected 'data' as uint8"),
        ({"data": np.zeros((40, 3000), np.uint8)}, r"found uint8 \(40, 3000\)"),
        ({"labels": [0] * 39}, "expected 40 labels, one for each image, found 39"),
        ({"labels": [0] * 39 + [10]}, "expected labels 0 to 9, found 10"),
        ({"labels": [0] * 39 + [2**70]}, "expected labels 0 to 9"),
        ({"labels": [0.5] * 40}, "expected a list of whole numbers"),
    ],
)
def test_wrong_content_is_named(
    tmp_path: Path, random_split: MakeSplit, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "batch"
    write_pickle(path, random_split(4, shape=(3, 32, 32)), **changes)
    with pytest.raises(DataError, match=message) as caught:
        read_pickle(path, "labels", classes=10)
    assert str(path) in str(caught.value)


def test_a_column_major_array_reads_the_same(tmp_path: Path, random_split: MakeSplit) -> None:
    split = random_split(4, shape=(3, 32, 32))
    write_pickle(tmp_path / "batch", split, data=np.asfortranarray(split.images.flatten(1).numpy()))
    assert torch.equal(read_pickle(tmp_path / "batch", "labels", classes=10).images, split.images)


def test_strings_of_python_2_are_read(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"\x80\x02}U\x06labels]s.")
    assert read_pickled_dictionary(tmp_path / "old") == {"labels": []}


class RunsACommand:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_cannot_run_a_command(tmp_path: Path, protocol: int) -> None:
    witness = tmp_path / "witness"
    content = {"data": RunsACommand(f"touch {witness}"), "labels": [0]}
    (tmp_path / "batch").write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(DataError, match=rf"asks for {os.name}.system, which is refused"):
        read_pickle(tmp_path / "batch", "labels", classes=10)
    assert not witness.exists()


@pytest.mark.parametrize(
    "payload",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__class__\x93.",
        b"c_codecs\nencode\n(Vtext\nVrot13\ntR.",
    ],
)
def test_other_functions_are_refused_too(tmp_path: Path, payload: bytes) -> None:
    (tmp_path / "batch").write_bytes(payload)
    with pytest.raises(DataError, match="expected an intact CIFAR pickle"):
        read_pickled_dictionary(tmp_path / "batch")


@pytest.mark.parametrize("length", [0, 1, 100, 5_000])
def test_a_truncated_pickle_is_named(tmp_path: Path, random_split: MakeSplit, length: int) -> None:
    path = tmp_path / "batch"
    write_pickle(path, random_split(4, shape=(3, 32, 32)))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(DataError, match="expected an intact CIFAR pickle"):
        read_pickle(path, "labels", classes=10)


def test_a_truncated_binary_file_is_named(tmp_path: Path, random_split: MakeSplit) -> None:
    path = tmp_path / "batch.bin"
    write_binary(path, random_split(1, shape=(3, 32, 32)))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="whole number of 3073-byte images, found 30729 bytes"):
        read_binary(path)


@pytest.mark.shared
def test_the_shared_part_of_cifar100(shared_data: Path) -> None:
    data = load("cifar100", shared_data)
    assert (len(data.train), len(data.validation), len(data.test)) == (9_000, 1_000, 2_000)
    assert data.image_shape == (3, 32, 32)
    assert data.classes[:2] == ("apple", "aquarium_fish")
    for split in (data.train, data.validation, data.test):
        assert len(set(split.labels.bincount(minlength=100).tolist())) == 1
    images, _ = data.train.batch(slice(None))
    assert images.mean((0, 2, 3)).tolist() == pytest.approx(data.mean, abs=0.01)
    assert images.std((0, 2, 3)).tolist() == pytest.approx(data.std, abs=0.01)
