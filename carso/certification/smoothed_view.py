"""What an attacker of the smoothed function differentiates (Salman et al. 2019)."""

from __future__ import annotations

import math

from torch import Tensor, nn

from carso.defence.noisy_labels import noisy, scores_of
from carso.randomness import generator


class SmoothedView(nn.Module):
    """Log-probabilities (B, K), the mean over noisy copies of each image: the votes of certificates
    have no gradient, and these do."""

    def __init__(self, model: nn.Module, *, sigma: float, copies: int, seed: int) -> None:
        super().__init__()
        self.model, self.sigma, self.copies = model, sigma, copies
        self.scores = scores_of(model)
        self.gaussian = generator(seed, "smoothed view", "gaussian")
        self.own = generator(seed, "smoothed view", "own")

    def forward(self, images: Tensor) -> Tensor:
        many = noisy(images.repeat_interleave(self.copies, dim=0), self.sigma, self.gaussian)
        logits = self.scores(many, self.own).log_softmax(dim=1)  # (B * copies, K)
        each = logits.view(len(images), self.copies, -1)
        return each.logsumexp(dim=1) - math.log(self.copies)
