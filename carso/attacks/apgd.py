"""Auto-PGD (Croce and Hein 2020), one loss at a time, through `pyautoattack`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, identity_of, refuse_norm, verified
from carso.attacks.library import CLASSES_NEEDED, LOGGER, NORMS, library_calls
from carso.attacks.margin import WorstSoFar
from carso.errors import CarsoError
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class APGD:
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

    def identity(self) -> dict[str, Any]:
        return identity_of(self)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        refuse_norm(self, threat)
        worst = WorstSoFar(model, images, labels)
        with library_calls(generator):
            for target in self.aims(model, images, labels):
                for _ in range(self.restarts):
                    index = worst.standing
                    if not len(index):
                        break
                    self.run(model, worst, index, target, threat)
        return verified(worst.examples, images, threat)

    def run(
        self, model: Model, worst: WorstSoFar, index: Tensor, target: Tensor | None, threat: Threat
    ) -> None:
        """One run on the images at `index`; what it finds is offered to `worst`."""
        kind = APGDAttack if target is None else APGDAttack_targeted
        attack = kind(
            model,
            n_iter=self.steps,
            norm=threat.norm,
            eps=threat.eps,
            device=worst.images.device,
            logger=LOGGER,
        )
        attack.loss = self.loss
        if target is not None:
            attack.y_target = target[index]
        images, labels = worst.images[index], worst.labels[index]
        attack.init_hyperparam(images)
        highest_loss, _, _, fooling = attack.attack_single_run(images, labels)
        for found in (highest_loss, fooling):
            worst.offer(threat.project(found.detach(), images), index)

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
