"""What is evaluated: a defence, or a plain classifier. Both are judged and attacked alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from carso.attacks.margin import margins
from carso.classifiers.frozen import freeze
from carso.defence.defence import Carso
from carso.errors import CarsoError
from carso.evaluation.inner_classifier import InnerClassifier, Within
from carso.evaluation.mean_over_draws import MeanOverDraws
from carso.randomness import generator, seeded

INSIDE = "inside"
"""The view of a classifier in a wrapper, by itself, at what it is shown there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackedView:
    """Which scores of a defence an attack differentiates; see `Carso.view`, and `INSIDE`."""

    name: str = "mean-logits"
    draws: int = 1
    samples: int | None = None
    """Candidates per draw; None: as many as the defence itself takes."""
    fixed: bool = False

    @property
    def inside(self) -> bool:
        """Whether the scores are those of a part, and not what is judged."""
        return self.name == INSIDE

    def __str__(self) -> str:
        noise = ", noise fixed" if self.fixed else ""
        many = "candidate" if self.samples == 1 else "candidates"
        size = "" if self.samples is None else f", {self.samples} {many}"
        draws = f", {self.draws} draws" if self.draws > 1 else ""
        return f"{self.name}{draws}{size}{noise}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What independent draws of the model say of images."""

    right: Tensor
    """How many draws label each image right, int64 (B,)."""
    margin: Tensor
    """The mean lead of the right class, on the scale of logits, (B,)."""


class AttackedModel(Protocol):
    """Something that labels images and can be attacked."""

    name: str
    stochastic: bool
    """Whether two passes of the same images differ."""
    classifier: nn.Module
    """What the transfer attack sees."""
    inner: InnerClassifier | None
    """The classifier inside, where the model is a wrapper around one: it has a view `INSIDE`."""

    @property
    def noisy_gradient(self) -> bool:
        """Whether what an attack differentiates draws, so that averaging helps."""
        ...

    @property
    def defence(self) -> Carso | None:
        """The defence, if it is one."""
        ...

    def view(self, through: AttackedView) -> nn.Module:
        """What an attack differentiates."""
        ...

    def answers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """One draw: labels (B,) and scores on the scale of logits (B, K)."""
        ...

    def reseed(self, seed: int) -> None: ...

    def description(self) -> dict[str, Any]:
        """What a record says of it."""
        ...

    def components(self) -> dict[str, Any]:
        """All that its answers come from, besides what `description` says."""
        ...


class AttackedDefence:
    """A CARSO defence."""

    stochastic = noisy_gradient = True
    inner: InnerClassifier | None = None

    def __init__(self, defence: Carso, name: str = "defence") -> None:
        self.defence, self.name = defence, name
        self.classifier: nn.Module = defence.classifier

    def view(self, through: AttackedView) -> nn.Module:
        return self.defence.view(
            through.name, draws=through.draws, samples=through.samples, fixed=through.fixed
        )

    @torch.no_grad()
    def answers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        aggregate = self.defence.aggregate

        def both(logits: Tensor) -> Tensor:
            return torch.stack([aggregate(logits), logits.mean(dim=0)], dim=1)  # (B, 2, K)

        log_probabilities, mean = self.defence.scores(images, both).unbind(dim=1)
        return log_probabilities.argmax(dim=1), mean

    def reseed(self, seed: int) -> None:
        self.defence.seed(seed)

    def description(self) -> dict[str, Any]:
        anchored = self.defence.aggregation == "anchored"
        return {
            "kind": "defence",
            "samples": self.defence.samples,
            "aggregation": self.defence.aggregation,
            **({"anchor": self.defence.anchor} if anchored else {}),
        }

    def components(self) -> dict[str, Any]:
        return {
            "classifier": self.defence.classifier,
            "final_classifier": self.defence.final_classifier,
            "purifier": self.defence.purifier,
        }


