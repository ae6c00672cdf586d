"""Labelled images as plain tensors: a split of a data set, and the three splits together."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from carso.data.data_errors import DataError
from carso.errors import CarsoTypeError


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Images and their labels; bytes in memory, floats in [0, 1] only a batch at a time."""

    images: Tensor
    """uint8 (n, C, H, W)."""
    labels: Tensor
    """int64 (n,)."""

    def __post_init__(self) -> None:
        for key, value in (("images", self.images), ("labels", self.labels)):
            if not isinstance(value, Tensor):
                raise CarsoTypeError(f"{key} must be a tensor, got {type(value).__name__}")
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise DataError(
                "images must be uint8 of shape (n, C, H, W), "
                f"got {self.images.dtype} {tuple(self.images.shape)}"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise DataError(
                f"labels must be int64 of shape ({len(self.images)},), "
                f"got {self.labels.dtype} {tuple(self.labels.shape)}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Tensor | slice) -> "Split":
        """The images at these indices (or where this mask is true), in this order."""
        return Split(images=self.images[indices], labels=self.labels[indices])

    def batch(self, indices: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Images as float32 in [0, 1] and labels, at these indices."""
        return self.images[indices].float().div_(255), self.labels[indices]

    def balanced(self, count: int) -> "Split":
        """The first `count` images when classes take turns, each in file order.

        A smaller count is always the beginning of a larger one, so that an evaluation on few
        images can be continued on more.
        """
        if not 0 < count <= len(self):
            raise DataError(f"count must be between 1 and the {len(self)} images, got {count}")
        number, _ = numbers_within_class(self.labels)
        by_class = torch.argsort(self.labels, stable=True)
        turns = by_class[torch.argsort(number[by_class], stable=True)]
        return self.take(turns[:count])


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageData:
    """A data set: what a classifier learns from, is tuned on, and is judged on."""

    name: str
    classes: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    mean: tuple[float, ...]
    """Of the training images in [0, 1], one number per channel."""
    std: tuple[float, ...]
    origin: str
    """Where it was read from; only for messages."""
    fingerprint: str
    """What `fingerprint_of` says of train, validation and test: the provenance of a run."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFacts:
    """What a network must know of a data set, without its images; named as in `ImageData`."""

    image_shape: tuple[int, int, int]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def numbered(count: int) -> tuple[str, ...]:
    """Names for classes whose own are not known; no known set calls its classes so."""
    return tuple(f"class {number}" for number in range(count))


def numbers_within_class(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each image: its number among those of its class in file order, and the class's size."""
    sizes = torch.bincount(labels)
    by_class = torch.argsort(labels, stable=True)
    first = (sizes.cumsum(0) - sizes)[labels[by_class]]  # (n,) where each one's class begins
    number = torch.empty_like(labels)
    number[by_class] = torch.arange(len(labels)) - first
    return number, sizes[labels]


def join(splits: Sequence[Split]) -> Split:
    """One split after the other."""
    return Split(
        images=torch.cat([split.images for split in splits]),
        labels=torch.cat([split.labels for split in splits]),
    )


def check_labels(labels: Tensor, *, classes: int, path: Path) -> None:
    """Refuse labels that no class belongs to: they would fail much later, inside a loss."""
    outside = labels[(labels < 0) | (labels >= classes)]
    if len(outside):
        raise DataError(f"{path}: expected labels 0 to {classes - 1}, found {int(outside[0])}")


def hold_out(split: Split, *, parts: int = 1, origin: str) -> tuple[Split, ...]:
    """What remains, then `parts` held-out splits, each a tenth of every class (at least one image).

    They are cut from the end of each class in file order, so no random seed decides which images
    a classifier was trained on.
    """
    number, size = numbers_within_class(split.labels)
    if int(size.min()) <= parts:
        label = int(split.labels[size.argmin()])
        raise DataError(
            f"{origin}: expected at least {parts + 1} training images of each class, since "
            f"{parts} would be held out; class {label} has {int(size.min())}"
        )
    tenth = (size // 10).clamp(min=1)
    # 0 for what remains, 1 for the first held-out part, and so on.
    part = (number - (size - parts * tenth)).div(tenth, rounding_mode="floor") + 1
    return tuple(split.take(part.clamp(min=0) == k) for k in range(parts + 1))


def fingerprint_of(splits: Iterable[Split]) -> str:
    """SHA-256 over the bytes of each split's images (uint8), then labels (int64), in order."""
    digest = hashlib.sha256()
    for split in splits:
        digest.update(split.images.contiguous().view(-1).numpy().data)
        digest.update(split.labels.contiguous().numpy().data)
    return digest.hexdigest()


def channel_statistics(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel on the [0, 1] scale, from byte histograms."""
    means, stds = [], []
    levels = torch.arange(256, dtype=torch.float64) / 255
    for channel in range(split.images.shape[1]):
        values = split.images[:, channel].reshape(-1)
        weight = torch.bincount(values, minlength=256).double() / values.numel()
        mean = float((weight * levels).sum())
        means.append(mean)
        stds.append(float((weight * (levels - mean) ** 2).sum().sqrt()))
    return tuple(means), tuple(stds)
