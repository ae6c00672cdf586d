"""What hardening does with a batch: attack the whole defence, and one step of the purifier.

The loss is of the logits of one candidate per attacked image, over a temperature, plus a little of
the reconstruction of the clean image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.optim import Optimizer

from carso.attacks.pgd import PGD
from carso.classifiers.frozen import Frozen
from carso.data import ImageData
from carso.defence.aggregation import join
from carso.defence.defence import Carso
from carso.distributed.processes import Processes
from carso.machine.timing import ratio
from carso.purifiers.base import TrainablePurifier, as_module
from carso.purifiers.reconstruction import reconstruction_cost
from carso.randomness import SHARE, Share, generator, only
from carso.scenario.training_settings import HardeningSettings
from carso.threats.threat import Threat
from carso.training.classifier_stage import average
from carso.training.epoch_cursor import batches_in
from carso.training.loop import FIRST_STEPS
from carso.training.losses import (
    alikeness,
    disagreement_attack,
    divergence,
    feature_distance,
    margin_attack,
)
from carso.training.mixing import leads, mostly
from carso.training.schedules import one_cycle
from carso.training.weight_perturbation import Weights, climbed, put_back

MEASURED_IMAGES = 16
"""Of the short attacks that find out which precision is faster."""


class HardeningUpdate:
    """The updates of a hardening, whose state is that of its `HardeningStage`."""

    name = "hardening"
    data: ImageData
    hardening: HardeningSettings
    threat: Threat
    seed: int
    device: torch.device
    epochs: int
    processes: Processes
    final_classifier: Frozen | None
    purifier: TrainablePurifier
    """The one that learns."""
    learning: TrainablePurifier
    """The same, for passes whose gradients are those of all processes."""
    averaged: TrainablePurifier
    defence: Carso
    """Around the one that learns, with one candidate."""
    optimiser: Optimizer
    temperature: float
    precision: str
    step: int
    first_losses: list[float]

    def steps(self) -> int:
        return batches_in(len(self.data.train), self.hardening.batch_size, self.processes)

    def updates_in(self, epochs: float) -> float:
        """How many optimiser steps so many epochs have."""
        return epochs * self.steps() * max(1, self.hardening.replays)

    def passes(self, count: int) -> int:
        """Gradients through the whole defence that a batch of `count` images costs at present."""
        if self.rebuilding:
            return count
        if self.hardening.replays:
            return 2 * count  # of each update: the attack's and the weights', from one forward pass
        both = self.hardening.loss == "trades"  # the loss is then of the clean image as well
        perturbed = self.hardening.weight_perturbation > 0  # the loss is then taken twice
        attacked = count - self.left_clean(count)
        return self.attack_steps() * attacked + (1 + both) * (1 + perturbed) * count

    def left_clean(self, count: int) -> int:
        """How many images of a batch are not attacked."""
        return math.floor(self.hardening.clean_share * count)

    def attack_steps(self) -> int:
        """Of the coming attack; in the last epochs there may be more."""
        settings = self.hardening
        if self.step < self.updates_in(self.epochs - settings.end_epochs):
            return settings.attack_steps
        return settings.attack_steps_end or settings.attack_steps

    def updates(
        self, images: Tensor, labels: Tensor, source: Generator, *, weight: float
    ) -> Iterator[Tensor]:
        """What a batch, of which these images are a share of `weight`, is trained on: once under
        attack, or with replays several times, each one step of attack further."""
        if not self.hardening.replays:
            yield self.update(images, labels, source, weight=weight)
            return
        attacked = self.threat_now().random_start(images, source)
        for _ in range(self.hardening.replays):
            if self.rebuilding:
                yield self.update(images, labels, source, weight=weight)
                continue
            self.set_rate()
            found, attacked = self.replay(images, attacked, labels, weight=weight)
            yield found

    def replay(
        self, images: Tensor, attacked: Tensor, labels: Tensor, *, weight: float
    ) -> tuple[Tensor, Tensor]:
        """One update, and the images attacked one step further, both from one forward pass."""
        settings, threat = self.hardening, self.threat_now()
        self.purifier.requires_grad_(True).train()
        attacked = attacked.detach().requires_grad_(True)
        with self.processes.autocast(self.device):
            activations, own = self.defence.representation.seen(
                attacked, logits=self.defence.own_counts
            )
            outputs = [*activations, *([] if own is None else [own])]
            leaves = [output.detach().requires_grad_(True) for output in outputs]
            joined = None if own is None else leaves[-1]
            logits, cost = self.classified(leaves[: len(activations)], joined, images)
            loss = self.classification_loss(logits, labels)
        if settings.attack_loss == "margin":
            climbed = -leads(logits, labels).sum()
        else:
            climbed = F.cross_entropy(logits, labels, reduction="sum")
        at_leaves = torch.autograd.grad(climbed, leaves, retain_graph=True)
        found = self.apply(loss, cost, logits.detach(), labels, weight=weight)
        (gradient,) = torch.autograd.grad(outputs, attacked, at_leaves)
        size = settings.attack_step_size * threat.eps / self.training_threat.eps
        moved = attacked.detach() + threat.ascend(gradient, size)
        return found, threat.project(moved, images)

    def set_rate(self) -> None:
        """The rate of the coming update."""
        progress = self.step / self.updates_in(self.epochs)
        for group in self.optimiser.param_groups:
            group["lr"] = one_cycle(
                progress,
                peak=self.hardening.rate,
                warmup=self.hardening.warmup,
                end=self.hardening.rate_end,
            )

    def update(
        self, images: Tensor, labels: Tensor, source: Generator, *, weight: float = 1.0
    ) -> Tensor:
        """One optimiser step on a batch, of which these images are a share of `weight`; the
        batch's loss, mean reconstruction cost and accuracy."""
        self.set_rate()
        with self.processes.autocast(self.device):
            attacked = images if self.rebuilding else self.some_attacked(images, labels, source)
            self.purifier.requires_grad_(True).train()
            before = self.at_worst_weights(images, attacked, labels, weight=weight)
            loss, cost, logits = self.loss(images, attacked, labels)
        return self.apply(loss, cost, logits, labels, weight=weight, before=before)

    def at_worst_weights(
        self, images: Tensor, attacked: Tensor, labels: Tensor, *, weight: float
    ) -> Weights:
        """Put the weights where they are worst nearby, if that is asked for; what they were."""
        gamma = self.hardening.weight_perturbation
        if not gamma or self.rebuilding:
            return []

        def climb() -> None:
            self.optimiser.zero_grad()
            loss, *_ = self.loss(images, attacked, labels)
            self.processes.backward(weight * loss)

        return climbed(as_module(self.purifier), gamma, climb)

    def apply(
        self,
        loss: Tensor,
        cost: Tensor,
        logits: Tensor,
        labels: Tensor,
        *,
        weight: float,
        before: Weights | None = None,
    ) -> Tensor:
        """One optimiser step down the loss of a share of the batch, from the weights `before` where
        it was taken at others; the whole batch's figures."""
        self.optimiser.zero_grad()
        whole = weight * self.hardening.reconstruction * cost
        if not self.rebuilding:
            whole = whole + weight * loss
        self.processes.backward(whole)
        put_back(before or [])
        self.optimiser.step()
        self.step += 1
        average(
            as_module(self.averaged),
            as_module(self.purifier),
            decay=self.hardening.average,
            step=self.step,
        )
        right = (logits.argmax(dim=1) == mostly(labels)).float().mean()
        found = self.processes.all_reduce(
            weight * torch.stack([loss.detach(), cost.detach(), right])
        )
        if len(self.first_losses) < FIRST_STEPS:
            self.first_losses.append(float(found[0]))
        return found.cpu()

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
        """The images, attacked through a view of the defence as it stands."""
        self.purifier.requires_grad_(False).eval()  # no statistics move, no gradients but pixels'
        settings, threat = self.hardening, self.threat_now()
        scores = self.defence.view(settings.view)

        def view(images: Tensor) -> Tensor:
            return scores(images) / self.temperature  # type: ignore[no-any-return]

        steps = self.attack_steps()
        size = settings.attack_step_size * threat.eps / self.training_threat.eps
        size *= settings.attack_steps / steps
        low = self.precision == "bfloat16" or torch.is_autocast_enabled(self.device.type)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=low):
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
    def training_threat(self) -> Threat:
        own = self.hardening.eps
        return self.threat.with_eps(own) if own else self.threat

    def threat_now(self) -> Threat:
        """The ball of the training attacks, which grows over the first epochs where asked."""
        growing = self.updates_in(self.hardening.eps_epochs)
        grown = self.step + 1 - self.updates_in(self.hardening.reconstruct_epochs)
        share = min(1.0, max(1.0, grown) / growing) if growing else 1.0  # measured before it grows
        return self.training_threat.scaled(share)

    def loss(
        self, images: Tensor, attacked: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of the classification, the mean reconstruction cost, the logits under attack."""
        settings = self.hardening
        if settings.loss == "trades":
            both = self.read(torch.cat([images, attacked]))
            logits, cost = self.classified(*both, images.repeat(2, 1, 1, 1))
            clean, logits = logits.chunk(2)
            loss = F.cross_entropy(clean, labels, label_smoothing=settings.label_smoothing)
            loss = loss + settings.trades_weight * divergence(clean, logits)
        else:
            logits, cost = self.classified(*self.read(attacked), images)
            loss = self.classification_loss(logits, labels)
        return loss, cost, logits.detach()

    def classification_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What wrong labels of the candidates cost, on average."""
        if self.hardening.loss == "margin":
            return F.softplus(-leads(logits, labels)).mean()
        return F.cross_entropy(logits, labels, label_smoothing=self.hardening.label_smoothing)

    @torch.no_grad()
    def read(self, inputs: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """The activations, and the classifier's own logits where they count."""
        return self.defence.representation.seen(inputs, logits=self.defence.own_counts)

    def classified(
        self, activations: list[Tensor], own: Tensor | None, clean: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, K) of one candidate per image over the temperature, and how far the candidates
        are from `clean`: as images, and where asked as the classifier's activations."""
        defence, settings = self.defence, self.hardening
        pixels = self.learning.pixel_logits(activations, defence.noise)
        cost = reconstruction_cost(pixels, clean).mean()
        if settings.spread:
            other = self.learning.pixel_logits(activations, defence.noise)
            cost = cost + alikeness(pixels.sigmoid(), other.sigmoid(), wanted=settings.spread)
        if settings.features:
            seen, logits = defence.representation.with_logits(pixels.sigmoid())
            wanted = defence.representation(clean, gradients=False)
            cost = cost + settings.features * feature_distance(seen, wanted)
        if not settings.features or self.final_classifier is not None:
            logits = defence.final_classifier(pixels.sigmoid())
        if own is not None:
            logits = join(logits, own, settings.anchor)
        return logits.float() / self.temperature, cost
