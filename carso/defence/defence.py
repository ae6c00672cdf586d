"""START HERE. CARSO is four steps, a line each, in `Carso.four_steps`.

x -> classifier f, frozen -> activations                    1 represent
activations, noise -> N candidates for the clean image      2 purify
candidates -> the same f -> N logit vectors                 3 classify
logits -> softmax(sum exp l) -> one robust prediction       4 aggregate
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn
from torch.utils.checkpoint import checkpoint

from carso.arguments import door, real, refuse_unreadable, seed_number, whole
from carso.classifiers.frozen import Frozen, freeze, refuse_meta
from carso.defence.aggregation import Reduction, aggregation, join
from carso.defence.explanation import Explanation
from carso.defence.representation import Representation
from carso.defence.view import View
from carso.errors import CarsoError, CarsoTypeError
from carso.machine.limits import check_fits
from carso.machine.microbatches import in_microbatches
from carso.purifiers.base import Purifier
from carso.purifiers.checks import check_candidates, refuse_no_purifier, refuse_other_precision
from carso.randomness import Turn, generator

LARGE = 2**30
"""Bytes of candidates of one image; so many may not fit in memory."""


class Carso(nn.Module):
    """A frozen classifier behind a purifier; images in [0, 1] to log-probabilities."""

    @door
    def __init__(
        self,
        classifier: nn.Module,
        purifier: Purifier,
        samples: int = 8,
        aggregation: str = "double-exponential",
        final_classifier: nn.Module | None = None,
        *,
        anchor: float = 1.0,
        max_batch: int | None = None,
        seed: int = 0,
    ) -> None:
        """`final_classifier` serves the paper's ablation: it classifies the candidates instead.
        `anchor` is the weight of the classifier's own logits in the aggregation "anchored".
        `max_batch` bounds the candidates that are in memory at once, though an image's `samples`
        are never parted."""
        super().__init__()
        samples = whole("samples", samples, least=1)
        if max_batch is not None:
            max_batch = whole("max_batch", max_batch, least=1)
        self.classifier = freeze(classifier)
        refuse_meta(self.classifier)
        self.final_classifier: Frozen = (
            self.classifier if final_classifier is None else freeze(final_classifier)
        )
        refuse_no_purifier(purifier)
        self.purifier = purifier
        self.representation = Representation(self.classifier, purifier.layers)
        refuse_other_precision(purifier, self.classifier, self.final_classifier)
        anchor = real("anchor", anchor)
        if not 0 <= anchor < float("inf"):
            raise CarsoError(f"anchor must be a weight of at least 0, got {anchor}")
        self.samples, self.max_batch, self.anchor = samples, max_batch, anchor
        self.aggregation = aggregation
        self.turn = Turn()
        self.seed(seed)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Log-probabilities (B, K)."""
        return self.scores(images, self.aggregate)

    def four_steps(
        self, images: Tensor, reduction: Reduction, noise: Generator, samples: int
    ) -> Tensor:
        """The method of section 4, from images to one score per class."""
        activations, own = self.representation.seen(images, logits=self.own_counts)
        candidates = self.purifier.sample(activations, samples, noise)  # (N, B, C, H, W)
        check_candidates(candidates, images, samples)
        del activations  # their memory serves the next step
        return reduction(self.classify(candidates, own))  # (B, K)

    def classify(self, candidates: Tensor, own: Tensor | None) -> Tensor:
        """Logits (N, B, K) of candidates (N, B, C, H, W); the classifier's `own` logits on the
        input join them where the aggregation is "anchored", and are not needed elsewhere."""
        return self.anchored(self.labelled(candidates), own)

    def labelled(self, candidates: Tensor) -> Tensor:
        """Logits (N, B, K) of the candidates (N, B, C, H, W) alone."""
        logits = in_microbatches(self.final_classifier, candidates.flatten(0, 1))  # (N * B, K)
        return logits.reshape(*candidates.shape[:2], -1)

    def anchored(self, logits: Tensor, own: Tensor | None) -> Tensor:
        """The logits to aggregate: of the candidates, and the `own` ones where anchored."""
        if own is None or not self.own_counts:
            return logits
        return join(logits, own, self.anchor)

    @property
    def own_counts(self) -> bool:
        """Whether the classifier's own logits on the input count as well."""
        return self.aggregation == "anchored"

    def scores(self, images: Tensor, reduction: Reduction, samples: int | None = None) -> Tensor:
        """`four_steps` on the whole batch, or on parts of it where `max_batch` says so.

        With gradients a part is computed again on the way back instead of being kept.
        """
        self.check(images)
        samples = samples or self.samples
        if self.max_batch is None or len(images) * samples <= self.max_batch:
            return self.four_steps(images, reduction, self.noise, samples)
        parts = self.parts(images, samples)
        return torch.cat([self.part(part, reduction, samples) for part in parts])

    def parts(self, images: Tensor, samples: int) -> Sequence[Tensor]:
        """The batch cut so that no part has more than `max_batch` candidates."""
        size = len(images) if self.max_batch is None else max(1, self.max_batch // samples)
        return torch.split(images, size)

    def part(self, images: Tensor, reduction: Reduction, samples: int) -> Tensor:
        """One part of a batch, whose noise goes on from where the part before it stopped."""
        if not (torch.is_grad_enabled() and images.requires_grad):
            return self.four_steps(images, reduction, self.noise, samples)
        with self.turn:
            return self.checkpointed(images, reduction, samples)

    def checkpointed(self, images: Tensor, reduction: Reduction, samples: int) -> Tensor:
        """A part that is computed again on the way back, with the same noise."""
        before = self.noise.get_state()
        after = before

        def steps(images: Tensor) -> Tensor:
            nonlocal after
            noise = Generator(self.noise.device)
            noise.set_state(before)
            scores = self.four_steps(images, reduction, noise, samples)
            after = noise.get_state()
            return scores

        self.representation.look(images)
        scores: Tensor = checkpoint(steps, images, use_reentrant=False)
        self.noise.set_state(after)
        return scores

    def train(self, mode: bool = True) -> Self:
        return super().train(False)  # predicting must never move batch-norm statistics

    @door
    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The label of each image, (B,)."""
        return self(images).argmax(dim=1)  # type: ignore[no-any-return]

    @door
    @torch.no_grad()
    def predict_proba(self, images: Tensor) -> Tensor:
        """The probability of each class, (B, K)."""
        return self(images).exp()  # type: ignore[no-any-return]

    @door
    @torch.no_grad()
    def purify(self, images: Tensor) -> Tensor:
        """Candidates such as predictions are made from, by new noise: (N, B, C, H, W) in [0, 1]."""
        self.check(images)
        candidates = []
        for part in self.parts(images, self.samples):
            drawn = self.purifier.sample(self.representation(part), self.samples, self.noise)
            check_candidates(drawn, part, self.samples)
            candidates.append(drawn)
        return torch.cat(candidates, dim=1)

    @door
    @torch.no_grad()
    def explain(self, images: Tensor) -> Explanation:
        """One pass with what it saw on the way; the result is that of `forward`, bit for bit."""
        self.check(images)
        parts = [self.explained(part) for part in self.parts(images, self.samples)]
        return Explanation.joined(parts)

    def explained(self, images: Tensor) -> Explanation:
        """`four_steps`, with everything kept."""
        activations, own = self.representation.with_logits(images)
        candidates = self.purifier.sample(activations, self.samples, self.noise)
        check_candidates(candidates, images, self.samples)
        logits = self.labelled(candidates)
        aggregated = self.anchored(logits, own)
        return Explanation(
            own=own,
            candidates=candidates,
            logits=logits,
            aggregated=aggregated,
            log_probabilities=self.aggregate(aggregated),
        )

    def seed(self, seed: int) -> None:
        """Start the noise anew: the same seed and the same calls give the same bits.

        The defence's noise is its own, whatever happens to torch's global generator.
        """
        self.noise = generator(seed_number(seed), "defence")

    @property
    def aggregation(self) -> str:
        """The name of the aggregation, which may be changed at any time."""
        return self._aggregation

    @aggregation.setter
    def aggregation(self, name: str) -> None:
        self.aggregate = aggregation(name)
        self._aggregation = name

    @door
    def view(
        self, name: str, *, draws: int = 1, samples: int | None = None, fixed: bool = False
    ) -> View:
        """What an attacker differentiates; the verdict is always taken on the defence itself.

        `draws` independent answers are averaged from one representation pass (expectation over
        transformation), each of `samples` candidates (default: the defence's own number). With
        `fixed` every call draws the same noise.
        """
        return View(self, name, draws=draws, samples=samples, fixed=fixed)

    def check(self, images: Any) -> None:
        """One clear line for images that are none."""
        if not isinstance(images, Tensor) or images.ndim != 4 or not images.numel():
            got = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise CarsoTypeError(f"images must be a tensor (B, C, H, W), none of them 0, got {got}")
        refuse_unreadable("images", images)
        image = images[0].numel() * images.element_size()
        if self.samples * image > LARGE:  # else there is no need to ask how much is free
            check_fits("candidates of an image", self.samples, image, option="samples =")
        shape = self.purifier.image_shape
        if shape is not None and images.shape[1:] != torch.Size(shape):
            raise CarsoError(
                f"this defence takes images of shape {tuple(shape)} (C, H, W), "
                f"got {tuple(images.shape[1:])}"
            )
        if not images.is_floating_point():
            raise CarsoTypeError(
                f"images must be floats in [0, 1], got {images.dtype}; divide bytes by 255"
            )
        parameter = next(self.classifier.parameters(), images)
        if images.device != parameter.device:
            raise CarsoError(
                f"this defence is on {parameter.device}, got images on {images.device}: move them"
            )
        if images.dtype != parameter.dtype:
            raise CarsoError(
                f"this defence computes in {parameter.dtype}, got images of {images.dtype}; "
                f"convert them by images.to({parameter.dtype})"
            )
        low, high = (float(bound) for bound in torch.aminmax(images.detach()))
        if not (low >= 0 and high <= 1):  # true for NaN as well
            found = "NaN" if low != low or high != high else f"values in [{low:.9g}, {high:.9g}]"
            raise CarsoError(f"images must lie in [0, 1], got {found}")
