"""What augmentation does to images."""

import pytest
import torch

from carso.randomness import generator
from carso.training.augment import augmented


def pictures(count: int = 64) -> torch.Tensor:
    """No two pixels alike, none of them 0."""
    pixels = torch.arange(1, count * 2 * 8 * 16 + 1, dtype=torch.float32)
    return pixels.reshape(count, 2, 8, 16)


def moved(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """`image` with its content moved, filled with zeros."""
    result = torch.zeros_like(image)
    height, width = image.shape[-2:]
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                result[..., row, column] = image[..., row - down, column - right]
    return result


@pytest.mark.parametrize(("how", "down", "right"), [("nudge", 1, 1), ("flip-shift", 1, 2)])
def test_images_move_by_at_most_so_much_and_by_all_of_it(how: str, down: int, right: int) -> None:
    images = pictures()
    found = augmented(images, how, generator(0, how))
    seen = set()
    for image, result in zip(images, found, strict=True):
        ways = [
            (flip, i, j)
            for flip in (False, True)
            for i in range(-down, down + 1)
            for j in range(-right, right + 1)
            if torch.equal(result, moved(image.flip(-1) if flip else image, i, j))
        ]
        assert len(ways) == 1
        seen.add(ways[0])
    flips = {flip for flip, _, _ in seen}
    assert flips == ({False, True} if how == "flip-shift" else {False})
    assert {i for _, i, _ in seen} == set(range(-down, down + 1))
    assert {j for _, _, j in seen} == set(range(-right, right + 1))


def test_no_augmentation_leaves_images_as_they_are() -> None:
    images = pictures(4)
    assert augmented(images, "none", generator(0)) is images


def test_flips_are_flips() -> None:
    images = pictures()
    found = augmented(images, "flip", generator(0))
    flipped = [torch.equal(b, a.flip(-1)) for a, b in zip(images, found, strict=True)]
    kept = [torch.equal(b, a) for a, b in zip(images, found, strict=True)]
    assert all(a != b for a, b in zip(flipped, kept, strict=True))
    assert 0 < sum(flipped) < len(images)


def test_a_warp_moves_what_is_seen_and_no_further_than_it_may() -> None:
    """A spot in the middle is moved and bent, by a pixel or two; it stays an image."""
    images = torch.zeros(200, 1, 28, 28)
    images[..., 13:15, 13:15] = 1
    found = augmented(images, "warp", generator(0, "warp"))
    assert found.shape == images.shape
    assert found.min() >= 0
    assert found.max() <= 1
    middle = torch.arange(28.0) - 13.5
    weight = found.sum(dim=(1, 2, 3))
    down = (found.sum(dim=(1, 3)) * middle).sum(dim=1) / weight
    right = (found.sum(dim=(1, 2)) * middle).sum(dim=1) / weight
    for way in (down, right):
        assert 0.3 < way.std() < 1.5
        assert way.abs().max() < 4  # the shift, and bends of four deviations


def test_a_warp_is_drawn_for_each_image_and_comes_again() -> None:
    images = torch.rand(1, 1, 28, 28).expand(4, -1, -1, -1)
    first = augmented(images, "warp", generator(0, "warp"))
    assert not any(first[0].equal(other) for other in first[1:])
    assert first.equal(augmented(images, "warp", generator(0, "warp")))
    black = torch.zeros(2, 3, 32, 40)
    assert augmented(black, "warp", generator(0, "warp")).equal(black)
