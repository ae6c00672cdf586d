"""The table of known data sets: layouts, classes, statistics and fingerprints."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from carso.data import cifar, idx, tiny_imagenet
from carso.data.contents import Contents


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLayout:
    """One official way to store a set."""

    folder: str
    """The official folder name, looked for under each root."""
    present: Callable[[Path], bool]
    """Whether a folder holds this set."""
    read: Callable[[Path], Contents]


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSet:
    """One row of the table."""

    title: str
    layouts: tuple[FileLayout, ...]
    image_shape: tuple[int, int, int]
    """(C, H, W)."""
    mean: tuple[float, ...]
    """Of the training images in [0, 1], one number per channel."""
    std: tuple[float, ...]
    classes: tuple[str, ...] = ()
    """Empty when the files of the set name their classes."""
    unnamed: int = 0
    """How many classes those files name."""
    fingerprint: str | None = None
    """Of the complete official set as it is split here, where known. What is shipped or downloaded
    must have it; someone's own files need not, so that a part of a set can be used."""
    shipped: Path | None = None
    """The folder inside the package, for the set that needs no download."""


FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


DIGITS = tuple("0123456789")


def idx_layout(folder: str, classes: tuple[str, ...]) -> FileLayout:
    """The four files of MNIST or a relative of it."""
    read = partial(idx.read_idx_folder, classes=len(classes))
    return FileLayout(folder=folder, present=idx.has_idx_files, read=read)


DATA_SETS: dict[str, DataSet] = {
    "fashion-embedded": DataSet(
        title="Fashion-MNIST, 1,000 training and 200 test images a class, shipped",
        layouts=(idx_layout("fashion", FASHION_CLASSES),),
        image_shape=(1, 28, 28),
        classes=FASHION_CLASSES,
        mean=(0.2860,),
        std=(0.3530,),
        fingerprint="62e874de685d74c0e8c00fbe6c12b6c0e0d42317d00482366abeeafb1e00f302",
        shipped=Path(__file__).parent / "embedded" / "fashion",
    ),
    "fashion-mnist": DataSet(
        title="Fashion-MNIST",
        layouts=(idx_layout("fashion-mnist", FASHION_CLASSES),),
        image_shape=(1, 28, 28),
        classes=FASHION_CLASSES,
        mean=(0.2860,),
        std=(0.3530,),
        fingerprint="3e5c2a55457feaf6ffbf998cafa6ecf01e1a0a39fdce666386256f27540053da",
    ),
    "mnist": DataSet(
        title="MNIST",
        layouts=(idx_layout("mnist", DIGITS),),
        image_shape=(1, 28, 28),
        classes=DIGITS,
        mean=(0.1307,),
        std=(0.3081,),
        fingerprint="cd77183368161a9755c5f40d1eafd0f42b9b7589fe06ed0e8009f1d2e28002ff",
    ),
    "cifar10": DataSet(
        title="CIFAR-10",
        layouts=(
            FileLayout(
                folder="cifar-10-batches-py",
                present=cifar.has_cifar10_pickles,
                read=cifar.read_cifar10_pickles,
            ),
            FileLayout(
                folder="cifar-10-batches-bin",
                present=cifar.has_cifar10_binary,
                read=cifar.read_cifar10_binary,
            ),
        ),
        image_shape=cifar.IMAGE_SHAPE,
        classes=CIFAR10_CLASSES,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2471, 0.2435, 0.2616),
        fingerprint="75109c8948221aa092339ea128e3da6983df9f0103b8dce3b60d7b1a9c472cf0",
    ),
    "cifar100": DataSet(
        title="CIFAR-100, fine classes",
        layouts=(
            FileLayout(
                folder="cifar-100-python", present=cifar.has_cifar100, read=cifar.read_cifar100
            ),
        ),
        image_shape=cifar.IMAGE_SHAPE,
        unnamed=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    "tinyimagenet": DataSet(
        title="TinyImageNet-200",
        layouts=(
            FileLayout(
                folder="tiny-imagenet-200",
                present=tiny_imagenet.has_tiny_imagenet,
                read=tiny_imagenet.read_tiny_imagenet,
            ),
        ),
        image_shape=(3, tiny_imagenet.FORMAT.height, tiny_imagenet.FORMAT.width),
        unnamed=200,
        mean=(0.4802, 0.4481, 0.3975),
        std=(0.2302, 0.2265, 0.2262),
    ),
}
