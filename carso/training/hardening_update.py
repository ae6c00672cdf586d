"""What hardening does with a batch: attack the whole defence (`hardening_attack.py`), and one step
of the purifier.

The loss is of the logits of one candidate per attacked image, over a temperature, plus a little of
the reconstruction of the clean image.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.optim import Optimizer

from carso.classifiers.frozen import Frozen
from carso.purifiers.base import TrainablePurifier, as_module
from carso.purifiers.reconstruction import reconstruction_cost
from carso.training.classifier_stage import average
from carso.training.guide import Guided
from carso.training.hardening_attack import HardeningAttack
from carso.training.loop import FIRST_STEPS
from carso.training.losses import alikeness, divergence, feature_distance, wrong
from carso.training.mixing import leads, mostly
from carso.training.schedules import one_cycle
from carso.training.weight_perturbation import Weights, climbed, put_back


class HardeningUpdate(HardeningAttack):
    """The updates of a hardening, whose state is that of its `HardeningStage`."""

    final_classifier: Frozen | None
    learning: TrainablePurifier
    """The same as the purifier, for passes whose gradients are those of all processes."""
    learning_guided: Guided | None
    """The purifier with its guide, likewise, where there is one."""
    averaged: TrainablePurifier
    optimiser: Optimizer
    first_losses: list[float]

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
        self.trained.requires_grad_(True).train()
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
        climbed = wrong(logits, labels, margin=settings.attack_loss == "margin")
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
            self.trained.requires_grad_(True).train()
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

    def loss(
        self, images: Tensor, attacked: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of the classification, the mean reconstruction cost, the logits under attack."""
        settings = self.hardening
        if self.learning_guided is not None:
            return self.loss_with_guide(images, attacked, labels)
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

    def loss_with_guide(
        self, images: Tensor, attacked: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same where there is a guide, which is told by its own mistakes as well."""
        assert self.learning_guided is not None
        activations, own = self.read(attacked)
        if self.unpainted:
            told = self.learning_guided.told(activations, self.defence.noise)
            loss = self.hardening.guide * self.classification_loss(told, labels)
            return loss, torch.zeros_like(loss), told.detach()
        pixels, told = self.learning_guided.painted(activations, self.defence.noise)
        cost = reconstruction_cost(pixels, images).mean()
        logits = self.candidate_logits(pixels, own)
        loss = self.classification_loss(logits, labels)
        loss = loss + self.hardening.guide * self.classification_loss(told, labels)
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
            if self.final_classifier is None:
                return self.over_temperature(logits, own), cost
        return self.candidate_logits(pixels, own), cost
