"""AutoAttack (Croce and Hein 2020) through `pyautoattack`, as published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pyautoattack import AutoAttack as Library
from torch import Generator, Tensor

from carso.attacks.attack import AttackFacts, Model, NamedByFields, refuse_norm, verified, warn
from carso.attacks.library import CLASSES_NEEDED, NORMS, classes_of, library_calls
from carso.threats.threat import Threat


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoAttack(NamedByFields):
    """The published ensemble, unchanged: `standard` for classifiers, `rand` for noisy defences.

    With the same `seed` and the same images it gives what `pyautoattack` gives when called
    directly. Images that it does not fool come back as they were. What the library's own checks
    warn of is passed on.
    """

    version: Literal["standard", "rand"] = "standard"
    seed: int = 0

    @property
    def facts(self) -> AttackFacts:
        if self.version == "rand":
            return AttackFacts(eot=20, period=101, norms=NORMS)
        return AttackFacts(norms=NORMS)

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        refuse_norm(self, threat)
        with library_calls() as heard:
            ensemble = Library(
                model,
                eps=threat.eps,
                norm=threat.norm,
                version=self.version,
                seed=self.seed,
                device=images.device,
            )
            limit_targets(ensemble, classes_of(model, images))
            examples, _ = ensemble.run_standard_evaluation(images, labels, batch_size=len(images))
        for text in heard.found:
            warn(text)
        return verified(examples, images, threat)


def limit_targets(ensemble: Any, classes: int) -> None:
    """Nine target classes are the default; a classifier of fewer than ten has not so many.

    DLR losses compare three and four classes, so fewer than these leave the cross-entropy.
    """
    ensemble.apgd_targeted.n_target_classes = min(9, classes - 1)
    ensemble.fab.n_target_classes = min(9, classes - 1)
    needed = {"apgd-dlr": CLASSES_NEEDED["dlr"], "apgd-t": CLASSES_NEEDED["dlr-targeted"]}
    ensemble.attacks_to_run = [
        name for name in ensemble.attacks_to_run if classes >= needed.get(name, 2)
    ]
