"""Whether a brought classifier knows these images at all, asked before hours are spent on it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from carso.data import ImageData
from carso.errors import CarsoError

IMAGES = 500
"""Of validation. Of ten classes, an accuracy of 0.13 is then above chance beyond doubt."""
FEWEST = 50
"""Of fewer images, a count says too little to refuse anyone."""
DOUBT = 0.01
"""How often a classifier that only guesses may pass for one that does not."""
BATCH = 100


def refuse_chance(classifier: nn.Module, data: ImageData, device: torch.device) -> None:
    """Refuse a classifier that labels clean validation images no better than a guess would.

    It is refused if a binomial test cannot tell it from guessing the commonest class, and if it is
    less than twice as good as that. What makes it see the images right, where something simple
    does, is said.
    """
    split = data.validation.balanced(min(IMAGES, len(data.validation)))
    images, labels = split.batch(slice(None))
    if len(labels) < FEWEST:
        return
    answers = predicted(classifier, images, device)
    right = int((answers == labels).sum())
    chance = int(torch.bincount(labels).max()) / len(labels)
    if right >= 2 * chance * len(labels) or at_least(right, len(labels), chance) < DOUBT:
        return
    why = likely_reason(classifier, data, images, labels, device)
    raise CarsoError(
        f"the classifier labels {right} of {len(labels)} clean validation images of {data.name} "
        f"right, and a guess {chance:.0%}: {why}; "
        "to go on nevertheless, say --allow-any-accuracy (in Python check_accuracy=False)"
    )


@torch.no_grad()
def predicted(
    classifier: nn.Module,
    images: Tensor,
    device: torch.device,
    change: Callable[[Tensor], Tensor] = lambda images: images,
) -> Tensor:
    """The label of each image, (n,), on the CPU."""
    parts = [
        classifier(change(part).to(device)).argmax(dim=1).cpu()
        for part in torch.split(images, BATCH)
    ]
    return torch.cat(parts)


def at_least(right: int, count: int, chance: float) -> float:
    """The probability of so many right answers, or more, by guessing."""
    if chance >= 1:
        return 1.0
    logs = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        + k * math.log(chance) + (count - k) * math.log1p(-chance)
        for k in range(right, count + 1)
    ]  # fmt: skip
    return math.fsum(map(math.exp, logs))


def likely_reason(
    classifier: nn.Module, data: ImageData, images: Tensor, labels: Tensor, device: torch.device
) -> str:
    """What is wrong, where trying it out shows it; else what it usually is."""
    mean, std = (torch.tensor(value).view(-1, 1, 1) for value in (data.mean, data.std))
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "normalised by the data set's mean and std": lambda x: (x - mean) / std,
        "in [-1, 1]": lambda x: 2 * x - 1,
        "in [0, 255]": lambda x: 255 * x,
    }
    for what, change in changes.items():
        share = float((predicted(classifier, images, device, change) == labels).float().mean())
        if share > 0.5:
            return (
                f"it labels {share:.0%} right if images are {what}, so it must do that itself: it "
                "is given images in [0, 1]"
            )
    agreeing = renamed(predicted(classifier, images, device), labels)
    if agreeing > 0.5:
        return f"it would label {agreeing:.0%} right if its classes were in another order"
    return (
        "it may want images normalised (it is given them in [0, 1] and must do that itself), have "
        "its classes in another order, or be made for another data set"
    )


def renamed(answers: Tensor, labels: Tensor) -> float:
    """The share of right answers if each answered class meant the class that it met most; of two
    that would mean the same, the one that met it less means nothing."""
    classes = int(max(answers.max(), labels.max())) + 1
    met = torch.zeros(classes, classes, dtype=torch.int64)
    met.index_put_((answers, labels), torch.ones_like(labels), accumulate=True)
    most, meaning = met.max(dim=1)
    right: dict[int, int] = {}
    for answer in most.argsort(descending=True).tolist():
        right.setdefault(int(meaning[answer]), int(most[answer]))
    return sum(right.values()) / len(labels)
