"""Splits: batches in [0, 1], balanced choices, held-out parts, fingerprints."""

from collections.abc import Callable

import pytest
import torch

from carso.data import DataError, Split
from carso.data.images import channel_statistics, fingerprint_of, hold_out, join

MakeSplit = Callable[..., Split]


def test_a_batch_is_float_in_the_unit_interval_and_exact(random_split: MakeSplit) -> None:
    split = random_split(4)
    images, labels = split.batch(slice(0, 7))
    assert images.dtype == torch.float32
    assert images.min() >= 0
    assert images.max() <= 1
    assert torch.equal((images * 255).round().to(torch.uint8), split.images[:7])
    assert torch.equal(labels, split.labels[:7])


def test_a_batch_is_a_copy(random_split: MakeSplit) -> None:
    split = random_split(1)
    before = split.images.clone()
    split.batch(slice(None))[0].zero_()
    assert torch.equal(split.images, before)


@pytest.mark.parametrize("indices", [torch.tensor([3, 1, 1]), slice(2, 9, 3)])
def test_take_keeps_the_order_asked_for(
    random_split: MakeSplit, indices: torch.Tensor | slice
) -> None:
    split = random_split(2)
    taken = split.take(indices)
    assert torch.equal(taken.images, split.images[indices])
    assert torch.equal(taken.labels, split.labels[indices])


def test_balanced_takes_classes_in_turn_and_each_in_file_order(random_split: MakeSplit) -> None:
    split = random_split(5)
    chosen = split.balanced(30)
    assert chosen.labels.tolist() == list(range(10)) * 3
    for label in range(10):
        of_class = split.images[split.labels == label][:3]
        assert torch.equal(chosen.images[chosen.labels == label], of_class)


def test_a_smaller_balanced_choice_begins_a_larger_one(random_split: MakeSplit) -> None:
    split = random_split(5)
    assert torch.equal(split.balanced(13).images, split.balanced(41).images[:13])


def test_balanced_goes_on_when_a_class_runs_out() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1])
    images = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1)
    chosen = Split(images=images, labels=labels).balanced(5)
    assert chosen.images.flatten().tolist() == [0, 4, 1, 2, 3]


@pytest.mark.parametrize("count", [0, -1, 51])
def test_balanced_refuses_more_than_there_is(random_split: MakeSplit, count: int) -> None:
    with pytest.raises(DataError, match=rf"between 1 and the 50 images, got {count}"):
        random_split(5).balanced(count)


def test_a_split_checks_its_tensors() -> None:
    images, labels = torch.zeros(2, 1, 3, 3, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(DataError, match="uint8 of shape"):
        Split(images=images.float(), labels=labels)
    with pytest.raises(DataError, match=r"int64 of shape \(2,\)"):
        Split(images=images, labels=labels[:1])


@pytest.mark.parametrize(("per_class", "held_out"), [(2, 1), (10, 1), (19, 1), (20, 2), (45, 4)])
def test_a_tenth_of_each_class_is_held_out_from_its_end(
    random_split: MakeSplit, per_class: int, held_out: int
) -> None:
    split = random_split(per_class)
    train, validation = hold_out(split, origin="here")
    for label in range(10):
        of_class = split.images[split.labels == label]
        assert torch.equal(train.images[train.labels == label], of_class[:-held_out])
        assert torch.equal(validation.images[validation.labels == label], of_class[-held_out:])


def test_three_parts_share_nothing_and_miss_nothing(random_split: MakeSplit) -> None:
    split = random_split(20)
    numbered = Split(
        images=torch.arange(200, dtype=torch.uint8).view(-1, 1, 1, 1), labels=split.labels
    )
    parts = hold_out(numbered, parts=2, origin="here")
    assert [len(part) for part in parts] == [160, 20, 20]
    assert sorted(join(parts).images.flatten().tolist()) == list(range(200))
    for part in parts:
        assert part.images.flatten().tolist() == sorted(part.images.flatten().tolist())


def test_a_class_too_small_to_hold_out_from_is_named() -> None:
    split = Split(images=torch.zeros(3, 1, 2, 2, dtype=torch.uint8), labels=torch.tensor([0, 1, 0]))
    with pytest.raises(DataError, match=r"^here: .*at least 2 .*class 1 has 1"):
        hold_out(split, origin="here")


def test_the_fingerprint_sees_pixels_labels_and_order(random_split: MakeSplit) -> None:
    split = random_split(2)
    changed = Split(images=split.images.clone(), labels=split.labels)
    changed.images[5, 0, 0, 0] ^= 1
    relabelled = Split(images=split.images, labels=split.labels.flip(0))
    seen = {fingerprint_of([s]) for s in (split, changed, relabelled)}
    seen.add(fingerprint_of([split, changed]))
    seen.add(fingerprint_of([changed, split]))
    assert len(seen) == 5
    assert fingerprint_of([split.take(slice(None))]) == fingerprint_of([split])


def test_channel_statistics_are_mean_and_deviation(random_split: MakeSplit) -> None:
    split = random_split(3, shape=(3, 8, 8))
    mean, std = channel_statistics(split)
    values = split.images.double() / 255
    assert mean == pytest.approx(values.mean((0, 2, 3)).tolist())
    assert std == pytest.approx(values.std((0, 2, 3), unbiased=False).tolist())
