"""What breaks a model by other gradients than its own: its neighbourhood's, its own parts'."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.attacks.attack import Attack, AttackFacts, Model, verified
from carso.attacks.margin import Descent, Margin, WorstSoFar, margins, slope_of
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext, slack
from carso.randomness import global_generators_kept, normal
from carso.threats.threat import Threat

NEIGHBOURS = 8
SPREAD = 0.5
"""The standard deviation of neighbours around an image, as a share of eps in every pixel."""


def neighbourhood(context: DiagnosticContext) -> Diagnosis:
    """The gradient averaged over random neighbours, which a rough surface does not hide."""
    steps = max(1, context.plan.effort.steps // 2)
    attack = SmoothedMargin(steps=steps, neighbours=NEIGHBOURS, spread=SPREAD)
    return diagnosis_by(
        context,
        attack,
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
    whole = evaluation.model.classifier
    part = classifier_within(whole, context.images[:2].to(evaluation.device))
    if part is None:
        words = "No part of the model is a classifier of images in a wrapper."
        return Diagnosis(name="inside", ok=None, verdict=words)
    name, module = part
    steps = context.plan.effort.steps
    attack = OnSurrogate(surrogate=Within(whole, module), attack=Margin(steps=steps))
    return diagnosis_by(
        context,
        attack,
        "inside",
        how=f"{steps} steps along the gradient of its part {name}, past all that is before and "
        "after,",
        objection=f"What is around it hides the gradient: evaluate with backward={name}.",
        figures={"part": name},
    )


def diagnosis_by(
    context: DiagnosticContext,
    attack: Attack,
    name: str,
    *,
    how: str,
    objection: str,
    figures: dict[str, Any] | None = None,
) -> Diagnosis:
    """Whether one more attack breaks so many images that the others did too little."""
    broken, tried = breaks(context, attack, name)
    words = f"{how} break {broken} of {tried} images that the attacks left standing."
    ok = broken / context.count <= slack(context.count)
    if not ok:
        words += f" {objection}"
    found = {**(figures or {}), "broken": broken, "tried": tried}
    return Diagnosis(name=name, ok=ok, verdict=words, figures=found)


def breaks(context: DiagnosticContext, attack: Attack, occasion: str) -> tuple[int, int]:
    """How many of the images that stand an attack breaks for sure, and how many stand."""
    evaluation = context.evaluation
    index = (context.results.final.right[: context.count] > 0).nonzero().flatten()
    if not len(index):
        return 0, 0
    images, labels, path = context.images[index], context.labels[index], ("diagnosis", occasion)
    examples, _ = evaluation.run_attack(attack, context.mean_logits, images, labels, *path)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class OnSurrogate:
    """An attack on another model than the one it is called with."""

    surrogate: nn.Module
    attack: Attack

    @property
    def facts(self) -> AttackFacts:
        return self.attack.facts

    def identity(self) -> dict[str, Any]:
        return {**self.attack.identity(), "surrogate": type(self.surrogate).__name__}

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        surrogate = self.surrogate.eval()
        return self.attack(surrogate, images, labels, threat=threat, generator=generator)


class Within(nn.Module):
    """The logits of a `part` of `model` at what it is shown there; on the way back, as if that
    were the image itself (BPDA with the identity)."""

    def __init__(self, model: nn.Module, part: nn.Module) -> None:
        super().__init__()
        self.model, self.part = model, part

    def forward(self, images: Tensor) -> Tensor:
        shown: list[Tensor] = []

        def watch(part: nn.Module, given: tuple[Any, ...]) -> None:
            if given and is_like(given[0], images):
                shown.append(given[0].detach())

        handle = self.part.register_forward_pre_hook(watch)
        try:
            with torch.no_grad():
                self.model(images.detach())
        finally:
            handle.remove()
        scores = torch.cat([self.part(carried(one, images)) for one in shown])
        return scores.view(-1, len(images), scores.shape[1]).mean(dim=0)


def carried(shown: Tensor, images: Tensor) -> Tensor:
    """What was `shown`, with the gradient of `images`, which may be of another size."""
    carrier = images
    if shown.shape[2:] != images.shape[2:]:
        carrier = F.interpolate(images, size=shown.shape[2:], mode="bilinear", align_corners=False)
    carrier = carrier.repeat(len(shown) // len(images), shown.shape[1] // images.shape[1], 1, 1)
    return shown + carrier - carrier.detach()


def classifier_within(model: nn.Module, images: Tensor) -> tuple[str, nn.Module] | None:
    """The outermost part that makes scores of images and sees, or says, another thing than the
    whole; None where there is none."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    parts = dict(model.named_modules())

    def watch(name: str) -> Any:
        def hook(module: nn.Module, given: Any, made: Any) -> None:
            if name not in seen and given and is_classification(given[0], made, images):
                seen[name] = (given[0].detach(), made.detach())

        return hook

    handles = []
    try:
        handles = [part.register_forward_hook(watch(name)) for name, part in parts.items() if name]
        with torch.no_grad(), global_generators_kept():
            scores = model(images)
    except RuntimeError:  # scripted modules take no hooks
        return None
    finally:
        for handle in handles:
            handle.remove()
    for name in parts:
        if name in seen:
            given, made = seen[name]
            alike = same(given, images) and same(made, scores)
            if made.shape[1] == scores.shape[1] and not alike:
                return name.rpartition(".")[2], parts[name]
    return None


def is_classification(given: Any, made: Any, images: Tensor) -> bool:
    """Whether a part makes one row of scores of each image-like thing."""
    rows = isinstance(made, Tensor) and made.ndim == 2 and made.is_floating_point()
    return rows and is_like(given, images) and len(given) == len(made)


def is_like(given: Any, images: Tensor) -> bool:
    """Whether it is images, or some of each, of any size and of as many channels or a multiple."""
    if not isinstance(given, Tensor) or given.ndim != 4 or not len(given):
        return False
    return len(given) % len(images) == 0 and given.shape[1] % images.shape[1] == 0


def same(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and bool(torch.equal(first, second))
