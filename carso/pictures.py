"""Image files as tensors in [0, 1], for `carso predict`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from carso.errors import CarsoError


def read_image(path: Path, shape: tuple[int, int, int]) -> Tensor:
    """The image in `path` as (C, H, W) floats in [0, 1]; another size or number of channels
    than `shape` is an error, because resizing would silently change what is classified.

    Pillow's formats with 8 bits a channel, or `.npy` with floats (C, H, W) in [0, 1].
    """
    pixels = from_array_file(path) if path.suffix == ".npy" else from_picture(path)
    if tuple(pixels.shape) != shape:
        raise CarsoError(
            f"{path}: this defence takes images of {described(shape)}, "
            f"got {described(tuple(pixels.shape))}"
        )
    return pixels


def described(shape: tuple[int, ...]) -> str:
    """A shape (C, H, W) in words."""
    if len(shape) != 3:
        return f"shape {shape}"
    channels, height, width = shape
    return f"{width}x{height} pixels and {channels} channel{'s' if channels > 1 else ''}"


def from_picture(path: Path) -> Tensor:
    """An image file of 8 bits a channel."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
            if image.mode not in ("L", "RGB"):
                raise CarsoError(
                    f"{path}: pixels must be 8-bit grey (L) or RGB, got mode {image.mode}"
                )
            bytes_ = np.array(image)
    except FileNotFoundError:
        raise CarsoError(f"there is no image {path}") from None
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, CarsoError):
            raise
        raise CarsoError(f"{path} is not a readable image: {error}") from None
    grey = bytes_.ndim == 2
    channels_first = bytes_[None] if grey else bytes_.transpose(2, 0, 1)
    return torch.from_numpy(channels_first.copy()).float() / 255


def from_array_file(path: Path) -> Tensor:
    """A `.npy` file of floats in [0, 1]."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise CarsoError(f"there is no image {path}") from None
    except (OSError, ValueError, EOFError) as error:
        raise CarsoError(f"{path} is not a readable .npy file: {error}") from None
    if array.dtype.kind != "f":
        raise CarsoError(f"{path}: pixels must be floats in [0, 1], got {array.dtype}")
    pixels = torch.from_numpy(array.astype(np.float32))
    if not bool(torch.isfinite(pixels).all()):
        raise CarsoError(f"{path}: pixels must be in [0, 1], got NaN or infinity")
    if float(pixels.min()) < 0 or float(pixels.max()) > 1:
        low, high = float(pixels.min()), float(pixels.max())
        raise CarsoError(f"{path}: pixels must be in [0, 1], got [{low:g}, {high:g}]")
    return pixels
