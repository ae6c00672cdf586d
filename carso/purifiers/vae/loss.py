"""The second term of the loss of section 5.1; the first is `reconstruction_cost`."""

from __future__ import annotations

from torch import Tensor


def kl_to_prior(mean: Tensor, logvar: Tensor, *, free_bits: float = 0.0) -> Tensor:
    """KL(q(z | x, c) || N(0, I)) of each image; the second loss term of section 5.1.

    With `free_bits`, what a latent feature has of it on average over the batch is not driven below
    that many nats (Kingma et al. 2016): a remedy for a posterior that collapses.
    """
    each = 0.5 * (mean.square() + logvar.exp() - 1 - logvar)  # (B, Z)
    if free_bits:
        spent = each.mean(dim=0, keepdim=True)
        each = each * (spent > free_bits) + (free_bits * (spent <= free_bits)).expand_as(each)
    return each.sum(dim=1)
