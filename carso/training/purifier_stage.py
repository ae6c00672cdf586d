"""Training of the purifier as in section 5.1: the VAE loss on adversarially balanced batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pytorch_optimizer import Lookahead, RAdam
from torch import Generator, Tensor, nn

from carso.attacks.pgd import PGD
from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.defence.defence import Carso
from carso.defence.representation import Representation
from carso.distributed.processes import ALONE, Processes
from carso.distributed.synchronised_norm import synced
from carso.errors import CarsoError
from carso.purifiers.base import TrainablePurifier, as_module
from carso.randomness import generator
from carso.scenario.purifier_training_settings import PurifierTrainingSettings
from carso.threats.threat import Threat
from carso.training.batches import AdversarialBatches
from carso.training.epoch_cursor import EpochCursor, batches_in
from carso.training.loop import FIRST_STEPS, Row
from carso.training.schedules import kl_weight, three_phase

VALIDATION_IMAGES = 500


class PurifierStage:
    """The purifier's training as a `Stage`."""

    name = "purifier"
    stopped = False

    def __init__(
        self,
        classifier: nn.Module,
        purifier: TrainablePurifier,
        batches: AdversarialBatches,
        data: ImageData,
        *,
        training: PurifierTrainingSettings,
        threat: Threat,
        seed: int,
        device: torch.device,
        identity: dict[str, Any],
        processes: Processes = ALONE,
    ) -> None:
        if processes.world_size > 1 and training.free_bits:
            raise CarsoError("free_bits looks at the whole batch at once: train with --devices 1")
        self.processes = processes
        self.data, self.training, self.threat = data, training, threat
        self.seed, self.device, self.identity = seed, device, identity
        self.epochs = training.epochs
        self.classifier = freeze(classifier).to(device)
        synced(as_module(purifier), processes, device)
        self.purifier = purifier.to(device)
        self.learning = processes.data_parallel(self.purifier, "loss")
        self.representation = Representation(self.classifier, purifier.layers)
        self.batches = batches
        self.optimiser = optimiser(purifier, training)
        self.first_losses: list[float] = []
        self.cursor = EpochCursor(len(data.train), training.batch_size, processes)
        self.attacked_validation: Tensor | None = None

    def steps(self) -> int:
        return batches_in(len(self.data.train), self.training.batch_size, self.processes)

    def uses_bank(self) -> bool:
        """Whether attacked images are kept, rather than made anew each time."""
        settings = self.batches.settings
        return settings.bank != "off" and settings.fraction > 0

    def epoch(self, number: int, advance: Callable[[], None]) -> Row:
        """One pass over the training images, then a look at validation images."""
        self.batches.prepare(number)
        costs = self.pass_over_images(number, advance)
        validation = self.processes.broadcast(self.validate() if self.processes.is_first else None)
        return {**costs, "rate": three_phase(number, self.training), **validation}

    def pass_over_images(self, number: int, advance: Callable[[], None]) -> Row:
        """Train on every image once; the mean of each term of an image's loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = three_phase(number, self.training)
        source = generator(self.seed, self.name, "epoch", number)
        beta = kl_weight(number, self.training)
        cursor = self.cursor
        cursor.begin(order=source)
        self.purifier.train()
        for indices in cursor.batches(advance):
            seen = number * len(self.data.train) + cursor.seen
            part = self.processes.part(len(indices))
            mixed, clean = self.batches.batch(indices, epoch=number, seen=seen, part=part)
            with self.processes.sharing(len(indices)):
                cursor.add(**self.update(mixed, clean, beta, source))
        means = {name: total / cursor.seen for name, total in cursor.totals.items()}
        return {**means, "beta": beta}

    def update(self, mixed: Tensor, clean: Tensor, beta: float, source: Generator) -> Row:
        """One optimiser step on a batch; returns the terms of its loss, summed over the images."""
        with self.processes.autocast(self.device):
            activations = self.representation(mixed, gradients=False)
        return self.learn(mixed, clean, activations, beta, source)

    def learn(
        self,
        mixed: Tensor,
        clean: Tensor,
        activations: Sequence[Tensor],
        beta: float,
        source: Generator,
    ) -> Row:
        """The same when the activations of the mixed images are known."""
        with self.processes.autocast(self.device):
            cost = self.learning.loss(
                mixed, clean, activations, source, beta=beta, free_bits=self.training.free_bits
            )
        loss = cost.total
        self.optimiser.zero_grad()
        self.processes.backward(loss)
        self.optimiser.step()
        number = torch.full_like(loss, len(clean))
        sums = torch.stack([*cost.terms.values(), loss, number]).detach()
        *terms, whole, images = self.processes.all_reduce(sums).tolist()
        if len(self.first_losses) < FIRST_STEPS:
            self.first_losses.append(whole / images)
        return dict(zip(cost.terms, terms, strict=True))

    def validate(self) -> Row:
        """Accuracy of the defence with one sample, on clean images and on images attacked
        through the classifier alone: what the paper's training aims at, not its robustness."""
        count = min(VALIDATION_IMAGES, len(self.data.validation))
        split = self.data.validation.balanced(count)
        clean, labels = split.batch(slice(None))
        clean, labels = clean.to(self.device), labels.to(self.device)
        if self.attacked_validation is None:
            attack = PGD(steps=10, step_size=self.threat.eps / 4)
            source = generator(self.seed, self.name, "validation")
            self.attacked_validation = attack(
                self.classifier, clean, labels, threat=self.threat, generator=source
            )
        self.purifier.eval()
        defence = Carso(self.classifier, self.purifier, samples=1, max_batch=250)

        def accuracy(images: Tensor) -> float:
            defence.seed(self.seed)
            return float((defence.predict(images) == labels).float().mean())

        return {
            "validation_accuracy": accuracy(clean),
            "validation_transfer_accuracy": accuracy(self.attacked_validation),
        }

    def result(self) -> TrainablePurifier:
        """The trained purifier with Lookahead's slow weights, which are the ones to keep."""
        self.optimiser.backup_and_load_cache()
        return self.purifier.eval()

    def state(self) -> dict[str, Any]:
        return {
            "purifier": dict(self.purifier.state_dict()),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.purifier.load_state_dict(state["purifier"])
        self.optimiser.load_state_dict(state["optimiser"])


def optimiser(purifier: TrainablePurifier, training: PurifierTrainingSettings) -> Any:
    """RAdam inside Lookahead, with the paper's settings."""
    fast = RAdam(
        purifier.parameters(),
        lr=training.plateau_rate,
        betas=(training.radam_beta1, training.radam_beta2),
        eps=training.radam_eps,
        weight_decay=training.weight_decay,
    )
    return Lookahead(
        fast,
        k=training.lookahead_steps,
        alpha=training.lookahead_decay,
        pullback_momentum="none",
    )
