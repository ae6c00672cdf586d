"""Square (Andriushchenko et al. 2020), the black box, through `pyautoattack`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pyautoattack.square import SquareAttack
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, NamedByFields, refuse_norm, verified
from carso.attacks.library import NORMS, library_calls, seed_from
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class Square(NamedByFields):
    """The black box: random squares, kept when the margin falls (Andriushchenko et al. 2020)."""

    queries: int = 5000

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(black_box=True, norms=NORMS)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        refuse_norm(self, threat)

        def answered(batch: Tensor) -> Tensor:
            # The library asks about no images at all where its first guess leaves none standing.
            return model(batch) if len(batch) else model(images[:1])[:0]

        attack = SquareAttack(
            answered,
            n_queries=self.queries,
            norm=threat.norm,
            eps=threat.eps,
            seed=seed_from(generator),
            resc_schedule=self.queries < 5000,  # fewer queries, the same schedule in them
            device=images.device,
        )
        with torch.no_grad(), library_calls(generator):
            found = attack.perturb(images, labels)
        return verified(threat.project(found, images), images, threat)
