"""Adversarial images from a file, as an attack: made against one defence, tried on another."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Generator, Tensor

from carso.attacks.gradient import Model, verified
from carso.errors import CarsoError
from carso.storage import files, tensor_files
from carso.threats.linf import ROUNDING, Linf


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """Looks up the example of each image."""

    source: str
    digest: str
    """Of the file's content: two files of the same name are not the same attack."""
    eps: float
    table: dict[bytes, Tensor] = field(repr=False)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor:
        if self.eps > threat.eps + ROUNDING:
            raise CarsoError(
                f"{self.source} was made with eps = {self.eps:g}, more than the {threat.eps:g} "
                "that is evaluated"
            )
        found = [self.table.get(key(image)) for image in images]
        if any(example is None for example in found):
            missing = sum(example is None for example in found)
            raise CarsoError(
                f"{self.source} has no example for {missing} of {len(images)} images: evaluate it "
                "on the images that it was made from"
            )
        examples = torch.stack([example for example in found if example is not None])
        return verified(examples.to(images.device), images, threat)


def key(image: Tensor) -> bytes:
    return bytes(image.detach().cpu().contiguous().numpy().tobytes())


def read_examples(path: Path) -> dict[str, Tensor]:
    """Images, labels, examples and eps of a file that `evaluate(save_examples=...)` wrote."""
    if path.is_file() and path.suffix != ".safetensors":
        raise CarsoError(f"adversarial examples are .safetensors files, got {path.name}")
    tensors = tensor_files.load(path)
    if set(tensors) != {"images", "labels", "examples", "eps"} or (
        tensors["images"].shape != tensors["examples"].shape or tensors["eps"].numel() != 1
    ):
        raise CarsoError(f"{path} holds no adversarial examples: `--save-examples` writes such")
    return tensors


def saved(path: Path) -> Saved:
    """The examples of a file as an attack."""
    tensors = read_examples(path)
    pairs = zip(tensors["images"], tensors["examples"], strict=True)
    return Saved(
        source=path.name,
        digest=files.sha256(path),
        eps=float(tensors["eps"]),
        table={key(image): example for image, example in pairs},
    )
