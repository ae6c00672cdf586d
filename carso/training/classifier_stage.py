"""Adversarial training of a classifier, for those who bring none.

SGD with Nesterov momentum under a one-cycle rate, on PGD examples (Madry et al. 2018) or with the
TRADES loss (Zhang et al. 2019); the weights that are kept are an exponential average over steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.attacks.pgd import PGD
from carso.classifiers.registry import placed
from carso.data import ImageData
from carso.defence.noisy_labels import noisy
from carso.distributed.processes import ALONE, Processes
from carso.distributed.synchronised_norm import synced
from carso.randomness import generator
from carso.scenario.classifier_training_settings import ClassifierTrainingSettings
from carso.threats.threat import Threat
from carso.training.accuracies import accuracy, accuracy_under_pgd
from carso.training.augment import augmented
from carso.training.epoch_cursor import EpochCursor, batches_in
from carso.training.loop import FIRST_STEPS, Row
from carso.training.losses import disagreement_attack, divergence
from carso.training.noise_accuracy import accuracy_under_noise
from carso.training.schedules import one_cycle

ATTACKED_VALIDATION_IMAGES = 500


class ClassifierStage:
    """The classifier's training as a `Stage`; `averaged` is the result."""

    name = "classifier"
    stopped = False

    def __init__(
        self,
        classifier: nn.Module,
        data: ImageData,
        *,
        training: ClassifierTrainingSettings,
        threat: Threat,
        seed: int,
        device: torch.device,
        identity: dict[str, Any],
        processes: Processes = ALONE,
    ) -> None:
        self.processes = processes
        self.training, self.threat, self.seed, self.device = training, threat, seed, device
        self.data, self.identity, self.epochs = data, identity, training.epochs
        self.classifier = placed(synced(classifier, processes, device), device)
        self.learning = processes.data_parallel(self.classifier)
        self.averaged: nn.Module = copy.deepcopy(self.classifier).requires_grad_(False).eval()
        self.optimiser = torch.optim.SGD(
            self.classifier.parameters(),
            lr=training.learning_rate,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            nesterov=training.momentum > 0,
        )
        self.step = 0
        self.first_losses: list[float] = []
        self.cursor = EpochCursor(len(data.train), training.batch_size, processes)

    def steps(self) -> int:
        return batches_in(len(self.data.train), self.training.batch_size, self.processes)

    def epoch(self, number: int, advance: Callable[[], None]) -> Row:
        """One pass over the training images, then the averaged weights on validation images."""
        source = generator(self.seed, self.name, "epoch", number)
        self.cursor.begin(order=source)
        for indices in self.cursor.batches(advance):
            images, labels = self.data.train.batch(indices)
            images = augmented(images, self.training.augment, source)
            with self.processes.sharing(len(images)) as part:
                own, answers = images[part].to(self.device), labels[part].to(self.device)
                loss = self.update(own, answers, source, weight=len(own) / len(images))
            self.cursor.add(loss=loss)
        validation = self.processes.broadcast(self.validate() if self.processes.is_first else None)
        return {"loss": float(self.cursor.totals["loss"]) / self.steps(), **validation}

    def update(
        self, images: Tensor, labels: Tensor, source: Generator, *, weight: float = 1.0
    ) -> Tensor:
        """One optimiser step on a batch, of which these images are a share of `weight`; returns
        the batch's loss."""
        progress = self.step / (self.steps() * self.epochs)
        for group in self.optimiser.param_groups:
            group["lr"] = one_cycle(
                progress, peak=self.training.learning_rate, warmup=self.training.warmup
            )
        with self.processes.autocast(self.device):
            loss = weight * self.loss(images, labels, source)
        self.optimiser.zero_grad()
        self.processes.backward(loss)
        self.optimiser.step()
        self.step += 1
        average(self.averaged, self.classifier, decay=self.training.average, step=self.step)
        whole = self.processes.all_reduce(loss.detach().clone())
        if len(self.first_losses) < FIRST_STEPS:
            self.first_losses.append(float(whole))
        return whole

    def loss(self, images: Tensor, labels: Tensor, source: Generator) -> Tensor:
        """The loss of the chosen method, with attacks made against the classifier as it stands."""
        smoothing = self.training.label_smoothing
        if self.training.method in ("clean", "noise"):
            self.classifier.train()
            images = noisy(images, self.training.sigma, source) if self.training.sigma else images
            return F.cross_entropy(self.learning(images), labels, label_smoothing=smoothing)
        self.classifier.eval()  # the attack must not move the batch-norm statistics
        self.classifier.requires_grad_(False)
        if self.training.method == "pgd":
            attack = PGD(steps=self.training.attack_steps, step_size=self.training.attack_step_size)
            attacked = attack(self.classifier, images, labels, threat=self.threat, generator=source)
        else:
            attacked = disagreement_attack(
                self.classifier,
                images,
                threat=self.threat,
                steps=self.training.attack_steps,
                step_size=self.training.attack_step_size,
                generator=source,
            )
        self.classifier.requires_grad_(True)
        self.classifier.train()
        if self.training.method == "pgd":
            return F.cross_entropy(self.learning(attacked), labels, label_smoothing=smoothing)
        logits = self.learning(images)
        natural = F.cross_entropy(logits, labels, label_smoothing=smoothing)
        return natural + self.training.trades_weight * divergence(logits, self.learning(attacked))

    def validate(self) -> Row:
        """Accuracy of the averaged weights on validation images, clean and under PGD or noise."""
        validation, sigma = self.data.validation, self.training.sigma
        count = min(ATTACKED_VALIDATION_IMAGES, len(validation))
        source = generator(self.seed, self.name, "validation")
        if self.training.method == "noise":
            under = accuracy_under_noise(
                self.averaged, validation.balanced(count), self.device, sigma=sigma, source=source
            )
            clean = accuracy(self.averaged, validation, self.device)
            return {"validation_accuracy": clean, "validation_noise_accuracy": under}
        return {
            "validation_accuracy": accuracy(self.averaged, validation, self.device),
            "validation_pgd_accuracy": accuracy_under_pgd(
                self.averaged,
                validation.balanced(count),
                self.device,
                threat=self.threat,
                source=source,
            ),
        }

    def state(self) -> dict[str, Any]:
        return {
            "classifier": dict(self.classifier.state_dict()),
            "averaged": dict(self.averaged.state_dict()),
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.classifier.load_state_dict(state["classifier"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step = state["step"]


@torch.no_grad()
def average(averaged: nn.Module, current: nn.Module, *, decay: float, step: int) -> None:
    """Move `averaged` towards `current`; early on faster, so that the start is soon forgotten."""
    decay = min(decay, (1 + step) / (10 + step))
    own = averaged.state_dict()
    for name, value in current.state_dict().items():
        if value.is_floating_point():
            own[name].lerp_(value, 1 - decay)
        else:
            own[name].copy_(value)
