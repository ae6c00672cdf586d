"""The conditional VAE: encodes a representation once, decodes as many candidates as wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor, nn

from carso.errors import CarsoError
from carso.machine.microbatches import in_microbatches
from carso.purifiers.base import PurifierLoss
from carso.purifiers.reconstruction import reconstruction_cost
from carso.purifiers.vae.conditioning import HALF, Conditioning
from carso.purifiers.vae.decoder import Decoder
from carso.purifiers.vae.loss import kl_to_prior
from carso.purifiers.vae.posterior import Posterior
from carso.randomness import normal


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconstruction:
    """What training sees of a batch."""

    logits: Tensor
    """The reconstructed images before the sigmoid, (B, C, H, W)."""
    mean: Tensor
    logvar: Tensor


class VAEPurifier(nn.Module):
    """The paper's purifier, for a representation of `layers` with these activation `shapes`."""

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        *,
        layers: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        condition: int = 512,
        latent: int = 128,
        decoder_width: int = 256,
        stages: int = 0,
        encoder_ratio: float = HALF,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        self.image_shape, self.layers, self.latent = image_shape, tuple(layers), latent
        stages = stages or (3 if max(image_shape[1:]) <= 32 else 4)
        self.conditioning = Conditioning(
            shapes, features=condition, stages=stages, ratio=encoder_ratio
        )
        self.decoder = Decoder(image_shape, latent=latent, condition=condition, width=decoder_width)
        self.posterior: Posterior | None = Posterior(
            image_shape, latent=latent, condition=condition, mean=mean, std=std
        )

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        """`samples` candidates per image, (N, B, C, H, W) in [0, 1]; z comes from the prior.

        The condition is encoded once. Noise is drawn image by image, so that a batch that is
        cut in two draws what it would have drawn whole (torch draws normals in blocks of 16, so
        this holds where N times the latent size is a multiple of 16).
        """
        count = activations[0].shape[0]
        return self.decode(activations, self.draw(count, samples, generator, like=activations[0]))

    def draw(self, count: int, samples: int, generator: Generator, *, like: Tensor) -> Tensor:
        """Latent codes from the prior for `count` images, (N, B, Z)."""
        return normal((count, samples, self.latent), like, generator).transpose(0, 1)

    def decode(self, activations: Sequence[Tensor], noise: Tensor) -> Tensor:
        """The candidates (N, B, C, H, W) that `noise` (N, B, Z) makes of these activations."""
        condition = self.conditioning(activations)  # (B, F)
        repeated = condition.expand(len(noise), -1, -1)  # (N, B, F), no copy
        candidates = in_microbatches(self.decoder, noise.flatten(0, 1), repeated.flatten(0, 1))
        return candidates.unflatten(0, noise.shape[:2])  # type: ignore[no-any-return, no-untyped-call]

    def pixel_logits(self, activations: Sequence[Tensor], generator: Generator) -> Tensor:
        """One candidate per image before the sigmoid, (B, C, H, W); z comes from the prior."""
        latent = self.draw(len(activations[0]), 1, generator, like=activations[0])[0]
        return self.decoder.logits(latent, self.conditioning(activations)).float()

    def reconstruct(
        self, images: Tensor, activations: Sequence[Tensor], generator: Generator
    ) -> Reconstruction:
        """One reconstruction per image with z from the posterior, as in training."""
        if self.posterior is None:
            raise CarsoError(
                "this purifier is deployed, without its posterior: it can sample, not be trained"
            )
        condition = self.conditioning(activations)
        mean, logvar = self.posterior(images, condition)
        latent = mean + torch.exp(0.5 * logvar) * normal(tuple(mean.shape), mean, generator)
        return Reconstruction(
            logits=self.decoder.logits(latent, condition), mean=mean, logvar=logvar
        )

    def loss(
        self,
        images: Tensor,
        clean: Tensor,
        activations: Sequence[Tensor],
        generator: Generator,
        *,
        beta: float,
        free_bits: float,
    ) -> PurifierLoss:
        """The loss of section 5.1: binary cross-entropy plus `beta` times the KL divergence."""
        result = self.reconstruct(images, activations, generator)
        cost = reconstruction_cost(result.logits.float(), clean).sum()
        mean, logvar = result.mean.float(), result.logvar.float()  # in 16 bits a small KL is noise
        divergence = penalty = kl_to_prior(mean, logvar).sum()
        if free_bits:
            penalty = kl_to_prior(mean, logvar, free_bits=free_bits).sum()
        return PurifierLoss(
            total=cost + beta * penalty, terms={"reconstruction": cost, "kl": divergence}
        )

    def deployed(self) -> Self:
        """This purifier without its posterior, in evaluation mode and without gradients of its
        own."""
        self.posterior = None
        return self.eval().requires_grad_(False)
