"""Broken defences that change what a classifier answers, or how it computes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class After(nn.Module):
    """A classifier with a change of its logits."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.network = classifier


class Hot(After):
    """Logits 100 times as large as a softmax wants, which is what training at a temperature of 100
    and answering at 1 makes of them; probabilities are the answer."""

    def forward(self, images: Tensor) -> Tensor:
        return (100 * self.network(images)).softmax(dim=1)  # type: ignore[no-any-return]


class Saturated(After):
    """Probabilities cut off near 0 and 1: where a classifier is sure, all have the slope zero."""

    def forward(self, images: Tensor) -> Tensor:
        return (5 * self.network(images)).softmax(dim=1).clamp(0.001, 0.999)  # type: ignore[no-any-return]


class Labels(After):
    """Labels, and nothing else."""

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images).argmax(dim=1)  # type: ignore[no-any-return]


class Detector(After):
    """Answers at random where the classifier says another thing of the blurred image, which it
    takes for an attack."""

    def forward(self, images: Tensor) -> Tensor:
        logits = self.network(images)
        with torch.no_grad():
            blurred = self.network(F.avg_pool2d(images, 3, stride=1, padding=1))
            suspect = (blurred.softmax(dim=1) - logits.softmax(dim=1)).abs().sum(dim=1) > 1.2
        return torch.where(suspect.unsqueeze(1), 10 * torch.rand_like(logits), logits)


class Memory(After):
    """Adds a constant to the right class of the images it was given to remember, wherever it sees
    one of them or its like."""

    def __init__(self, classifier: nn.Module, images: Tensor, labels: Tensor, near: float) -> None:
        super().__init__(classifier)
        self.register_buffer("images", images)
        self.register_buffer("labels", labels)
        self.near = near

    images: Tensor
    labels: Tensor

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        known, apart = self.images.flatten(1), images.detach().flatten(1)
        distance = torch.cdist(apart, known, p=float("inf"))  # (B, M)
        nearest, which = distance.min(dim=1)
        bonus = 20.0 * F.one_hot(self.labels[which], logits.shape[1])
        return logits + bonus * (nearest <= self.near).unsqueeze(1)


class Decoy(After):
    """The classifier's own scores, and on the way back the gradient of another network, that of
    weights made anew."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__(classifier)
        self.other = deepcopy(classifier)
        source = torch.Generator().manual_seed(0)
        for parameter in self.other.parameters():
            spread = float(parameter.detach().std(correction=0))
            parameter.data += spread * torch.randn(parameter.shape, generator=source)

    def forward(self, images: Tensor) -> Tensor:
        other: Tensor = self.other(images)
        return self.network(images).detach() + (other - other.detach())  # type: ignore[no-any-return]


class Watching(After):
    """Keeps what it was asked; to whatever is near an older question it gives the older answer."""

    most = 1000

    def __init__(self, classifier: nn.Module, near: float) -> None:
        super().__init__(classifier)
        self.near = near
        self.seen: list[tuple[Tensor, Tensor]] = []

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        answers, asked = [], images.detach().flatten(1)
        for question, answer in zip(asked, logits, strict=True):
            old = [a for q, a in self.seen if float((q - question).abs().max()) <= self.near]
            answers.append(old[0] + 0 * answer if old else answer)
            if not old and len(self.seen) < self.most:
                self.seen.append((question, answer.detach()))
        return torch.stack(answers)


class FewDraws(nn.Module):
    """Noise in the first layer; the probabilities of four passes are averaged."""

    def __init__(self, classifier: nn.Module, size: float = 0.3, draws: int = 4) -> None:
        super().__init__()
        self.network, self.draws = deepcopy(classifier), draws
        first = next(m for m in self.network.modules() if isinstance(m, nn.Conv2d))

        def noisy(module: nn.Module, given: Any, made: Tensor) -> Tensor:
            return made + size * made.detach().std() * torch.randn_like(made)

        first.register_forward_hook(noisy)

    def forward(self, images: Tensor) -> Tensor:
        passes = torch.stack([self.network(images).softmax(dim=1) for _ in range(self.draws)])
        return passes.mean(dim=0).clamp(min=1e-12).log()


class Thinned(nn.Module):
    """A copy of the classifier in which the inputs of its convolutions are changed."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.network = deepcopy(classifier)
        convolutions = [m for m in self.network.modules() if isinstance(m, nn.Conv2d)]
        for convolution in convolutions[1:]:
            convolution.register_forward_pre_hook(lambda module, given: (self.thin(given[0]),))

    def thin(self, activations: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)  # type: ignore[no-any-return]


class Pruned(Thinned):
    """Activations are drawn, the larger ones more likely, and what is drawn is made larger by as
    much."""

    def thin(self, activations: Tensor) -> Tensor:
        size = activations.detach().abs().flatten(1)
        share = size / size.sum(dim=1, keepdim=True).clamp(min=1e-12)
        kept = 1 - (1 - share) ** size.shape[1]  # as many draws as there are activations
        drawn = (torch.rand_like(kept) < kept) / kept.clamp(min=1e-6)
        return activations * drawn.view_as(activations)


class Winners(Thinned):
    """Only the largest two fifths of a layer's activations is passed on."""

    share = 0.4

    def thin(self, activations: Tensor) -> Tensor:
        size = activations.detach().abs().flatten(1)
        count = max(1, int(self.share * size.shape[1]))
        smallest = size.topk(count, dim=1).values[:, -1:]
        return activations * (size >= smallest).view_as(activations)
