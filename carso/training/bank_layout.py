"""Where in the bank of attacked images the differences of an image lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 256
"""Images that are attacked together while the bank is made; fixed, for the same bits always."""


@dataclass(frozen=True, slots=True)
class BankLayout:
    """Chunk c of all attacks' chunks lies in shard c modulo the number of shards."""

    attacks: int
    images: int
    shards: int
    dtype: torch.dtype = torch.int8
    """Of a stored difference; see `carso.training.differences`."""
    chunk: int = CHUNK
    """Images in a chunk."""

    @property
    def chunks_per_attack(self) -> int:
        return -(-self.images // self.chunk)

    @property
    def chunks(self) -> int:
        return self.attacks * self.chunks_per_attack

    def of_shard(self, shard: int) -> range:
        """The chunks of one shard; none of one that is beyond the last."""
        return range(shard, self.chunks if shard < self.shards else 0, self.shards)

    def first(self, chunk: int) -> tuple[int, int]:
        """Attack and first image of a chunk."""
        attack, place = divmod(chunk, self.chunks_per_attack)
        return attack, place * self.chunk

    def rows(self, place: int) -> slice:
        """The rows of the chunk at `place` of a shard."""
        return slice(place * self.chunk, (place + 1) * self.chunk)

    def put(self, shard: Tensor, place: int, differences: Tensor) -> None:
        """The differences of a chunk in their rows; the last chunk of an attack may be short."""
        shard[self.rows(place)][: len(differences)] = differences
