"""How a model stands under Gaussian noise while it is trained for certificates."""

from __future__ import annotations

import torch
from torch import Generator, nn

from carso.data import Split
from carso.defence.noisy_labels import labels_of, noisy
from carso.randomness import generator

DRAWS = 4
"""Noisy copies of each image."""
PART = 250
"""Images at a time."""


@torch.no_grad()
def accuracy_under_noise(
    model: nn.Module, split: Split, device: torch.device, *, sigma: float, source: Generator
) -> float:
    """The share of noisy copies that single draws of `model` label right: the probability that a
    certificate bounds, on average over the images."""
    images, labels = split.batch(slice(None))
    label_noisy, own, right = labels_of(model), generator(source.initial_seed(), "own"), 0
    for some, answers in zip(torch.split(images, PART), torch.split(labels, PART), strict=True):
        some, answers = some.to(device), answers.to(device)
        for _ in range(DRAWS):
            found = label_noisy(noisy(some, sigma, source), own)
            right += int((found == answers).sum())
    return right / (DRAWS * len(split))
