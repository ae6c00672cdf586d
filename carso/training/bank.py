"""The bank of attacked images: their differences, made once, in shards, one per process.

Images are attacked in chunks of fixed size, each with a seed of its own, so that the bank is the
same however many processes make it; chunk c lies in shard c modulo the number of shards. Every
process reads all shards, which lie in the folder of the run. The index of a shard has a checksum of
each of its chunks: what is damaged is made again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from carso.distributed.processes import Processes
from carso.training.bank_layout import BankLayout
from carso.training.bank_shard import BankShard

FLUSH = 16
"""Chunks between two notes of how far the making has come."""

Fill = Callable[[int, int], Tensor]
"""Attack number and first image to the differences of that chunk, as the layout's dtype."""


class Bank:
    """All shards, read as one."""

    def __init__(self, layout: BankLayout, shards: list[Tensor], seconds: float) -> None:
        """`seconds` is what the process took that made the longest shard."""
        self.layout, self.shards, self.seconds = layout, shards, seconds

    def __getitem__(self, key: tuple[int, Tensor]) -> Tensor:
        """The differences that attack `key[0]` made of the images at `key[1]`."""
        attack, images = key
        layout = self.layout
        chunk = attack * layout.chunks_per_attack + images // layout.chunk
        shard, place = chunk % layout.shards, chunk // layout.shards
        row = place * layout.chunk + images % layout.chunk
        result = torch.empty((len(images), *self.shards[0].shape[1:]), dtype=layout.dtype)
        for number, tensor in enumerate(self.shards):
            here = shard == number
            result[here] = tensor[row[here]]
        return result


def in_memory(
    layout: BankLayout, shape: tuple[int, ...], fill: Fill, advance: Callable[[], None]
) -> Bank:
    """A bank of one shard that lives as long as the process."""
    began = time.perf_counter()
    shard = torch.empty((layout.chunks * layout.chunk, *shape), dtype=layout.dtype)
    for place, chunk in enumerate(layout.of_shard(0)):
        layout.put(shard, place, fill(*layout.first(chunk)))
        advance()
    return Bank(layout, [shard], time.perf_counter() - began)


def on_disk(
    folder: Path,
    identity: dict[str, Any],
    layout: BankLayout,
    shape: tuple[int, ...],
    fill: Fill,
    advance: Callable[[], None],
    processes: Processes,
) -> Bank:
    """The bank in the run's folder: a whole one, of however many shards, is read; else each process
    makes its shard, from the chunk on where its making stopped."""
    layout = replace(layout, shards=min(layout.shards, layout.chunks))  # no empty ones
    own = BankShard(
        folder=folder, identity=identity, layout=layout, shape=shape, number=processes.rank
    )
    shards = whole_shards(own) if processes.is_first else 0
    shards = processes.broadcast(shards)  # nobody writes before the first has looked
    if not shards:
        make_shard(own, fill, advance)
        processes.barrier()
    else:
        for _ in own.chunks:
            advance()
    found = replace(layout, shards=shards or layout.shards)
    everything = [replace(own, layout=found, number=number) for number in range(found.shards)]
    tensors = [torch.from_numpy(shard.mapped("c")) for shard in everything]
    return Bank(found, tensors, max(shard.seconds() for shard in everything))


def whole_shards(wanted: BankShard) -> int:
    """Of how many shards the finished bank is where a shard is `wanted`; 0 if it is not there."""
    shards = replace(wanted, number=0).note().get("shards", 0)
    if shards < 1:
        return 0
    layout = replace(wanted.layout, shards=shards)
    other = shards != wanted.layout.shards  # else who makes the shard looks again, and says it
    for number in range(shards):
        shard = replace(wanted, layout=layout, number=number)
        if len(shard.done(say=other)) < len(shard.chunks):
            return 0
    return int(shards)


def make_shard(own: BankShard, fill: Fill, advance: Callable[[], None]) -> None:
    """Attack the chunks of one shard, or those that are left."""
    if not own.chunks:
        return
    sums = own.done(say=True)
    finished = len(sums)
    before, began = own.seconds() if finished else 0.0, time.perf_counter()
    if finished == 0:
        own.begin()
    mapped = own.mapped("r+")
    shard = torch.from_numpy(mapped)
    for place, chunk in enumerate(own.chunks):
        if place >= finished:
            own.layout.put(shard, place, fill(*own.layout.first(chunk)))
            sums.append(own.chunk_sum(mapped, place))
            if (place + 1) % FLUSH == 0 or place + 1 == len(own.chunks):
                mapped.flush()  # the index must never promise what the disk does not hold
                own.write_note(sums, seconds=before + time.perf_counter() - began)
        advance()
