"""The randomised function that is certified: the label of one candidate of a noisy image.

Let f(z, u) be the label that a defence gives to the image z when its own noise is u, and let
h_c(z) = P_u(f(z, u) = c). Smoothing asks for the probability of class c at x + sigma * noise,
which is the mean of h_c over the noise. The theorem of Cohen et al. (2019), in the form of Salman
et al. (2019), holds for any measurable h_c with values in [0, 1], so the defence's own noise is
just part of the function. What it needs is that draws are independent: each has Gaussian noise and
a candidate of its own.

In floating point, x + noise is not Gaussian around x: how it is rounded depends on x, finely near
zero, and an attacker can make use of that (Voracek and Hein 2023). So the sum is made in float64,
and then rounded to a grid that is the same everywhere (`on_grid`). Rounding to a fixed grid is a
function of the noisy image, so it is part of f. What is left of the trouble is that a sum in
float64 may fall on the other side of a border of the grid than the exact one. `ROUNDING` bounds
the probability of that, and certificates subtract it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from carso.defence.noisy_labels import Labels
from carso.randomness import generator

GRID = 2.0**16
"""Steps of the grid in a unit of the pixel scale; up to 2**8 float32 holds every one exactly."""
ROUNDING = 2.0**-28
"""Above the probability, for each number of an image, that float64 rounds it to another step than
exact arithmetic would. Where |x + noise| < 16, the sum errs by less than 2**-47. The exact one is
that near to a border, of which there are 2**16 in a unit, with probability below 2**-47 * 2 * 2**16
= 2**-30, but for a density that is nearly even between two of them."""


def on_grid(image: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """Copies of `image` under `noise` (B, C, H, W) in float64, each rounded to the grid; float32,
    nothing clipped."""
    summed = torch.add(image.double(), noise, alpha=sigma)
    return summed.mul_(GRID).round_().div_(GRID).float()


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
        self.labels, self.image, self.device = labels, image.cpu(), image.device
        self.sigma, self.classes, self.batch = sigma, classes, batch
        self.gaussian = generator(seed, "certificate", "gaussian", *path)
        self.own = generator(seed, "certificate", "own", *path)

    @torch.no_grad()
    def count(self, draws: int) -> Tensor:
        """The votes of `draws` more noisy copies, int64 (K,)."""
        found = torch.zeros(self.classes, dtype=torch.int64)
        for start in range(0, draws, self.batch):
            noisy = self.noisy(min(self.batch, draws - start)).to(self.device)
            found += torch.bincount(self.labels(noisy, self.own).cpu(), minlength=self.classes)
        return found

    def noisy(self, count: int) -> Tensor:
        """The next noisy copies, (count, C, H, W)."""
        shape = (count, *self.image.shape)
        noise = torch.randn(shape, generator=self.gaussian, dtype=torch.float64)
        return on_grid(self.image, noise, self.sigma)
