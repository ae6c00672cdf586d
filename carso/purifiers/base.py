"""What a purifier is, to everything outside its own room.

It reads activations of a classifier and draws candidates for the clean image. What stands here is
all that the rest of the package relies on.

Noise: every draw goes through `carso.randomness.normal`, from the generator that comes in, into
tensors with the images of the batch along the FIRST side. Then the noise of some images can be cut
from that of the whole batch, and many processes draw what one would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self, cast, runtime_checkable

from torch import Generator, Tensor, nn


class Purifier(Protocol):
    """Enough to defend: step 2 of the method."""

    @property
    def layers(self) -> Sequence[str]:
        """The layers of the classifier whose activations it reads, in this order."""
        ...

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """The (C, H, W) of the only images that it takes; None: it takes others as well."""
        ...

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        """Candidates (N, B, C, H, W) in [0, 1], `samples` for each image."""
        ...


class PurifierLoss(NamedTuple):
    """What a batch costs in the paper's stage, each number summed over its images. (A tuple, since
    data parallelism looks into tuples for what has gradients.)"""

    total: Tensor
    """What is minimised."""
    terms: dict[str, Tensor]
    """What the log of the training shows, by name, of the same computation; "reconstruction" is
    always there."""


class TrainablePurifier(Purifier, Protocol):
    """A purifier that can be trained, hardened and saved as well: an `nn.Module` with these.

    It is built by `Class(image_shape, layers=..., shapes=..., **settings)`: the images' (C, H, W),
    the layers, the shapes of their activations without the batch, and the rest of [purifier].
    """

    def pixel_logits(self, activations: Sequence[Tensor], generator: Generator) -> Tensor:
        """One candidate per image before the sigmoid, (B, C, H, W), drawn as in use. Hardening
        trains through it."""
        ...

    def loss(
        self,
        images: Tensor,
        clean: Tensor,
        activations: Sequence[Tensor],
        generator: Generator,
        *,
        beta: float,
        free_bits: float,
    ) -> PurifierLoss:
        """What the paper's stage minimises, on `images` of which some are attacked `clean` ones,
        and their activations. `beta` and `free_bits` are of a divergence from a prior (section
        5.1), and of no meaning to a purifier without one."""
        ...

    def deployed(self) -> Self:
        """This very purifier as it is used: rid of what only the paper's stage needs, in
        evaluation mode, without gradients of its own. What is saved is its `state_dict`."""
        ...

    # What else is used of it, torch gives to every module.

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def to(self, device: Any) -> Self: ...

    def train(self, mode: bool = True) -> Self: ...

    def eval(self) -> Self: ...

    def requires_grad_(self, requires_grad: bool = True) -> Self: ...


@runtime_checkable
class SummarisingPurifier(TrainablePurifier, Protocol):
    """A purifier whose candidates are all made from a few features, which can be looked at: where
    hardening has a guide, it teaches these."""

    @property
    def summary_size(self) -> int:
        """How many numbers a summary has."""
        ...

    def summary(self, activations: Sequence[Tensor], generator: Generator) -> Tensor:
        """The features (B, F) of one candidate per image; none is painted."""
        ...

    def with_summary(
        self, activations: Sequence[Tensor], generator: Generator
    ) -> tuple[Tensor, Tensor]:
        """`pixel_logits`, and the `summary` of the same candidates, from one pass."""
        ...


def as_module(purifier: Purifier) -> nn.Module:
    """The module that a trainable purifier is; types cannot say both at once."""
    return cast(nn.Module, purifier)
