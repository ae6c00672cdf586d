"""Training of the purifier as in section 5.1: the VAE loss on adversarially balanced batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from pytorch_optimizer import Lookahead, RAdam
from torch import Generator, Tensor, nn

from carso.attacks.gradient import PGD
from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.defence.defence import Carso
from carso.defence.representation import Representation
from carso.distributed.processes import ALONE, Processes
from carso.distributed.synchronised_norm import synced
from carso.errors import CarsoError
from carso.purifiers.reconstruction import reconstruction_cost
from carso.purifiers.vae.loss import kl_to_prior
from carso.purifiers.vae.vae import VAEPurifier
from carso.randomness import generator
from carso.scenario.training_settings import PurifierTrainingSettings
from carso.threats.linf import Linf
from carso.training.batches import AdversarialBatches
from carso.training.loop import FIRST_STEPS, Row, batches_in, shuffled
from carso.training.schedules import kl_weight, three_phase

VALIDATION_IMAGES = 500


class PurifierStage:
    """The purifier's training as a `Stage`."""

    name = "purifier"
    stopped = False

    def __init__(
        self,
        classifier: nn.Module,
        purifier: VAEPurifier,
        batches: AdversarialBatches,
        data: ImageData,
        *,
        training: PurifierTrainingSettings,
        threat: Linf,
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
        synced(purifier, processes, device)
        self.purifier = purifier.to(device)
        self.representation = Representation(self.classifier, purifier.layers)
        self.batches = batches
        self.optimiser = optimiser(purifier, training)
        self.first_losses: list[float] = []
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
        """Train on every image once; the mean reconstruction cost and KL of an image."""
        for group in self.optimiser.param_groups:
            group["lr"] = three_phase(number, self.training)
        source = generator(self.seed, self.name, "epoch", number)
        beta = kl_weight(number, self.training)
        totals = torch.zeros(2)
        count = 0
        self.purifier.train()
        for indices in shuffled(
            len(self.data.train), self.training.batch_size, source, self.processes
        ):
            seen = number * len(self.data.train) + count
            part = self.processes.part(len(indices))
            mixed, clean = self.batches.batch(indices, epoch=number, seen=seen, part=part)
            with self.processes.sharing(len(indices)):
                totals += self.update(mixed, clean, beta, source)
            count += len(indices)
            advance()
        reconstruction, divergence = (totals / count).tolist()
        return {"reconstruction": reconstruction, "kl": divergence, "beta": beta}

    def update(self, mixed: Tensor, clean: Tensor, beta: float, source: Generator) -> Tensor:
        """One optimiser step on a batch; returns its summed reconstruction cost and KL."""
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
    ) -> Tensor:
        """The same when the activations of the mixed images are known."""
        with self.processes.autocast(self.device):
            result = self.purifier.reconstruct(mixed, activations, source)
        cost = reconstruction_cost(result.logits.float(), clean).sum()
        mean, logvar = result.mean.float(), result.logvar.float()  # in 16 bits a small KL is noise
        divergence = penalty = kl_to_prior(mean, logvar).sum()
        if free := self.training.free_bits:
            penalty = kl_to_prior(mean, logvar, free_bits=free).sum()
        loss = self.training.loss_scale * (cost + beta * penalty)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.processes.all_reduce_gradients(self.purifier.parameters())
        self.optimiser.step()
        number = torch.full_like(cost, len(clean))
        sums = torch.stack([cost.detach(), divergence.detach(), loss.detach(), number])
        sums = self.processes.all_reduce(sums).cpu()
        if len(self.first_losses) < FIRST_STEPS:
            self.first_losses.append(float(sums[2] / sums[3]))
        return sums[:2]

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

    def result(self) -> VAEPurifier:
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


def optimiser(purifier: VAEPurifier, training: PurifierTrainingSettings) -> Any:
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
