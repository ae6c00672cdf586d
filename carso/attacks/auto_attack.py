"""AutoAttack (Croce and Hein 2020) through `pyautoattack`: as published, and in its parts.

The library draws from torch's global generator and seeds it. Every call here runs inside
`library_calls`, which gives the library a seed of ours and restores the generator afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pyautoattack import AutoAttack as Library
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from pyautoattack.fab_pt import FABAttack_PT
from pyautoattack.square import SquareAttack
from torch import Generator, Tensor

from carso.attacks.gradient import Model, verified
from carso.attacks.margin import WorstSoFar
from carso.errors import CarsoError
from carso.threats.linf import Linf

LOGGER = logging.getLogger("auto-attack")


class Warnings(logging.Handler):
    """Keeps what the library warns of, each message once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self.found:
            self.found.append(text)


@contextmanager
def library_calls(generator: Generator | None = None) -> Iterator[Warnings]:
    """Seed torch's global generator for the library, restore it, and collect its warnings."""
    heard = Warnings()
    propagate, level = LOGGER.propagate, LOGGER.level
    LOGGER.addHandler(heard)
    LOGGER.propagate = False
    LOGGER.setLevel(logging.WARNING)
    try:
        with torch.random.fork_rng():
            if generator is not None:
                torch.manual_seed(seed_from(generator))
            yield heard
    finally:
        LOGGER.removeHandler(heard)
        LOGGER.propagate = propagate
        LOGGER.setLevel(level)


def seed_from(generator: Generator) -> int:
    """A seed for a library, drawn from `generator`."""
    return int(torch.randint(2**31, (1,), generator=generator, device=generator.device))


@dataclass(frozen=True, kw_only=True, slots=True)
class AutoAttack:
    """The published ensemble, unchanged: `standard` for classifiers, `rand` for noisy defences.

    With the same `seed` and the same images it gives what `pyautoattack` gives when called
    directly. Images that it does not fool come back as they were.
    """

    version: Literal["standard", "rand"] = "standard"
    seed: int = 0
    heard: list[str] = field(default_factory=list, compare=False)
    """What the library's own checks warned of, filled by the calls."""

    @property
    def eot(self) -> int:
        return 20 if self.version == "rand" else 1

    @property
    def period(self) -> int:
        return 101 if self.version == "rand" else 0

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor:
        with library_calls() as heard:
            ensemble = Library(
                model, eps=threat.eps, version=self.version, seed=self.seed, device=images.device
            )
            limit_targets(ensemble, classes_of(model, images))
            examples, _ = ensemble.run_standard_evaluation(images, labels, batch_size=len(images))
        self.heard.extend(text for text in heard.found if text not in self.heard)
        return verified(examples, images, threat)


def classes_of(model: Model, images: Tensor) -> int:
    with torch.no_grad():
        return int(model(images[:1]).shape[1])


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


CLASSES_NEEDED = {"ce": 2, "dlr": 3, "dlr-targeted": 4}
"""How many classes a loss compares."""


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
    def period(self) -> int:
        return self.steps + 1

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor:
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
        self, model: Model, worst: WorstSoFar, index: Tensor, target: Tensor | None, threat: Linf
    ) -> None:
        """One run on the images at `index`; what it finds is offered to `worst`."""
        kind = APGDAttack if target is None else APGDAttack_targeted
        attack = kind(
            model, n_iter=self.steps, eps=threat.eps, device=worst.images.device, logger=LOGGER
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


@dataclass(frozen=True, kw_only=True, slots=True)
class FAB:
    """Targeted FAB: the nearest mistake it finds, and that direction followed to the ball's edge.

    The nearest mistake lies on the boundary, where other noise decides otherwise; the edge does
    not.
    """

    steps: int = 30
    targets: int = 9

    @property
    def period(self) -> int:
        return self.steps

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor:
        worst = WorstSoFar(model, images, labels)
        everything = torch.arange(len(images), device=images.device)
        attack = FABAttack_PT(
            model,
            n_iter=self.steps,
            eps=threat.eps,
            targeted=True,
            seed=seed_from(generator),
            n_target_classes=min(self.targets, classes_of(model, images) - 1),
            device=images.device,
        )
        with library_calls(generator):
            found = attack.perturb(images, labels)
        change = found - images
        size = change.abs().amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-12)
        for examples in (found, images + change * (threat.eps / size).clamp(min=1)):
            worst.offer(threat.project(examples, images), everything)
        return verified(worst.examples, images, threat)


@dataclass(frozen=True, kw_only=True, slots=True)
class Square:
    """The black box: random squares, kept when the margin falls (Andriushchenko et al. 2020)."""

    queries: int = 5000

    @property
    def period(self) -> int:
        return 0

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Linf, generator: Generator
    ) -> Tensor:
        def answered(batch: Tensor) -> Tensor:
            # The library asks about no images at all where its first guess leaves none standing.
            return model(batch) if len(batch) else model(images[:1])[:0]

        attack = SquareAttack(
            answered,
            n_queries=self.queries,
            eps=threat.eps,
            seed=seed_from(generator),
            resc_schedule=self.queries < 5000,  # fewer queries, the same schedule in them
            device=images.device,
        )
        with torch.no_grad(), library_calls(generator):
            found = attack.perturb(images, labels)
        return verified(threat.project(found, images), images, threat)
