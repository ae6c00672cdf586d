"""Image files as tensors in [0, 1], for `carso predict`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from carso.data.pictures import GREYSCALE_MODES, WIDE_MODES
from carso.errors import CarsoError


def read_image(path: Path, shape: tuple[int, int, int]) -> Tensor:
    """The image in `path` as (C, H, W) floats in [0, 1]; another size or number of channels
    than `shape` is an error, because resizing would silently change what is classified.

    Pillow's formats with 8 bits a channel, or `.npy` with floats (C, H, W) in [0, 1].
    """
    if not path.is_file():
        raise CarsoError(f"there is no image {path}")
    pixels = from_array_file(path) if path.suffix == ".npy" else from_picture(path)
    if tuple(pixels.shape) != shape:
        raise CarsoError(
            f"{path}: this defence takes images of {described(shape)}, "
            f"got {described(tuple(pixels.shape))}"
        )
    if not bool(torch.isfinite(pixels).all()):
        raise CarsoError(f"{path}: pixels must be in [0, 1], got NaN or infinity")
    low, high = (float(bound) for bound in torch.aminmax(pixels))
    if low < 0 or high > 1:
        raise CarsoError(f"{path}: pixels must be in [0, 1], got [{low:g}, {high:g}]")
    return pixels


def described(shape: tuple[int, ...]) -> str:
    """A shape (C, H, W) in words."""
    if len(shape) != 3:
        return f"shape {shape} instead of (C, H, W)"
    channels, height, width = shape
    return f"{width}x{height} pixels and {channels} channel{'s' if channels != 1 else ''}"


def from_picture(path: Path) -> Tensor:
    """An image file of 8 bits a channel, grey or colour as it is."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            mode = image.mode
            pixels = np.array(image.convert("L" if mode in GREYSCALE_MODES else "RGB"))
    except Exception as error:  # Pillow's decoders raise many types for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CarsoError(f"{path} is not a readable image: {reason}") from None
    if mode in WIDE_MODES:
        raise CarsoError(f"{path}: pixels must have 8 bits a channel, got mode {mode}")
    return torch.from_numpy(np.atleast_3d(pixels)).permute(2, 0, 1).float() / 255  # (C, H, W)


def from_array_file(path: Path) -> Tensor:
    """A `.npy` file of floats."""
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise CarsoError(f"{path} is not a .npy file of floats")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise CarsoError(f"{path} is damaged, or holds objects instead of floats") from None
    if array.dtype.kind != "f":
        raise CarsoError(f"{path}: pixels must be floats in [0, 1], got {array.dtype}")
    return torch.from_numpy(array.astype(np.float32))
