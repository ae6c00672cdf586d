"""Random images of a data set's shape: time and memory do not depend on what they show."""

from __future__ import annotations

import torch

from carso.data import DATA_SETS, ImageData, Split


def random_images(name: str, *, shape: tuple[int, int, int], count: int) -> ImageData:
    """`count` training images, and few others, with the classes and statistics of `name`."""
    known = DATA_SETS[name]
    classes = known.classes or tuple(str(i) for i in range(10))

    def split(size: int) -> Split:
        pixels = torch.randint(0, 256, (size, *shape), dtype=torch.uint8)
        return Split(images=pixels, labels=torch.arange(size) % len(classes))

    return ImageData(
        name=name,
        classes=classes,
        train=split(count),
        validation=split(len(classes)),
        test=split(len(classes)),
        mean=known.mean,
        std=known.std,
        origin="random",
        fingerprint="random",
    )
