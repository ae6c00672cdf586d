"""Decoding image files of one size into a tensor."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from carso.data.data_errors import DataError
from carso.machine.limits import check_fits

GREYSCALE_MODES = frozenset({"1", "L", "LA"})
WIDE_MODES = frozenset({"I", "F", "I;16", "I;16B", "I;16L"})
"""More than 8 bits a channel: converting these would clip, not scale."""

SHOW_PROGRESS_FROM = 5_000
"""Fewer files than this are decoded in about a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureFormat:
    """What every image of a set has in common."""

    width: int
    height: int
    mode: str
    """Pillow's name: "L" (one channel) or "RGB"."""


def common_format(paths: Sequence[Path]) -> PictureFormat:
    """The most frequent size, and colour unless most images are greyscale; from the headers."""
    from PIL import Image

    sizes: Counter[tuple[int, int]] = Counter()
    greyscale = 0
    for path in paths:
        try:
            with Image.open(path) as image:
                sizes[image.size] += 1
                greyscale += image.mode in GREYSCALE_MODES
        except Exception as error:
            raise DataError(_unreadable(path, error)) from error
    (width, height), _ = sizes.most_common(1)[0]
    mode = "L" if greyscale > len(paths) / 2 else "RGB"
    return PictureFormat(width=width, height=height, mode=mode)


def decode(paths: Sequence[Path], expected: PictureFormat) -> Tensor:
    """The images as uint8 (n, C, H, W), in the order of the paths."""
    from rich.console import Console
    from rich.progress import track

    channels = len(expected.mode)  # "L" has one letter and one channel, "RGB" three
    each = channels * expected.height * expected.width
    check_fits(f"images of {each} bytes", len(paths), each, option="a folder of at most")
    images = torch.empty((len(paths), channels, expected.height, expected.width), dtype=torch.uint8)
    progress = track(
        paths,
        description="decoding images",
        console=Console(file=sys.stderr),
        disable=len(paths) < SHOW_PROGRESS_FROM,
    )
    for position, path in enumerate(progress):
        images[position] = _decode_one(path, expected)
    return images


def _decode_one(path: Path, expected: PictureFormat) -> Tensor:
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.size != (expected.width, expected.height):
                raise DataError(
                    f"{path}: expected {expected.width}x{expected.height} pixels "
                    f"like the other images, found {image.width}x{image.height}"
                )
            if image.mode in WIDE_MODES:
                raise DataError(f"{path}: expected 8 bits a channel, found mode {image.mode}")
            pixels = np.array(image.convert(expected.mode))
    except DataError:
        raise
    except Exception as error:  # Pillow's decoders raise many types for damaged files
        raise DataError(_unreadable(path, error)) from error
    return torch.from_numpy(np.atleast_3d(pixels)).permute(2, 0, 1)  # (C, H, W)


def _unreadable(path: Path, error: Exception) -> str:
    reason = " ".join(str(error).split())
    return f"{path}: expected an intact image file ({reason or type(error).__name__})"
