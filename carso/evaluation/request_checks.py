"""What a user asks an evaluation for, checked before anything is measured."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from carso.arguments import refuse_unreadable, text
from carso.attacks.saved import refuse_other_tensors
from carso.classifiers.frozen import refuse_meta, usable
from carso.defence.defence import Carso
from carso.distributed.processes import Processes
from carso.errors import CarsoError, CarsoTypeError
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.suites import suite as suite_called
from carso.storage.files import check_writable


def check_request(model: nn.Module, *, suite: str | Suite, name: str | None) -> nn.Module:
    """The model, of a compiled one what was compiled; and a suite and a name that are some."""
    if not isinstance(suite, Suite):
        text("suite", suite)
    if name is not None:
        text("name", name)
    return judged(model, "evaluate")


def check_attacks(
    model: nn.Module, suite: str | Suite, attacks: tuple[str, ...], examples: Path | None
) -> None:
    """Refuse names that there are not, and examples that are not there, before anything is
    measured."""
    if examples is not None and not examples.is_file():
        raise CarsoError(f"there is no file {examples}")
    if not isinstance(suite, Suite):
        name = suite or ("quick" if isinstance(model, Carso) else "standard")
        suite_called(name, seed=0, samples=1, attacks=attacks)


def judged(model: nn.Module, who: str) -> nn.Module:
    """A model that `who` can judge: one with weights, in float32."""
    if not isinstance(model, nn.Module):
        raise CarsoTypeError(
            f"{who} takes a defence or a torch.nn.Module from images to logits, got "
            f"{type(model).__name__}"
        )
    model = model if isinstance(model, Carso) else usable(model)
    refuse_meta(model)
    if any(p.is_floating_point() and p.dtype != torch.float32 for p in model.parameters()):
        raise CarsoError(f"{who} computes in float32: give it model.float()")
    return model


def check_places(path: Path | None, save_examples: Path | None, processes: Processes) -> None:
    """Refuse files that cannot be written, before hours are spent."""
    if save_examples is not None and save_examples.suffix != ".safetensors":
        raise CarsoError(f"examples are saved as .safetensors, got {save_examples.name}")
    if save_examples is not None and save_examples.is_file():
        refuse_other_tensors(save_examples)
    if processes.world_size > 1 and path is None:
        raise CarsoError("many processes share an evaluation through a file: give out")
    for place in (path, save_examples):
        if place is not None:
            check_writable(place)


def checked(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Images and labels that fit together, on the CPU."""
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        raise CarsoTypeError("images must be a float tensor (B, C, H, W) in [0, 1]")
    for what, one in (("images", images), ("labels", labels)):
        refuse_unreadable(what, one)
    if not isinstance(labels, Tensor) or labels.shape != images.shape[:1]:
        raise CarsoTypeError(
            f"labels must be a tensor of {len(images)} class numbers, one per image"
        )
    if not class_numbers(labels):
        raise CarsoError(f"labels must be whole class numbers, got others ({labels.dtype})")
    if not len(images) or not bool(((images >= 0) & (images <= 1)).all()):
        raise CarsoError("images must lie in [0, 1], at least one, without NaN")
    return images.detach().cpu().float(), labels.detach().cpu().long()


def check_labels(labels: Tensor, classes: int) -> None:
    """One line for labels of which the model knows nothing."""
    if not bool(((labels >= 0) & (labels < classes)).all()):
        raise CarsoError(
            f"labels must be class numbers from 0 to {classes - 1}, got {int(labels.min())} to "
            f"{int(labels.max())}"
        )


def class_numbers(labels: Tensor) -> bool:
    """Whether labels are whole numbers, of whatever type; none is ever rounded to one."""
    if labels.dtype == torch.bool or labels.is_complex():
        return False
    return bool((labels == labels.trunc()).all())  # false for NaN