class AttackedClassifier:
    """Any module from images in [0, 1] to logits.

    Its only score is its logits, so every view without noise is the module itself. Of a noisy one
    a view averages as many draws as an attack asks for.
    """

    defence = None

    def __init__(
        self, classifier: nn.Module, name: str = "classifier", *, stochastic: bool = False
    ) -> None:
        self.classifier: nn.Module = freeze(classifier)
        self.name, self.stochastic = name, stochastic
        self.inner: InnerClassifier | None = None

    @property
    def noisy_gradient(self) -> bool:
        return self.stochastic

    def view(self, through: AttackedView) -> nn.Module:
        draws, model = through.draws * (through.samples or 1), self.classifier
        if through.inside:
            if self.inner is None:
                raise CarsoError(f"no part of {self.name} is a classifier of images")
            model = Within(self.classifier, self.inner.part).eval()
        if not self.stochastic or (draws == 1 and not through.fixed):
            return model
        return MeanOverDraws(model, draws, torch.initial_seed() if through.fixed else None)

    @torch.no_grad()
    def answers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        scores: Tensor = self.classifier(images)
        if not isinstance(scores, Tensor):
            raise CarsoError(f"a classifier gives a tensor of scores, got {type(scores).__name__}")
        if scores.ndim != 2 or len(scores) != len(images):
            raise CarsoError(
                f"a classifier gives one score per class, (B, K), got {tuple(scores.shape)} "
                f"for {len(images)} images"
            )
        return scores.argmax(dim=1), scores

    def reseed(self, seed: int) -> None:
        torch.manual_seed(seed)  # for modules that draw from the global generator

    def description(self) -> dict[str, Any]:
        return {"kind": "classifier", **({"stochastic": True} if self.stochastic else {})}

    def components(self) -> dict[str, Any]:
        return {"classifier": self.classifier}


class FloatScores(nn.Module):
    """A `model` that answers in whole numbers, or in torch's inference mode, as scores (B, K) that
    an attack may work with: its own, or, where it answers with labels (B,), one for the label and
    else zero."""

    def __init__(self, model: nn.Module, classes: int) -> None:
        super().__init__()
        self.model, self.classes = model, classes

    def forward(self, images: Tensor) -> Tensor:
        answer: Tensor = self.model(images)
        if answer.ndim != 1:
            return answer.float().clone()  # what inference mode made, nobody else may change
        if not bool(((answer >= 0) & (answer < self.classes)).all()):
            raise CarsoError(
                f"the model answers with labels up to {int(answer.max())}, and the images have "
                f"{self.classes} classes: name all of them by classes"
            )
        return nn.functional.one_hot(answer.long(), self.classes).float()


def with_scores(model: nn.Module, image: Tensor, classes: int) -> nn.Module:
    """`model`, or, of one that answers in whole numbers or in inference mode, the same with scores
    that are ordinary floats."""
    try:
        with torch.no_grad():
            answer = model.eval()(image)  # a look must not move batch-norm statistics
    except Exception:  # it takes no such images, which is said where they are tried
        return model
    if not isinstance(answer, Tensor) or answer.is_complex():
        return model
    ordinary = answer.is_floating_point() and not answer.is_inference()
    return model if ordinary else FloatScores(model, classes)


def under_test(model: nn.Module, name: str | None = None) -> AttackedModel:
    """`model` as something to evaluate."""
    if isinstance(model, Carso):
        return AttackedDefence(model, name or "defence")
    return AttackedClassifier(model, name or type(model).__name__)


def verdict(
    model: AttackedModel,
    images: Tensor,
    labels: Tensor,
    *,
    draws: int,
    seed: int,
    path: tuple[Any, ...],
) -> Verdict:
    """Judge images on `draws` independent draws, none of which an attack has seen."""
    right = torch.zeros(len(images), dtype=torch.int64)
    margin = torch.zeros(len(images))
    with seeded(seed, "verdict", *path):
        model.reseed(generator(seed, "verdict", *path).initial_seed())
        for _ in range(draws):
            predicted, scores = model.answers(images)
            answered = ~scores.isnan().any(dim=1)  # argmax makes the first class of a NaN
            right += ((predicted == labels) & answered).cpu()
            margin += margins(scores, labels).cpu() / draws
    return Verdict(right=right, margin=margin)
