"""The four steps without a choice that depends on the numbers: what can be written as a graph.

N is fixed, the noise is an input beside the images, and the batch is free. Nothing is checked in
it: images must be floats in [0, 1] of the right shape.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from carso.defence.aggregation import Reduction
from carso.defence.defence import Carso
from carso.errors import CarsoError
from carso.randomness import given_noise

LARGEST = 700.0
"""exp of more overflows float64."""


class ExportGraph(nn.Module):
    """Images (B, C, H, W) and standard normal noise (B, D) to log-probabilities (B, K) and labels
    (B,)."""

    def __init__(self, defence: Carso, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        if defence.aggregation not in REDUCTIONS:
            raise CarsoError(
                f"the aggregation {defence.aggregation!r} cannot be exported; "
                f"there are {', '.join(REDUCTIONS)}"
            )
        self.defence, self.image_shape = defence, image_shape
        self.classifier, self.purifier = defence.final_classifier, defence.purifier
        self.reduction = REDUCTIONS[defence.aggregation]
        self.generator = Generator()  # never asked: the noise is given

    def forward(self, images: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        with given_noise(noise):
            scores = self.reduction(self.logits(images))
        return scores.log_softmax(dim=1).float(), scores.argmax(dim=1)

    def logits(self, images: Tensor) -> Tensor:
        """Steps 1 to 3: the logits that are aggregated, (N, B, K) in float64."""
        activations, own = self.defence.representation.with_logits(images)
        candidates = self.purifier.sample(activations, self.defence.samples, self.generator)
        found = self.classifier(candidates.flatten(0, 1))  # (N * B, K)
        apart = found.unflatten(0, candidates.shape[:2])
        return self.defence.anchored(apart, own).double()

    @torch.no_grad()
    def noise_size(self) -> int:
        """D: the normal numbers that an image takes."""
        reference = next(self.classifier.parameters(), torch.empty(0))
        with given_noise() as counting:
            self.logits(torch.full((1, *self.image_shape), 0.5).to(reference.device))
        return counting.taken


def sum_of_exponentials(logits: Tensor) -> Tensor:
    """s = sum_a exp(l^a), of which the double exponential is the softmax. In float64 that is as
    good as the exact way of `aggregation.double_exponential` for logits up to about 30."""
    return logits.clamp(max=LARGEST).exp().sum(dim=0)


def mean_of_probabilities(logits: Tensor) -> Tensor:
    return logits.log_softmax(dim=-1).logsumexp(dim=0) - math.log(logits.shape[0])


def mean_of_logits(logits: Tensor) -> Tensor:
    return logits.mean(dim=0)


REDUCTIONS: dict[str, Reduction] = {
    "double-exponential": sum_of_exponentials,
    "mean-logits": mean_of_logits,
    "anchored": mean_of_logits,
    "mean-probabilities": mean_of_probabilities,
}
"""The aggregations that have a graph; a majority vote has no probabilities worth exporting."""
