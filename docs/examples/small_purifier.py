"""A purifier of one's own, as small as it gets: three convolutions and noise.

In a scenario file beside it: [purifier], kind = "small_purifier:SmallPurifier", width = 16.
"""

import torch
import torch.nn.functional as F
from torch import nn

from carso.purifiers.base import PurifierLoss
from carso.randomness import normal


class SmallPurifier(nn.Module):
    """Reads the first of its layers, which must be a map, and rebuilds the image from it."""

    def __init__(self, image_shape, *, layers, shapes, width=16):
        super().__init__()
        self.image_shape, self.layers = image_shape, tuple(layers)
        self.network = nn.Sequential(
            nn.Conv2d(shapes[0][0] + 1, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, image_shape[0], 3, padding=1),
        )

    def pixel_logits(self, activations, generator):
        """One candidate per image, before the sigmoid: (B, C, H, W)."""
        seen = F.interpolate(activations[0], size=self.image_shape[1:])
        # Noise is drawn by carso, with the images along the first side.
        noise = normal((len(seen), 1, *self.image_shape[1:]), seen, generator)
        return self.network(torch.cat([seen, noise], dim=1))

    def sample(self, activations, samples, generator):
        """Candidates (N, B, C, H, W) in [0, 1]."""
        drawn = [self.pixel_logits(activations, generator) for _ in range(samples)]
        return torch.stack(drawn).sigmoid()

    def loss(self, images, clean, activations, generator, *, beta, free_bits):
        """How far the rebuilt images are from the clean ones, summed over the batch."""
        logits = self.pixel_logits(activations, generator)
        cost = F.binary_cross_entropy_with_logits(logits, clean, reduction="sum")
        return PurifierLoss(total=cost, terms={"reconstruction": cost})

    def deployed(self):
        """As it is used: nothing here serves training alone."""
        return self.eval().requires_grad_(False)
