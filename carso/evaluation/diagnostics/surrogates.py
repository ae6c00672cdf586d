"""What breaks a model by other gradients than its own: its neighbourhood's, its own parts'."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from carso.attacks.attack import Attack, AttackFacts, Model, verified
from carso.attacks.margin import Descent, Margin, WorstSoFar, margins, slope_of
from carso.evaluation.attacked_model import INSIDE, AttackedView
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext, slack
from carso.randomness import normal
from carso.threats.threat import Threat

NEIGHBOURS = 8
SPREAD = 0.5
"""The standard deviation of neighbours around an image, as a share of eps in every pixel."""


def neighbourhood(context: DiagnosticContext) -> Diagnosis:
    """The gradient averaged over random neighbours, which a rough surface does not hide."""
    steps = max(1, context.plan.effort.steps // 2)
    attack = SmoothedMargin(steps=steps, neighbours=NEIGHBOURS, spread=SPREAD)
    return diagnosis_of(
        breaks(context, attack, context.mean_logits, "neighbourhood"),
        context.count,
        "neighbourhood",
        how=f"{steps} steps along gradients averaged over {NEIGHBOURS} random neighbours",
        objection="The surface is rough: the gradient at a point says little of what is around it.",
    )


def inside(context: DiagnosticContext) -> Diagnosis:
    """Examples made for a classifier inside the model, at what it is shown there."""
    evaluation = context.evaluation
    if evaluation.model.defence is not None:
        words = "A defence is attacked through its own views."
        return Diagnosis(name="inside", ok=None, verdict=words)
    part = evaluation.model.inner
    if part is None:
        words = "No part of the model is a classifier of images in a wrapper."
        return Diagnosis(name="inside", ok=None, verdict=words)
    own = [number for number, planned in enumerate(context.plan.attacks) if planned.inside]
    if own and not context.plan.independent:
        found, count = context.broken_by(own), len(evaluation.images)
        what = " and ".join(context.plan.attacks[number].what for number in own)
    else:
        steps, count = context.plan.effort.steps, context.count
        through = AttackedView(name=INSIDE, samples=evaluation.samples)
        found = breaks(context, Margin(steps=steps), through, "inside")
        what = f"{steps} steps of margin descent"
    return diagnosis_of(
        found,
        count,
        "inside",
        how=f"Along the gradient of its part {part.name}, past all before and after it, {what},",
        objection=f"What is around it hides the gradient: evaluate with backward={part.name}.",
        figures={"part": part.name},
    )


def diagnosis_of(
    found: tuple[int, int],
    count: int,
    name: str,
    *,
    how: str,
    objection: str,
    figures: dict[str, Any] | None = None,
) -> Diagnosis:
    """Whether one more attack breaks so many of `count` images that the others did too little."""
    broken, tried = found
    words = f"{how} break {broken} of {tried} images that the other attacks left standing."
    ok = broken / count <= slack(count)
    if not ok:
        words += f" {objection}"
    shown = {**(figures or {}), "broken": broken, "tried": tried}
    return Diagnosis(name=name, ok=ok, verdict=words, figures=shown)


def breaks(
    context: DiagnosticContext, attack: Attack, through: AttackedView, occasion: str
) -> tuple[int, int]:
    """How many of the images that stand by least an attack breaks for sure, and of how many."""
    evaluation = context.evaluation
    index = context.weaker_half(context.count)
    if not len(index):
        return 0, 0
    images, labels, path = context.images[index], context.labels[index], ("diagnosis", occasion)
    examples, _ = evaluation.run_attack(attack, through, images, labels, *path)
    judged = evaluation.judge(examples, labels, *path)
    return int(evaluation.confirm(judged, examples, labels, *path).sum()), len(index)


@dataclass(frozen=True, kw_only=True, slots=True)
class SmoothedMargin:
    """Margin descent along the mean gradient of random neighbours of a point."""

    steps: int
    neighbours: int
    spread: float
    """Standard deviation of a pixel's change, as a share of eps."""

    @property
    def facts(self) -> AttackFacts:
        return AttackFacts(period=self.steps)

    def identity(self) -> dict[str, Any]:
        return {"attack": "SmoothedMargin", "steps": self.steps, "neighbours": self.neighbours}

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        few = max(1, len(images) // self.neighbours)  # so that neighbours take no more memory
        parts = zip(torch.split(images, few), torch.split(labels, few), strict=True)
        found = [self.descended(model, *part, threat, generator) for part in parts]
        return verified(torch.cat(found), images, threat)

    def descended(
        self, model: Model, images: Tensor, labels: Tensor, threat: Threat, generator: Generator
    ) -> Tensor:
        """The worst of all points that were met, by the margin at the point itself."""
        worst = WorstSoFar(model, images, labels)
        everything = torch.arange(len(images), device=images.device)
        size = self.spread * threat.eps
        if threat.norm != "Linf":
            size /= images[0].numel() ** 0.5

        def smooth(points: Tensor) -> Tensor:
            worst.offer(points.detach(), everything)
            around = points.repeat(self.neighbours, 1, 1, 1)
            noise = size * normal(tuple(around.shape), around, generator)
            scores = model((around + noise).clamp(0, 1))
            return scores.view(self.neighbours, len(points), -1).mean(dim=0)

        start = threat.random_start(images, generator)
        slope = slope_of(smooth, partial(margins, labels=labels))
        as_margin = Margin()
        descent = Descent(self.steps, as_margin.step_share, as_margin.momentum)
        for found in descent(slope, start, images, threat):
            worst.offer(found, everything)
        return worst.examples
