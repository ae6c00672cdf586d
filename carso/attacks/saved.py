"""Adversarial images from a file, as an attack: made against one defence, tried on another."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, verified
from carso.errors import CarsoError
from carso.storage import files, tensor_files
from carso.threats.norms import DEFAULT
from carso.threats.threat import ROUNDING, Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """Looks up the example of each image."""

    source: str
    digest: str
    """Of the file's content: two files of the same name are not the same attack."""
    eps: float
    norm: str = DEFAULT
    table: dict[bytes, Tensor] = field(repr=False)

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts()

    def identity(self) -> dict[str, Any]:
        norm = {} if self.norm == DEFAULT else {"norm": self.norm}
        settings = {"source": self.source, "digest": self.digest, "eps": self.eps, **norm}
        return {"attack": "Saved", **settings}

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        if self.norm != threat.norm:
            raise CarsoError(
                f"{self.source} was made in {self.norm}, and {threat.norm} is evaluated"
            )
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Examples:
    """Adversarial images in a file, and the threat that they were made under."""

    images: Tensor
    labels: Tensor
    examples: Tensor
    norm: str
    eps: float


def write_examples(path: Path, found: Examples) -> None:
    """The file that `read_examples` reads; the default norm is not said, as in earlier files."""
    tensors = {
        "images": found.images,
        "labels": found.labels,
        "examples": found.examples,
        "eps": torch.tensor(found.eps, dtype=torch.float64),
    }
    if found.norm != DEFAULT:
        tensors["norm"] = torch.tensor(list(found.norm.encode()), dtype=torch.uint8)
    tensor_files.save(path, tensors)


def read_examples(path: Path) -> Examples:
    """The content of a file that `evaluate(save_examples=...)` wrote."""
    if path.is_file() and path.suffix != ".safetensors":
        raise CarsoError(f"adversarial examples are .safetensors files, got {path.name}")
    tensors = tensor_files.load(path)
    if set(tensors) - {"norm"} != {"images", "labels", "examples", "eps"} or (
        tensors["images"].shape != tensors["examples"].shape or tensors["eps"].numel() != 1
    ):
        raise CarsoError(f"{path} holds no adversarial examples: `--save-examples` writes such")
    return Examples(
        images=tensors["images"],
        labels=tensors["labels"],
        examples=tensors["examples"],
        norm=bytes(tensors["norm"].tolist()).decode() if "norm" in tensors else DEFAULT,
        eps=float(tensors["eps"]),
    )


def refuse_other_tensors(path: Path) -> None:
    """One line for a file of other tensors, weights perhaps, that examples would be saved over."""
    try:
        read_examples(path)
    except CarsoError:
        raise CarsoError(
            f"{path} is there and holds no adversarial examples: save them to another file"
        ) from None


def saved(path: Path) -> Saved:
    """The examples of a file as an attack."""
    found = read_examples(path)
    pairs = zip(found.images, found.examples, strict=True)
    return Saved(
        source=path.name,
        digest=files.sha256(path),
        eps=found.eps,
        norm=found.norm,
        table={key(image): example for image, example in pairs},
    )
