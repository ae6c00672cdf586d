"""The attacks of a hardening: on the whole defence as it stands, in a ball that may grow."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from carso.attacks.pgd import PGD
from carso.data import ImageData
from carso.defence.aggregation import join
from carso.defence.defence import Carso
from carso.defence.noisy_labels import noisy
from carso.distributed.processes import Processes
from carso.machine.timing import ratio
from carso.purifiers.base import TrainablePurifier, as_module
from carso.randomness import SHARE, Share, generator, only
from carso.scenario.hardening_settings import HardeningSettings
from carso.threats.threat import Threat
from carso.training.epoch_cursor import batches_in
from carso.training.guide import Guided
from carso.training.losses import climb, disagreement_attack, margin_attack, wrong

MEASURED_IMAGES = 16
"""Of the short attacks that find out which precision is faster."""


class HardeningAttack:
    """What is attacked, how far and in how many steps, now; the state is that of its
    `HardeningStage`."""

    name = "hardening"
    data: ImageData
    hardening: HardeningSettings
    threat: Threat
    seed: int
    device: torch.device
    epochs: int
    processes: Processes
    purifier: TrainablePurifier
    """The one that learns."""
    defence: Carso
    """Around it, with one candidate."""
    guided: Guided | None
    """The purifier and its guide, where there is one."""
    temperature: float
    precision: str
    step: int

    def steps(self) -> int:
        return batches_in(len(self.data.train), self.hardening.batch_size, self.processes)

    def updates_in(self, epochs: float) -> float:
        """How many optimiser steps so many epochs have."""
        return epochs * self.steps() * max(1, self.hardening.replays)

    def left_clean(self, count: int) -> int:
        """How many images of a batch are not attacked."""
        return math.floor(self.hardening.clean_share * count)

    def attack_steps(self) -> int:
        """Of the coming attack; in the last epochs there may be more."""
        settings = self.hardening
        if settings.against == "noise":
            return 0
        if self.step < self.updates_in(self.epochs - settings.end_epochs):
            return settings.attack_steps
        return settings.attack_steps_end or settings.attack_steps

    def some_attacked(self, images: Tensor, labels: Tensor, source: Generator) -> Tensor:
        """The images, but for those that are left clean, under attack. The first of a batch are;
        of many processes each has its part of both."""
        share = SHARE.get() or Share(slice(None), len(images))
        clean = self.left_clean(share.total)
        if not clean:
            return self.attacked(images, labels, source)
        chosen = (share.numbers() >= clean).nonzero().flatten()
        # A process with no image to attack draws along with the others all the same.
        worked = chosen if len(chosen) else torch.tensor([0])
        with only(worked, len(images)):
            found = self.attacked(images[worked], labels[worked], source)
        mixed = images.clone()
        if len(chosen):
            mixed[chosen] = found
        return mixed

    def attacked(self, images: Tensor, labels: Tensor, source: Generator) -> Tensor:
        """The images, attacked through a view of the defence as it stands, or under noise."""
        if self.hardening.against == "noise":
            return noisy(images, self.hardening.sigma * self.grown(), source)
        self.trained.requires_grad_(False).eval()  # no statistics move, no gradients but pixels'
        settings, threat = self.hardening, self.threat_now()
        scores = self.defence.view(settings.view)

        def view(images: Tensor) -> Tensor:
            return scores(images) / self.temperature  # type: ignore[no-any-return]

        steps = self.attack_steps()
        size = settings.attack_step_size * threat.eps / self.training_threat.eps
        size *= settings.attack_steps / steps
        low = self.precision == "bfloat16" or torch.is_autocast_enabled(self.device.type)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=low):
            if self.guided is not None:
                return climb(
                    lambda attacked: self.guided_loss(attacked, labels),
                    images,
                    threat=threat,
                    steps=steps,
                    step_size=size,
                    generator=source,
                )
            if settings.loss == "trades":
                return disagreement_attack(
                    view, images, threat=threat, steps=steps, step_size=size, generator=source
                )
            if settings.attack_loss == "margin":
                return margin_attack(
                    view,
                    images,
                    labels,
                    threat=threat,
                    steps=steps,
                    step_size=size,
                    generator=source,
                )
            attack = PGD(steps=steps, step_size=size)
            return attack(view, images, labels, threat=threat, generator=source)

    def guided_loss(self, attacked: Tensor, labels: Tensor) -> Tensor:
        """What an attack climbs where there is a guide: its mistakes, and later those of the whole
        defence as well."""
        assert self.guided is not None
        defence, margin = self.defence, self.hardening.attack_loss == "margin"
        activations, own = defence.representation.seen(attacked, logits=defence.own_counts)
        if self.guiding:
            return wrong(self.guided.told(activations, defence.noise), labels, margin=margin)
        pixels, told = self.guided.painted(activations, defence.noise)
        found = wrong(self.candidate_logits(pixels, own), labels, margin=margin)
        return found + self.hardening.guide * wrong(told, labels, margin=margin)

    def candidate_logits(self, pixels: Tensor, own: Tensor | None) -> Tensor:
        """What the final classifier says of candidates, given before their sigmoid."""
        return self.over_temperature(self.defence.final_classifier(pixels.sigmoid()), own)

    def over_temperature(self, logits: Tensor, own: Tensor | None) -> Tensor:
        """Logits (B, K) of candidates, with the classifier's own on the input where they count,
        over the temperature."""
        if own is not None:
            logits = join(logits, own, self.hardening.anchor)
        return logits.float() / self.temperature

    def low_over_full(self) -> float:
        """The time of a training attack in bfloat16 over that in float32, here and now."""
        images, labels = self.data.train.batch(slice(MEASURED_IMAGES))
        images, labels = images.to(self.device), labels.to(self.device)

        def attack(precision: str) -> None:
            self.precision = precision
            source = generator(self.seed, self.name, "precision")
            self.attacked(images, labels, source).sum().item()  # a GPU is waited for

        return ratio(lambda: attack("float32"), lambda: attack("bfloat16"), turns=3)

    @property
    def rebuilding(self) -> bool:
        """Whether it still learns nothing but to rebuild clean images."""
        return self.step < self.updates_in(self.hardening.reconstruct_epochs)

    @property
    def guiding(self) -> bool:
        """Whether only the guide is attacked as yet."""
        return self.step < self.updates_in(self.hardening.guide_epochs)

    @property
    def unpainted(self) -> bool:
        """Whether no candidate is painted as yet."""
        return self.step < self.updates_in(self.hardening.unpainted_epochs)

    @property
    def trained(self) -> nn.Module:
        """All that learns: the purifier, and its guide."""
        return as_module(self.purifier) if self.guided is None else self.guided

    @property
    def training_threat(self) -> Threat:
        own = self.hardening.eps
        return self.threat.with_eps(own) if own else self.threat

    def threat_now(self) -> Threat:
        """The ball of the training attacks, which grows over the first epochs where asked."""
        return self.training_threat.scaled(self.grown())

    def grown(self) -> float:
        """The share of their full size that attacks or noise have by now."""
        growing = self.updates_in(self.hardening.eps_epochs)
        grown = self.step + 1 - self.updates_in(self.hardening.reconstruct_epochs)
        return min(1.0, max(1.0, grown) / growing) if growing else 1.0  # measured before it grows
