"""An evaluation in progress: the images, who attacks them, and the worst example of each."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from carso.attacks.attack import Attack, listening, room_for, verified
from carso.attacks.probe import Fooled, Probe
from carso.evaluation.attacked_model import AttackedModel, AttackedView, Verdict, verdict
from carso.evaluation.planned_attacks import PlannedAttack
from carso.evaluation.resume import as_tensor
from carso.randomness import generator, seeded
from carso.threats.threat import Threat

CPU = torch.device("cpu")
CONFIRMATIONS = 3
"""Verdicts more on an example that every draw of the first got wrong; if one of their draws is
right, the next attacks go on with the image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one attack did to some images, as tensors that can be kept in a file."""

    chunk: Tensor
    """The number of the chunk of images."""
    index: Tensor
    """Which images of the chunk were attacked, int64 (n,)."""
    examples: Tensor
    """(n, C, H, W)."""
    right: Tensor
    """Draws that label each example right, int64 (n,)."""
    confirmed: Tensor
    """Whether more draws agree that an example which no draw labels right is wrong, bool (n,)."""
    margin: Tensor
    """(n,), on the scale of logits."""
    gradients: Tensor
    """Counts (4, steps), see `attacks.probe.KINDS`."""
    counts: Tensor
    """Forward passes, backward passes, outputs, outputs that are not finite."""
    seconds: Tensor
    library_warnings: Tensor
    """Warnings of the attack library, packed."""
    fooled: Tensor
    """Whether any pass that the attack made of an image, on the way, was wrong, bool (n,)."""


@dataclass(slots=True)
class WorstExamples:
    """Of each image of a set, the worst example so far and who made it."""

    images: Tensor
    examples: Tensor
    right: Tensor
    confirmed: Tensor
    margin: Tensor
    attack: list[str]

    @classmethod
    def of(cls, images: Tensor, clean: Verdict, confirmed: Tensor) -> WorstExamples:
        right, nobody = clean.right.clone(), [""] * len(images)
        return cls(images, images.clone(), right, confirmed, clean.margin.clone(), nobody)

    def update(self, outcome: Outcome, name: str) -> None:
        """Keep what is worse for the defence: fewer draws right, none for sure, a smaller margin.

        An image that comes back as it was is no example, whatever other noise says of it.
        """
        for i, place in enumerate(outcome.index.tolist()):
            if torch.equal(outcome.examples[i], self.images[place]):
                continue
            before = (int(self.right[place]), not self.confirmed[place], float(self.margin[place]))
            found = (int(outcome.right[i]), not outcome.confirmed[i], float(outcome.margin[i]))
            if found < before:
                self.examples[place] = outcome.examples[i]
                self.right[place], self.margin[place] = outcome.right[i], outcome.margin[i]
                self.confirmed[place] = outcome.confirmed[i]
                self.attack[place] = name

    @property
    def standing(self) -> Tensor:
        """Images that at least one draw still labels right, or may."""
        return ((self.right > 0) | ~self.confirmed).nonzero().flatten()

    def weakest(self, share: float) -> Tensor:
        """A share of the standing images, in order: those with the smallest margins."""
        standing = self.standing
        count = math.ceil(share * len(standing))
        order = self.margin[standing].nan_to_num(nan=-math.inf).argsort(stable=True)
        return standing[order[:count]].sort().values


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Everything that decides a result, besides the list of attacks."""

    model: AttackedModel
    images: Tensor
    labels: Tensor
    threat: Threat
    seed: int
    draws: int
    samples: int
    """Candidates that give an attack on this model a good gradient."""
    classes: int
    device: torch.device = CPU
    gradients: bool = True
    """Whether the model's scores depend on its images in a way that can be differentiated; if not,
    it can only be asked."""

    def judge(
        self, images: Tensor, labels: Tensor, *path: str | int, draws: int | None = None
    ) -> Verdict:
        """The verdict of fresh draws; `path` names the occasion."""
        return verdict(
            self.model,
            images.to(self.device),
            labels.to(self.device),
            draws=draws or self.draws,
            seed=self.seed,
            path=path,
        )

    def confirm(self, found: Verdict, images: Tensor, labels: Tensor, *path: str | int) -> Tensor:
        """Of each image, whether more draws agree that none labels it right: bool (B,)."""
        confirmed = found.right == 0
        for number in range(CONFIRMATIONS if self.model.stochastic else 0):
            index = confirmed.nonzero().flatten()
            if not len(index):
                break
            again = self.judge(images[index], labels[index], *path, "again", number)
            confirmed[index] = again.right == 0
        return confirmed

    def accuracy(self, judged: Verdict) -> float:
        """Mean accuracy over images and draws."""
        return float(judged.right.double().mean()) / self.draws

    def run_attack(
        self,
        attack: Attack,
        through: AttackedView | None,
        images: Tensor,
        labels: Tensor,
        *path: str | int,
        threat: Threat | None = None,
        start: Tensor | None = None,
    ) -> tuple[Tensor, Probe]:
        """Examples, verified to lie inside the ball, and the ledger of the attack; `start`, the
        worst examples so far, is for attacks that take one."""
        with seeded(self.seed, "attack", *path):
            self.model.reseed(generator(self.seed, "noise", *path).initial_seed())
            model = self.model.classifier if through is None else self.model.view(through)
            images, labels = images.to(self.device), labels.to(self.device)
            judged = through is not None and not through.inside
            own = Fooled(images, labels, threat or self.threat) if judged else None
            facts = attack.facts
            probe = Probe(model, eot=facts.eot, period=facts.period, fooled=own).eval()
            more = {"start": start.to(self.device)} if facts.starts and start is not None else {}
            examples = attack(
                probe,
                images,
                labels,
                threat=threat or self.threat,
                generator=generator(self.seed, "attack", *path),
                **more,
            )
        return verified(examples, images, threat or self.threat).cpu(), probe

    def outcome(
        self,
        planned: PlannedAttack,
        images: Tensor,
        labels: Tensor,
        index: Tensor,
        chunk: int,
        start: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Attack the images of a chunk at `index`, of which the worst examples so far are `start`,
        and judge the examples: an `Outcome`."""
        started = time.perf_counter()
        with listening() as heard, room_for(len(images)):
            examples, probe = self.run_attack(
                planned.attack, planned.through, images[index], labels[index], planned.name, chunk,
                start=None if start is None else start[index],
            )  # fmt: skip
        judged = self.judge(examples, labels[index], planned.name, chunk)
        confirmed = self.confirm(judged, examples, labels[index], planned.name, chunk)
        counts = [probe.forwards, probe.backwards, probe.outputs, probe.not_finite]
        return {
            "chunk": torch.tensor(chunk),
            "index": index,
            "examples": examples,
            "right": judged.right,
            "confirmed": confirmed,
            "margin": judged.margin,
            "gradients": probe.gradients,
            "counts": torch.tensor(counts),
            "seconds": torch.tensor(time.perf_counter() - started, dtype=torch.float64),
            "library_warnings": as_tensor(heard),
            "fooled": torch.zeros(len(index), dtype=torch.bool)
            if probe.fooled is None
            else probe.fooled.ever.cpu(),
        }
