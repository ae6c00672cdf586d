"""What every purifier on the U-Net has: layers of a classifier, whose activations enter at the
level of their resolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self, cast

import torch
from torch import Generator, Tensor, nn

from carso.errors import CarsoError
from carso.machine.microbatches import in_microbatches
from carso.purifiers.unet.entry import MapEntry, VectorEntry, nearest_level, token_grid
from carso.purifiers.unet.network import Size, level_sizes
from carso.randomness import normal

BLOCK = 16
"""torch draws normals in blocks of so many: whole blocks per image, and a batch that is cut in
two draws what it would have drawn whole."""


class ActivationReader(nn.Module):
    """A purifier for images of any size with `image_shape[0]` channels, but for what it makes of
    the features that it reads.

    `shapes` are those of the activations at `layers` for images of `image_shape`. The size of a
    candidate follows from them: where the largest activation has half the image's side there, so
    it has for every image. A side that was rounded on the way to the activation can come back one
    pixel longer than it was, except at the `image_shape` itself; a layer at the image's own
    resolution leaves no such doubt.
    """

    image_shape: tuple[int, int, int] | None = None

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        *,
        layers: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        widths: Sequence[int],
        blocks: Sequence[int],
    ) -> None:
        super().__init__()
        if len(widths) != len(blocks):
            raise CarsoError(f"blocks must be one number per level, got {blocks} for {widths}")
        self.channels, height, width = image_shape
        self.built = (height, width)
        self.layers, self.widths = tuple(layers), tuple(widths)
        sizes = level_sizes(self.built, len(self.widths))
        self.levels, self.largest = [], -1
        self.entries = nn.ModuleList()
        most = 0
        for index, shape in enumerate(shapes):
            entry, level = entry_for(tuple(shape), self.widths, sizes)
            self.entries.append(entry)
            self.levels.append(level)
            if isinstance(entry, MapEntry) and math.prod(entry.grid) > most:
                self.largest, most = index, math.prod(entry.grid)

    def decode(self, entries: Sequence[Tensor], noise: Tensor) -> Tensor:
        """Candidates (B, C, H, W) before the sigmoid, from features and a row of noise each."""
        raise NotImplementedError

    def noise_size(self, entries: Sequence[Tensor]) -> int:
        """How many numbers of noise make one candidate."""
        raise NotImplementedError

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        """`samples` candidates per image, (N, B, C, H, W) in [0, 1]."""
        entries = self.enter(activations)
        noise = self.draw(entries, samples, generator)  # (N, B, noise)
        repeated = [entry.expand(samples, *entry.shape).flatten(0, 1) for entry in entries]
        flat = noise.flatten(0, 1)  # (N * B, noise)
        logits = in_microbatches(lambda row, *part: self.decode(part, row), flat, *repeated)
        return torch.sigmoid(logits).unflatten(0, noise.shape[:2])  # type: ignore[no-any-return, no-untyped-call]

    def pixel_logits(self, activations: Sequence[Tensor], generator: Generator) -> Tensor:
        """One candidate per image before the sigmoid, (B, C, H, W)."""
        entries = self.enter(activations)
        return self.decode(entries, self.draw(entries, 1, generator)[0]).float()

    def enter(self, activations: Sequence[Tensor]) -> list[Tensor]:
        """The features (B, width, h, w) that the activations bring to each level."""
        if len(activations) != len(self.entries):
            raise CarsoError(
                f"this purifier reads {len(self.entries)} layers, got {len(activations)}"
            )
        sizes = level_sizes(self.image_size(activations), len(self.widths))
        first = activations[0]
        entered: list[Tensor | None] = [None] * len(sizes)
        for entry, level, activation in zip(self.entries, self.levels, activations, strict=True):
            found = entry(activation, sizes[level])
            before = entered[level]
            entered[level] = found if before is None else before + found
        return [
            first.new_zeros(first.shape[0], width, *size) if found is None else found
            for found, width, size in zip(entered, self.widths, sizes, strict=True)
        ]

    def image_size(self, activations: Sequence[Tensor]) -> Size:
        """The size of the image that was seen, from its largest activation."""
        if self.largest < 0:  # vectors know no size
            return self.built
        entry = cast(MapEntry, self.entries[self.largest])
        found = entry.grid_of(activations[self.largest])
        sides = zip(found, entry.grid, self.built, strict=True)
        height, width = (side_of_image(*side) for side in sides)
        return height, width

    def draw(self, entries: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        """The noise of a candidate in one row, (N, B, noise)."""
        whole = math.ceil(self.noise_size(entries) / BLOCK) * BLOCK
        return normal((entries[0].shape[0], samples, whole), entries[0], generator).transpose(0, 1)

    def deployed(self) -> Self:
        """This purifier in evaluation mode and without gradients of its own."""
        return self.eval().requires_grad_(False)


def entry_for(
    shape: tuple[int, ...], widths: Sequence[int], sizes: Sequence[Size]
) -> tuple[MapEntry | VectorEntry, int]:
    """How an activation of `shape` (without the batch) enters, and at which level."""
    if len(shape) == 3:
        grid = (shape[1], shape[2])
        level = nearest_level(grid, sizes)
        return MapEntry(shape, widths[level], grid=grid), level
    found = token_grid(shape[0], sizes) if len(shape) == 2 else None
    if found is None:
        return VectorEntry(shape, widths[-1]), len(widths) - 1
    grid, leading = found
    level = nearest_level(grid, sizes)
    return MapEntry(shape, widths[level], grid=grid, leading=leading), level


def side_of_image(found: int, built: int, image: int) -> int:
    """A side of the image whose activation has the side `found`, if one of `built` belonged to a
    side of `image`."""
    if found == built:
        return image
    if image >= built:
        return found * round(image / built)  # strides are whole numbers
    return round(found * image / built)
