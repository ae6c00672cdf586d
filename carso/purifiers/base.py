"""What a purifier is, to everything that is not its own room.

It reads activations of a classifier and draws candidates for the clean image. What stands here is
all that the rest of the package relies on.

All noise is drawn by `carso.randomness.normal`, from the generator that comes in, in one tensor
or more with the images of the batch along the FIRST side. So the noise of some images of a batch
can be cut from that of the whole, and many processes draw what one would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from torch import Generator, Tensor


class Purifier(Protocol):
    """Enough to defend: step 2 of the method."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of the classifier whose activations it reads, in this order."""
        ...

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """The (C, H, W) of the only images that it takes; None: it takes any."""
        ...

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        """Candidates (N, B, C, H, W) in [0, 1], `samples` for each image."""
        ...


class TrainablePurifier(Purifier, Protocol):
    """A purifier that can be trained as well; an `nn.Module` gives most of it."""

    def pixel_logits(self, activations: Sequence[Tensor], generator: Generator) -> Tensor:
        """One candidate per image before the sigmoid, (B, C, H, W), drawn as in use: hardening
        learns from it."""
        ...

    def loss(
        self,
        images: Tensor,
        clean: Tensor,
        activations: Sequence[Tensor],
        generator: Generator,
        *,
        weight: float,
        free: float,
    ) -> Mapping[str, Tensor]:
        """What the paper's training minimises, summed over the batch, as terms by name."""
        ...

    def deployed(self) -> Self:
        """This purifier as it is used: without what only training needs, in evaluation mode and
        without gradients of its own. Its `state_dict` is what is saved."""
        ...

    def state_dict(self) -> dict[str, Any]: ...
