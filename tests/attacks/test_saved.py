"""Saved examples are looked up by their image, whatever the order, and not trusted."""

import hashlib
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from carso.attacks.attack import in_words
from carso.attacks.saved import (
    Examples,
    Saved,
    key,
    read_examples,
    refuse_other_tensors,
    saved,
    write_examples,
)
from carso.errors import CarsoError
from carso.storage import tensor_files
from carso.threats.l2 import L2
from carso.threats.linf import Linf

THREAT = Linf(eps=0.1)


def images(count: int = 5, seed: int = 0) -> Tensor:
    return 0.2 + 0.6 * torch.rand(count, 1, 4, 4, generator=Generator().manual_seed(seed))


def labels(count: int = 5) -> Tensor:
    return torch.arange(count)


def never(x: Tensor) -> Tensor:
    raise AssertionError("saved examples ask no model")


def attacked(attack: Saved, x: Tensor) -> Tensor:
    return attack(never, x, labels(len(x)), threat=THREAT, generator=Generator())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "worst.safetensors"
    tensors = {"images": images(), "labels": labels(), "examples": images() + 0.05}
    tensor_files.save(path, {**tensors, "eps": torch.tensor(0.1, dtype=torch.float64)})
    return path


def test_each_image_gets_its_own_example(file: Path) -> None:
    attack = saved(file)
    assert torch.equal(attacked(attack, images()), images() + 0.05)
    order = torch.tensor([3, 0, 3])
    assert torch.equal(attacked(attack, images()[order]), images()[order] + 0.05)


def test_other_images_are_refused_with_their_number(file: Path) -> None:
    mixed = torch.cat([images()[:3], images(2, seed=1)])
    with pytest.raises(CarsoError, match=r"worst\.safetensors has no example for 2 of 5 images"):
        attacked(saved(file), mixed)


def test_an_image_changed_in_its_last_bit_is_another(file: Path) -> None:
    x = images()
    x[2, 0, 3, 3] = torch.nextafter(x[2, 0, 3, 3], torch.tensor(1.0))
    with pytest.raises(CarsoError, match="no example for 1 of 5"):
        attacked(saved(file), x)


def test_a_key_does_not_depend_on_the_layout_in_memory() -> None:
    image = images(1)[0]
    assert key(image) == key(image.transpose(1, 2).contiguous().transpose(1, 2))
    assert key(image) != key(image.transpose(1, 2))


def test_examples_outside_the_ball_are_not_trusted() -> None:
    table = {key(image): image + 0.2 for image in images()}
    with pytest.raises(RuntimeError, match="5 of 5 images"):
        attacked(Saved(source="file", digest="", eps=0.1, table=table), images())


def test_the_settings_of_an_attack_name_the_file_and_not_its_pixels(file: Path) -> None:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    words = in_words(saved(file).identity())
    assert words == f"Saved(source='worst.safetensors', digest='{digest}', eps=0.1)"


def test_examples_of_a_larger_ball_are_refused(file: Path) -> None:
    with pytest.raises(CarsoError, match=r"made with eps = 0\.1, more than the 0\.09"):
        saved(file)(never, images(), labels(), threat=Linf(eps=0.09), generator=Generator())


def test_what_was_written_is_read(file: Path) -> None:
    found = read_examples(file)
    assert torch.equal(found.images, images())
    assert torch.equal(found.labels, labels())
    assert (found.norm, found.eps) == ("Linf", 0.1)


def test_examples_of_another_norm_are_read_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "round.safetensors"
    change = torch.full((5, 1, 4, 4), 0.5 / 4)
    x, y = images(), labels()
    write_examples(path, Examples(images=x, labels=y, examples=x + change, norm="L2", eps=0.5))
    found = saved(path)
    assert (read_examples(path).norm, found.norm, found.eps) == ("L2", "L2", 0.5)
    inside = found(never, images(), labels(), threat=L2(eps=0.5), generator=Generator())
    assert torch.equal(inside, images() + change)
    with pytest.raises(CarsoError, match="was made in L2, and Linf is evaluated"):
        found(never, images(), labels(), threat=Linf(eps=0.5), generator=Generator())


def test_a_file_without_examples_is_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(CarsoError, match="there is no"):
        saved(tmp_path / "missing.safetensors")
    weights = tmp_path / "weights.safetensors"
    tensor_files.save(weights, {"weight": torch.zeros(3)})
    with pytest.raises(CarsoError, match="holds no adversarial examples"):
        saved(weights)
    tensors = {**tensor_files.load(file), "examples": images(4)}
    tensor_files.save(weights, tensors)
    with pytest.raises(CarsoError, match="holds no adversarial examples"):
        saved(weights)


def test_examples_are_not_saved_over_other_tensors(file: Path, tmp_path: Path) -> None:
    refuse_other_tensors(file)
    weights = tmp_path / "classifier.safetensors"
    tensor_files.save(weights, {"weight": torch.zeros(3)})
    with pytest.raises(CarsoError, match="holds no adversarial examples: save them to another"):
        refuse_other_tensors(weights)
