"""FAB (Croce and Hein 2020), targeted, through `pyautoattack`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pyautoattack.fab_pt import FABAttack_PT
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, NamedByFields, refuse_norm, verified
from carso.attacks.library import NORMS, classes_of, library_calls, seed_from
from carso.attacks.margin import WorstSoFar
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class FAB(NamedByFields):
    """Targeted FAB: the nearest mistake it finds, and that direction followed to the ball's edge.

    The nearest mistake lies on the boundary, where other noise decides otherwise; the edge does
    not.
    """

    steps: int = 30
    targets: int = 9

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(period=self.steps, norms=NORMS)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        refuse_norm(self, threat)
        worst = WorstSoFar(model, images, labels)
        everything = torch.arange(len(images), device=images.device)
        attack = FABAttack_PT(
            model,
            n_iter=self.steps,
            norm=threat.norm,
            eps=threat.eps,
            targeted=True,
            seed=seed_from(generator),
            n_target_classes=min(self.targets, classes_of(model, images) - 1),
            device=images.device,
        )
        with library_calls(generator):
            found = attack.perturb(images, labels)
        change = found - images
        size = threat.distance(found, images).clamp(min=1e-12).view(-1, 1, 1, 1)
        for examples in (found, images + change * (threat.eps / size).clamp(min=1)):
            worst.offer(threat.project(examples, images), everything)
        return verified(worst.examples, images, threat)
