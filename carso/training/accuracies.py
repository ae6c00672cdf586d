"""Quick looks at accuracy during and after training; they are not an evaluation.

PGD against the classifier says how robust the classifier is, roughly. It says nothing of how
robust a defence is, because it does not attack the defence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from carso.attacks.attack import Attack
from carso.attacks.pgd import PGD
from carso.data import ImageData, Split
from carso.defence.defence import Carso
from carso.randomness import generator
from carso.threats.threat import Threat

ATTACKED_TEST_IMAGES = 1000


def accuracies(
    defence: Carso, data: ImageData, *, threat: Threat, seed: int, device: torch.device
) -> dict[str, Any]:
    """Accuracy of a finished classifier and its defence on validation and test images."""
    found: dict[str, Any] = {
        "data": data.name,
        "fingerprint": data.fingerprint,
        "seed": seed,
        "samples": defence.samples,
        "attack": f"PGD on the classifier, 10 steps of eps/4, random start, eps = {threat.eps:g}",
    }
    for name, split in (("validation", data.validation), ("test", data.test)):
        attacked = split.balanced(min(ATTACKED_TEST_IMAGES, len(split)))
        defence.seed(seed)
        found[name] = {
            "images": len(split),
            "classifier": accuracy(defence.classifier, split, device),
            "defence": accuracy(defence, split, device, batch=64),
            "classifier_under_pgd": accuracy_under_pgd(
                defence.classifier,
                attacked,
                device,
                threat=threat,
                source=generator(seed, "accuracies", name),
            ),
            "images_under_pgd": len(attacked),
        }
    return found


@torch.no_grad()
def accuracy(
    model: Callable[[Tensor], Tensor], split: Split, device: torch.device, *, batch: int = 250
) -> float:
    """Share of the images of `split` that `model` labels right."""
    right = 0
    for start in range(0, len(split), batch):
        images, labels = split.batch(slice(start, start + batch))
        right += int((model(images.to(device)).argmax(dim=1).cpu() == labels).sum())
    return right / len(split)


def accuracy_under_pgd(
    model: Callable[[Tensor], Tensor],
    split: Split,
    device: torch.device,
    *,
    threat: Threat,
    source: Generator,
    attack: Attack | None = None,
    batch: int = 250,
) -> float:
    """The same on images attacked by PGD (or `attack`) against `model`: a quick look, not an
    evaluation."""
    attack = attack or PGD(steps=10, step_size=threat.eps / 4)
    right = 0
    for start in range(0, len(split), batch):
        images, labels = split.batch(slice(start, start + batch))
        images, labels = images.to(device), labels.to(device)
        attacked = attack(model, images, labels, threat=threat, generator=source)
        with torch.no_grad():
            right += int((model(attacked).argmax(dim=1) == labels).sum())
    return right / len(split)
