"""Hardening: the purifier trained against attacks on the whole defence, around a frozen classifier.

The paper's purifier has only met attacks on the classifier. Here every batch is attacked through
the defence as it stands (`hardening_update.py`), and the purifier learns that the classifier
labels the candidates right: the loss is of their logits, plus a little of the reconstruction. The
latent code comes from the prior, as in use; the posterior plays no part.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pytorch_optimizer import RAdam
from torch import Generator, Tensor

from carso.classifiers.frozen import Frozen
from carso.data import ImageData, Split
from carso.defence.defence import Carso
from carso.distributed.processes import ALONE, Processes
from carso.distributed.synchronised_norm import synced
from carso.errors import CarsoError
from carso.purifiers.base import TrainablePurifier, as_module
from carso.randomness import generator
from carso.scenario.hardening_settings import HardeningSettings
from carso.threats.threat import Threat
from carso.training.accuracies import accuracy
from carso.training.attack_precision import settled_precision
from carso.training.augment import augmented
from carso.training.epoch_cursor import EpochCursor
from carso.training.guide import Guided
from carso.training.hardening_update import HardeningUpdate
from carso.training.loop import Row
from carso.training.mixing import cut_mixed
from carso.training.noise_accuracy import accuracy_under_noise
from carso.training.temperature import fitted_temperature
from carso.training.validation_attack import candidates_needed, judged


class HardeningStage(HardeningUpdate):
    """Hardening as a `Stage`; `result` gives the averaged weights of the best epoch."""

    def __init__(
        self,
        classifier: Frozen,
        purifier: TrainablePurifier,
        data: ImageData,
        *,
        hardening: HardeningSettings,
        threat: Threat,
        seed: int,
        device: torch.device,
        identity: dict[str, Any],
        final_classifier: Frozen | None = None,
        folder: Path | None = None,
        processes: Processes = ALONE,
    ) -> None:
        """`threat` is the ball of the evaluation; training attacks have `hardening.eps` if set.
        `final_classifier` serves the paper's ablation, as in `Carso`. A `folder` keeps what is
        measured when the run begins."""
        self.data, self.hardening, self.threat = data, hardening, threat
        self.seed, self.device, self.identity = seed, device, identity
        self.epochs = hardening.epochs
        self.final_classifier = final_classifier
        purifier.deployed()  # what only the paper's training needs is not trained here
        if processes.world_size > 1 and hardening.features:
            raise CarsoError("features looks at the whole batch at once: train with --devices 1")
        if processes.world_size > 1 and hardening.unpainted_epochs:
            raise CarsoError("unpainted_epochs leave weights without gradients: use --devices 1")
        if hardening.replays and hardening.loss == "trades":
            raise CarsoError('replays train on one loss alone: take another than loss = "trades"')
        by_margin = "margin" in (hardening.loss, hardening.attack_loss)
        if hardening.cutmix and by_margin and len(data.classes) < 3:
            raise CarsoError("cutmix with a margin needs three classes: two may be in one image")
        self.processes = processes
        synced(as_module(purifier), processes, device)
        self.purifier = purifier.to(device).requires_grad_(True)
        self.learning = self.purifier
        if not hardening.guide:
            self.learning = processes.data_parallel(self.purifier, "pixel_logits")
        self.averaged = copy.deepcopy(self.purifier).requires_grad_(False).eval()
        self.defence = self.around(classifier, self.purifier, samples=1)
        self.judged = self.around(classifier, self.averaged, samples=hardening.samples)
        self.guided = self.learning_guided = None
        if hardening.guide:
            self.guided = Guided(self.purifier, classes=len(data.classes), seed=seed).to(device)
            self.learning_guided = processes.data_parallel(self.guided, "painted")
        self.optimiser = RAdam(
            self.trained.parameters(), lr=hardening.rate, weight_decay=hardening.weight_decay
        )
        self.temperature = hardening.temperature or fitted_temperature(
            classifier, data.validation, device
        )
        self.step = 0
        self.first_losses: list[float] = []
        self.cursor = EpochCursor(
            len(data.train), hardening.batch_size, processes, repeats=max(1, hardening.replays)
        )
        self.best: dict[str, Tensor] = {}
        self.best_accuracy = -1.0
        self.waited = 0
        asked = hardening.attack_precision
        self.precision = settled_precision(asked, self.low_over_full, folder, processes)
        if asked == "auto":
            self.identity = {**identity, "attacks": self.precision}

    def around(self, classifier: Frozen, purifier: TrainablePurifier, *, samples: int) -> Carso:
        return Carso(
            classifier,
            purifier,
            samples=samples,
            aggregation=self.hardening.aggregation,
            final_classifier=self.final_classifier,
            anchor=self.hardening.anchor,
            seed=self.seed,
        )

    @property
    def stopped(self) -> bool:
        """Whether the validation accuracy has not risen for as long as was asked to wait."""
        return 0 < self.hardening.patience <= self.waited

    def epoch(self, number: int, advance: Callable[[], None]) -> Row:
        """One pass over the training images, then the averaged weights on validation images."""
        source = generator(self.seed, self.name, "epoch", number)
        self.defence.noise = generator(self.seed, self.name, "noise", number)
        cursor = self.cursor
        cursor.begin(order=source, noise=self.defence.noise)
        for indices in cursor.batches(advance):
            images, labels = self.data.train.batch(indices)
            images = augmented(images, self.hardening.augment, source)
            if self.hardening.cutmix:
                images, labels = cut_mixed(
                    images,
                    labels,
                    classes=len(self.data.classes),
                    share=self.hardening.cutmix,
                    source=source,
                )
            each = self.passes(len(indices))
            with self.processes.sharing(len(images)) as part:
                own, answers = images[part].to(self.device), labels[part].to(self.device)
                for found in self.updates(own, answers, source, weight=len(own) / len(images)):
                    cursor.add(found=len(indices) * found, passes=each)
        count = cursor.seen * cursor.repeats
        speed = count / cursor.elapsed()
        loss, cost, right = (cursor.totals["found"] / count).tolist()
        return {
            "loss": loss,
            "reconstruction": cost,
            "training_accuracy": right,
            "gradient_passes": cursor.totals["passes"],
            "images_per_second": speed,
            **self.validate(),
        }

    def validate(self) -> Row:
        """Accuracy of the averaged weights, clean and under an attack on the whole defence, or
        under noise; the weights are kept if no earlier ones did better there."""
        row: Row = self.processes.broadcast(self.measured() if self.processes.is_first else None)
        noise = self.hardening.against == "noise"
        found = row["validation_noise_accuracy" if noise else "validation_adaptive_accuracy"]
        self.waited = 0 if found > self.best_accuracy else self.waited + 1
        if found >= self.best_accuracy:  # of equals the later, which has learned longer
            self.best_accuracy = found
            self.best = {k: v.clone() for k, v in self.averaged.state_dict().items()}
        return row

    def measured(self) -> Row:
        """The accuracies of `validate`."""
        count = min(self.hardening.validation_images, len(self.data.validation))
        split = self.data.validation.balanced(count)
        source = generator(self.seed, self.name, "validation")
        self.judged.seed(self.seed)
        if self.hardening.against == "noise":
            return self.measured_under_noise(split, source)
        candidates = candidates_needed(self.judged, split, self.device)
        self.judged.seed(self.seed)
        accuracy, adaptive = judged(
            self.judged,
            split,
            self.device,
            threat=self.threat,
            source=source,
            candidates=candidates,
        )
        return {
            "validation_accuracy": accuracy,
            "validation_adaptive_accuracy": adaptive,
            "validation_candidates": candidates,
        }

    def measured_under_noise(self, split: Split, source: Generator) -> Row:
        """The accuracy without noise, and that of single candidates under it."""
        sigma = self.hardening.sigma
        return {
            "validation_accuracy": accuracy(self.judged, split, self.device),
            "validation_noise_accuracy": accuracy_under_noise(
                self.judged, split, self.device, sigma=sigma, source=source
            ),
        }

    def result(self) -> TrainablePurifier:
        """The purifier of the best epoch."""
        self.averaged.load_state_dict(self.best)
        return self.averaged.deployed()

    def state(self) -> dict[str, Any]:
        return {
            "purifier": dict(self.purifier.state_dict()),
            "averaged": dict(self.averaged.state_dict()),
            "best": self.best,
            "best_accuracy": self.best_accuracy,
            "waited": self.waited,
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            **({} if self.guided is None else {"guide": dict(self.guided.head.state_dict())}),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.purifier.load_state_dict(state["purifier"])
        self.averaged.load_state_dict(state["averaged"])
        if self.guided is not None:
            self.guided.head.load_state_dict(state["guide"])
        self.optimiser.load_state_dict(state["optimiser"])
        for key in ("best", "best_accuracy", "waited", "step"):
            setattr(self, key, state[key])
