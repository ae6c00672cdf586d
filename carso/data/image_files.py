"""Image files as tensors in [0, 1], for `carso predict` and `carso play`."""

from __future__ import annotations

import io
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
    refuse_other_shape(str(path), tuple(pixels.shape), shape)
    if not bool(torch.isfinite(pixels).all()):
        raise CarsoError(f"{path}: pixels must be in [0, 1], got NaN or infinity")
    low, high = (float(bound) for bound in torch.aminmax(pixels))
    if low < 0 or high > 1:
        raise CarsoError(f"{path}: pixels must be in [0, 1], got [{low:g}, {high:g}]")
    return pixels


def image_from_bytes(content: bytes, shape: tuple[int, int, int]) -> Tensor:
    """The picture whose file has this content, as `read_image` reads it. Its header is looked at
    before anything is decoded, so that a small file cannot unfold into a large image."""
    from PIL import Image

    what = "the picture"
    try:
        with Image.open(io.BytesIO(content)) as image:
            mode = image.mode
            found = (1 if mode in GREYSCALE_MODES else 3, image.height, image.width)
    except Exception:  # Pillow's decoders raise many types for damaged files
        raise CarsoError(
            f"{what} is no image file that can be read: PNG or JPEG would do"
        ) from None
    refuse_wide(what, mode)
    refuse_other_shape(what, found, shape)
    return from_picture(io.BytesIO(content), what)


def refuse_other_shape(what: str, found: tuple[int, ...], wanted: tuple[int, int, int]) -> None:
    """One line for an image that a defence does not take."""
    if found != wanted:
        raise CarsoError(
            f"{what}: this defence takes images of {described(wanted)}, got {described(found)}"
        )


def refuse_wide(what: str, mode: str) -> None:
    """One line for a picture of more than 8 bits a channel; `mode` is Pillow's name."""
    if mode in WIDE_MODES:
        raise CarsoError(f"{what}: pixels must have 8 bits a channel, got mode {mode}")


def described(shape: tuple[int, ...]) -> str:
    """A shape (C, H, W) in words."""
    if len(shape) != 3:
        return f"shape {shape} instead of (C, H, W)"
    channels, height, width = shape
    return f"{width}x{height} pixels and {channels} channel{'s' if channels != 1 else ''}"


def from_picture(file: Path | io.BytesIO, name: str = "") -> Tensor:
    """An image file of 8 bits a channel, grey or colour as it is; `name` stands in messages."""
    from PIL import Image

    what = name or str(file)
    try:
        with Image.open(file) as image:
            mode = image.mode
            pixels = np.array(image.convert("L" if mode in GREYSCALE_MODES else "RGB"))
    except Exception as error:  # Pillow's decoders raise many types for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CarsoError(f"{what} is not a readable image: {reason}") from None
    refuse_wide(what, mode)
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
