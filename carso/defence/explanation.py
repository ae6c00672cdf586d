"""One pass of a defence with everything that it saw on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What `Carso.explain` returns: N candidates of B images, K classes."""

    own: Tensor
    """The classifier's own logits on the input, (B, K)."""
    candidates: Tensor
    """(N, B, C, H, W) in [0, 1]."""
    logits: Tensor
    """Of each candidate, (N, B, K)."""
    aggregated: Tensor
    """The logits that were aggregated, (N, B, K): in an anchored defence the own ones joined."""
    log_probabilities: Tensor
    """The result, (B, K)."""

    @property
    def labels(self) -> Tensor:
        """The defence's answer, (B,)."""
        return self.log_probabilities.argmax(dim=1)

    @property
    def own_labels(self) -> Tensor:
        """What the classifier alone would have answered, (B,)."""
        return self.own.argmax(dim=1)

    @property
    def votes(self) -> Tensor:
        """The label of each candidate, (N, B)."""
        return self.logits.argmax(dim=2)

    @classmethod
    def joined(cls, parts: Sequence[Explanation]) -> Explanation:
        """The explanation of a batch from those of its parts."""
        return cls(
            own=torch.cat([part.own for part in parts]),
            candidates=torch.cat([part.candidates for part in parts], dim=1),
            logits=torch.cat([part.logits for part in parts], dim=1),
            aggregated=torch.cat([part.aggregated for part in parts], dim=1),
            log_probabilities=torch.cat([part.log_probabilities for part in parts]),
        )
