"""How a defence stands while it is trained: an attack that is short, but not masked."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from carso.attacks.averaging import draws_needed, gradient_likeness
from carso.attacks.margin import Margin
from carso.data import Split
from carso.defence.defence import Carso
from carso.threats.threat import Threat

VALIDATION_ATTACK = Margin(steps=20)
"""Of the accuracy that decides which weights are kept; not an evaluation."""
PART = 100
"""Images at a time."""
PILOT, MOST = 50, 16
"""Images that tell how many candidates it averages in a step, and the most of them."""


def attacked(
    defence: Carso,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    source: Generator,
    candidates: int = 1,
) -> Tensor:
    """The images, attacked through the defence's mean logits, so many candidates a step."""
    view = defence.view("mean-logits", samples=candidates)
    return VALIDATION_ATTACK(view, images, labels, threat=threat, generator=source)


def candidates_needed(defence: Carso, split: Split, device: torch.device) -> int:
    """How many candidates the attack must average in a step, so that the defence's own noise does
    not hide from it where to go: of a defence that makes something of its noise, one sees little.
    """
    images, labels = split.batch(slice(min(PILOT, len(split))))
    view = defence.view("mean-logits", samples=1)
    alike = gradient_likeness(view, images.to(device), labels.to(device))
    return draws_needed(alike, most=MOST)


def judged(
    defence: Carso,
    split: Split,
    device: torch.device,
    *,
    threat: Threat,
    source: Generator,
    candidates: int = 1,
) -> tuple[float, float]:
    """Accuracy of a defence, clean and under this attack: the share that is labelled right without
    and with it."""
    images, labels = split.batch(slice(None))
    right = torch.zeros(2)
    for some, answers in zip(torch.split(images, PART), torch.split(labels, PART), strict=True):
        some, answers = some.to(device), answers.to(device)
        worst = attacked(
            defence, some, answers, threat=threat, source=source, candidates=candidates
        )
        clean = defence.predict(some) == answers
        standing = clean & (defence.predict(worst) == answers)
        right += torch.stack([clean.sum(), standing.sum()]).cpu()
    accuracy, adaptive = (right / len(split)).tolist()
    return accuracy, adaptive


def by_samples(
    defence: Carso, split: Split, *, counts: tuple[int, ...], threat: Threat, source: Generator
) -> dict[int, float]:
    """Accuracy under this attack, of the same examples, with other numbers of candidates."""
    images, labels = split.batch(slice(None))
    right = dict.fromkeys(counts, 0)
    own = defence.samples
    for some, answers in zip(torch.split(images, PART), torch.split(labels, PART), strict=True):
        worst = attacked(defence, some, answers, threat=threat, source=source)
        for count in counts:
            defence.samples = count
            right[count] += int((defence.predict(worst) == answers).sum())
        defence.samples = own
    return {count: found / len(split) for count, found in right.items()}
