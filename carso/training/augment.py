"""Training images, changed at random in ways that leave their labels true."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

ANGLE = 0.15
"""The most that a warp turns an image, in radians, and shears it."""
STRETCH = 0.1
"""The most by which a warp changes the logarithm of either side."""
SHIFT = 1.5
"""The most that a warp moves an image along a side, in pixels."""
BEND = 0.5
"""The deviation of a warp's bends, in pixels."""
KNOTS = 5
"""A warp bends an image smoothly between so many points along a side."""


def augmented(images: Tensor, how: str, source: Generator) -> Tensor:
    """Images flipped at random, shifted at random and filled with zeros, by up to an eighth of
    their side or nudged by a pixel, or warped."""
    if how == "none":
        return images
    if how == "warp":
        return warped(images, source)
    if how != "nudge":
        flip = torch.rand(len(images), generator=source) < 0.5
        images = torch.where(flip.to(images.device).view(-1, 1, 1, 1), images.flip(-1), images)
    if how == "flip":
        return images
    height, width = images.shape[-2:]
    return shifted(images, *((1, 1) if how == "nudge" else (height // 8, width // 8)), source)


def shifted(images: Tensor, most_down: int, most_right: int, source: Generator) -> Tensor:
    """Each image moved by a random number of pixels either way along both sides."""
    height, width = images.shape[-2:]
    down = torch.randint(0, 2 * most_down + 1, (len(images), 1), generator=source)
    right = torch.randint(0, 2 * most_right + 1, (len(images), 1), generator=source)
    rows = (down + torch.arange(height)).to(images.device)  # (B, H)
    columns = (right + torch.arange(width)).to(images.device)  # (B, W)
    padded = F.pad(images, (most_right, most_right, most_down, most_down))
    which = torch.arange(len(images), device=images.device).view(-1, 1, 1)
    moved = padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).contiguous()  # (B, C, H, W)


def warped(images: Tensor, source: Generator) -> Tensor:
    """Each image turned, sheared, stretched, moved and bent a little, in [0, 1]; how much of it is
    drawn anew for each, so that some stay as they were but for a little."""
    count, _, height, width = images.shape
    strength = torch.rand(count, generator=source)

    def within(most: float, *shape: int) -> Tensor:
        found = most * (2 * torch.rand(count, *shape, generator=source) - 1)
        return strength.view(-1, *[1] * len(shape)) * found

    half = torch.tensor([width / 2, height / 2])  # grid_sample counts from -1 to 1
    turn, shear, stretch = within(ANGLE), within(ANGLE), within(STRETCH, 2).exp()
    matrix = torch.stack([turn.cos(), -turn.sin() + shear, turn.sin(), turn.cos()], dim=1)
    matrix = matrix.view(-1, 2, 2) * stretch.unsqueeze(1)
    affine = torch.cat([matrix, (within(SHIFT, 2) / half).unsqueeze(2)], dim=2)  # (B, 2, 3)
    places = F.affine_grid(affine, [count, 1, height, width], align_corners=False)
    bends = BEND * torch.randn(count, 2, KNOTS, KNOTS, generator=source)
    bends = strength.view(-1, 1, 1, 1) * bends
    bends = F.interpolate(bends, size=(height, width), mode="bicubic", align_corners=True)
    places = places + bends.permute(0, 2, 3, 1) / half  # (B, H, W, 2)
    # Bicubic: a bilinear warp would blur, and blurred images are easier.
    found = F.grid_sample(images, places.to(images), mode="bicubic", align_corners=False)
    return found.clamp(0, 1)
