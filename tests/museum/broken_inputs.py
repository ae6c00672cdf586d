"""Broken defences that change the image before a classifier sees it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Before(nn.Module):
    """A classifier behind a change of its input."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.network = classifier

    def change(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        return self.network(self.change(images))  # type: ignore[no-any-return]


class Quantised(Before):
    """Pixels in 16 levels; rounding has the gradient zero."""

    def change(self, images: Tensor) -> Tensor:
        return (images * 15).round() / 15


class Thermometer(Before):
    """Pixels as 15 bits, each for one threshold, put together again before the classifier."""

    def change(self, images: Tensor) -> Tensor:
        thresholds = (torch.arange(15, device=images.device) + 0.5) / 15
        bits = (images.unsqueeze(-1) > thresholds).float()  # (B, C, H, W, 15)
        return bits.mean(dim=-1)


class Compressed(Before):
    """As JPEG does: cosine transform of 8 x 8 blocks, coefficients rounded, transformed back."""

    def change(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        down, right = -height % 8, -width % 8
        padded = F.pad(images, (0, right, 0, down), mode="replicate")
        k = torch.arange(8.0, device=images.device)
        basis = torch.cos(math.pi * (2 * k + 1) * k.unsqueeze(1) / 16) / 2
        basis[0] /= math.sqrt(2)
        blocks = padded.unfold(2, 8, 8).unfold(3, 8, 8)  # (B, C, h, w, 8, 8)
        step = 0.06 * (1 + (k + k.unsqueeze(1)) / 4)  # coarser at high frequencies
        kept = ((basis @ blocks @ basis.T) / step).round() * step
        blocks = basis.T @ kept @ basis
        whole = blocks.permute(0, 1, 2, 4, 3, 5).reshape(padded.shape)
        return whole[:, :, :height, :width].clamp(0, 1)


class Smoothed(Before):
    """A near image of smaller total variation, found by a solver without gradients."""

    def change(self, images: Tensor) -> Tensor:
        with torch.enable_grad():
            near = images.detach().clone().requires_grad_(True)
            for _ in range(10):
                across = (near[..., 1:] - near[..., :-1]).square().add(1e-4).sqrt().sum()
                along = (near[..., 1:, :] - near[..., :-1, :]).square().add(1e-4).sqrt().sum()
                away = (near - images.detach()).square().sum()
                (slope,) = torch.autograd.grad(away + 0.05 * (across + along), near)
                near = (near - 0.1 * slope).detach().requires_grad_(True)
        return near.detach().clamp(0, 1)


class Resized(Before):
    """Made smaller by a random number of pixels and put at a random place on black."""

    def change(self, images: Tensor) -> Tensor:
        side = images.shape[-1]
        small = side - int(torch.randint(0, 4, ()))
        left, top = (int(torch.randint(0, side - small + 1, ())) for _ in range(2))
        shrunk = F.interpolate(images, size=(small, small), mode="bilinear", align_corners=False)
        rest = side - small
        return F.pad(shrunk, (left, rest - left, top, rest - top))


class Shattered(Before):
    """A small sine of high frequency is added to the image: the slope of the answer is that of
    the sine."""

    def __init__(self, classifier: nn.Module, size: float = 0.02, frequency: float = 500.0) -> None:
        super().__init__(classifier)
        self.size, self.frequency = size, frequency

    def change(self, images: Tensor) -> Tensor:
        return images + self.size * torch.sin(self.frequency * images)


class Reassured(Before):
    """The image is moved, by a step or two that no gradient sees, to where the classifier is surer
    of what it says of it anyway."""

    def change(self, images: Tensor) -> Tensor:
        with torch.enable_grad():
            here = images.detach()
            answer = self.network(here).argmax(dim=1)
            for _ in range(2):
                here = here.detach().requires_grad_(True)
                doubt = F.cross_entropy(self.network(here), answer, reduction="sum")
                (slope,) = torch.autograd.grad(doubt, here)
                here = here - 0.08 * slope.sign()
        return images + (here - images).detach()
