"""The certificates of many images: each kept when it is made, and shared among processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from carso.certification.certificate import Certificate, Smoothing, certify_image
from carso.certification.smoothing import Votes
from carso.defence.noisy_labels import labels_of
from carso.distributed.processes import Processes
from carso.evaluation.protocol import Counted
from carso.evaluation.resume import FinishedResults

DECIDED = ("all draws", "hopeless", "wrong")


@dataclass(frozen=True, kw_only=True)
class Certified:
    """A model in evaluation mode, and the images around which it is certified."""

    model: nn.Module
    images: Tensor
    """Where the model is."""
    labels: Tensor
    smoothing: Smoothing
    seed: int
    classes: int

    @property
    def passes(self) -> torch.autocast:
        """The precision in which the networks run."""
        return Processes(precision=self.smoothing.precision).autocast(self.images.device)

    def labels_seen(self, noisy: Tensor, noise: Generator) -> Tensor:
        """How the model labels noisy images, one draw of its own noise for each."""
        with self.passes:
            return labels_of(self.model)(noisy, noise)

    def votes(self, index: int, what: str) -> Votes:
        """The votes on one image; draws of another name are independent of them."""
        return Votes(
            self.labels_seen,
            self.images[index],
            sigma=self.smoothing.sigma,
            classes=self.classes,
            batch=self.smoothing.batch,
            seed=self.seed,
            path=(what, index),
        )

    def certificate(self, index: int, finished: FinishedResults) -> Certificate:
        """The certificate of one image, made or read."""

        def make() -> dict[str, Tensor]:
            found = certify_image(
                self.votes(index, "select"),
                self.votes(index, "estimate"),
                self.smoothing,
                label=int(self.labels[index]),
            )
            numbers = [found.selected, found.votes, found.spent, DECIDED.index(found.decided)]
            return {
                "counts": torch.tensor(numbers),
                "radius": torch.tensor(found.radius, dtype=torch.float64),
            }

        tensors = finished.get_or_compute(f"image-{index:06d}", make)
        selected, count, spent, decided = tensors["counts"].tolist()
        return Certificate(
            selected=selected,
            votes=count,
            spent=spent,
            radius=float(tensors["radius"]),
            decided=DECIDED[decided],
        )

    def all_of_them(
        self, finished: FinishedResults, counted: Counted, processes: Processes
    ) -> list[Certificate]:
        """The certificate of each image, shared among the processes; finished ones are not made
        again."""
        own = range(processes.rank, len(self.images), processes.world_size)
        left = [index for index in own if finished.kept(f"image-{index:06d}") is None]
        if left:
            advance = counted("certificates", len(left))
        for index in left:
            self.certificate(index, finished)
            advance(1)
        processes.barrier()
        return [self.certificate(index, finished) for index in range(len(self.images))]
