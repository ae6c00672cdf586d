"""The randomised function that is certified: the label of one candidate of a noisy image.

Let f(z, u) be the label that a defence gives to the image z when its own noise is u, and let
h_c(z) = P_u(f(z, u) = c). Smoothing asks for the probability of class c at x + sigma * noise,
which is the mean of h_c over the noise. The theorem of Cohen et al. (2019), in the form of Salman
et al. (2019), holds for any measurable h_c with values in [0, 1], so the defence's own noise is
just part of the function. What it needs is that draws are independent: each has Gaussian noise and
a candidate of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from carso.defence.noisy_labels import Labels
from carso.randomness import generator


class Votes:
    """Counts the labels of noisy copies of one image; a seed and a name decide every draw."""

    def __init__(
        self,
        labels: Labels,
        image: Tensor,
        *,
        sigma: float,
        classes: int,
        batch: int,
        seed: int,
        path: tuple[str | int, ...],
    ) -> None:
        self.labels, self.image = labels, image
        self.sigma, self.classes, self.batch = sigma, classes, batch
        self.gaussian = generator(seed, "certificate", "gaussian", *path)
        self.own = generator(seed, "certificate", "own", *path)

    @torch.no_grad()
    def count(self, draws: int) -> Tensor:
        """The votes of `draws` more noisy copies, int64 (K,)."""
        found = torch.zeros(self.classes, dtype=torch.int64)
        for start in range(0, draws, self.batch):
            size = min(self.batch, draws - start)
            noise = torch.randn((size, *self.image.shape), generator=self.gaussian)
            noisy = self.image + self.sigma * noise.to(self.image)
            found += torch.bincount(self.labels(noisy, self.own).cpu(), minlength=self.classes)
        return found
