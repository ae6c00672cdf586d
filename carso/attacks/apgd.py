"""Auto-PGD (Croce and Hein 2020), one loss at a time, through `pyautoattack`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from torch import Generator, Tensor

from carso.attacks.attack import (
    AttackFacts,
    Model,
    NamedByFields,
    refuse_norm,
    verified,
    ways_at_once,
)
from carso.attacks.library import CLASSES_NEEDED, LOGGER, NORMS, library_calls
from carso.attacks.margin import WorstSoFar
from carso.errors import CarsoError
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class APGD(NamedByFields):
    """Auto-PGD on one loss, from random starts; of each image the worst example is kept."""

    loss: Literal["ce", "dlr", "dlr-targeted"]
    steps: int = 40
    restarts: int = 1
    targets: int = 9
    """How many other classes a targeted attack aims at, the likeliest first."""

    def __post_init__(self) -> None:
        if self.loss not in CLASSES_NEEDED:
            raise CarsoError(f"the losses of APGD are ce, dlr and dlr-targeted, got {self.loss!r}")

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(classes=CLASSES_NEEDED[self.loss], period=self.steps + 1, norms=NORMS)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        refuse_norm(self, threat)
        worst = WorstSoFar(model, images, labels)
        with library_calls(generator):
            aims = self.aims(model, images, labels)
            while aims:
                many = ways_at_once(len(worst.standing))
                together, aims = aims[:many], aims[many:]
                for _ in range(self.restarts):
                    index = worst.standing
                    if not len(index):
                        return verified(worst.examples, images, threat)
                    self.run(model, worst, index, together, threat)
        return verified(worst.examples, images, threat)

    def run(
        self,
        model: Model,
        worst: WorstSoFar,
        index: Tensor,
        targets: list[Tensor | None],
        threat: Threat,
    ) -> None:
        """One run on the images at `index`, at all `targets` at once; what it finds is offered to
        `worst`."""
        aimed = [target[index] for target in targets if target is not None]
        attack = (APGDAttack_targeted if aimed else APGDAttack)(
            model,
            n_iter=self.steps,
            norm=threat.norm,
            eps=threat.eps,
            device=worst.images.device,
            logger=LOGGER,
        )
        attack.loss = self.loss
        if aimed:
            attack.y_target = torch.cat(aimed)
        many = max(1, len(aimed))
        images = worst.images[index].repeat(many, 1, 1, 1)
        labels = worst.labels[index].repeat(many)
        attack.init_hyperparam(images)
        highest_loss, _, _, fooling = attack.attack_single_run(images, labels)
        for found in (highest_loss, fooling):
            inside = threat.project(found.detach(), images)
            for examples in inside.chunk(many):
                worst.offer(examples, index)

    def aims(self, model: Model, images: Tensor, labels: Tensor) -> list[Tensor | None]:
        """The target classes in turn, (B,) each; one None for an attack without target."""
        if self.loss == "ce":
            return [None]
        with torch.no_grad():
            scores = model(images).nan_to_num(nan=-torch.inf)
        needed = CLASSES_NEEDED[self.loss]
        if scores.shape[1] < needed:
            raise CarsoError(f"the {self.loss} loss needs {needed} classes, got {scores.shape[1]}")
        if self.loss == "dlr":
            return [None]
        others = scores.scatter(1, labels.unsqueeze(1), -torch.inf).argsort(dim=1, descending=True)
        return list(others[:, : min(self.targets, scores.shape[1] - 1)].unbind(dim=1))
