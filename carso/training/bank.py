"""The bank of attacked images: their differences, made once, in shards, one per process.

Images are attacked in chunks of fixed size, each with a seed of its own, so that the bank is the
same however many processes make it; chunk c lies in shard c modulo the number of shards. Every
process reads all shards, which lie in the folder of the run. The index of a shard has a checksum of
each of its chunks: what is damaged is made again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from carso.distributed.processes import Processes
from carso.errors import CarsoError
from carso.storage import files, json_schema
from carso.storage.files import DamagedFileError
from carso.training.run_identity import differences

CHUNK = 256
"""Images that are attacked together while the bank is made; fixed, for the same bits always."""
FLUSH = 16
"""Chunks between two notes of how far the making has come."""

INDEX_KIND = "the index of a bank"

Fill = Callable[[int, int], Tensor]
"""Attack number and first image to the differences of that chunk, as the layout's dtype."""


@dataclass(frozen=True, slots=True)
class BankLayout:
    """Where the differences of an image lie."""

    attacks: int
    images: int
    shards: int
    dtype: torch.dtype = torch.int8
    """Of a stored difference; see `carso.training.differences`."""

    @property
    def chunks_per_attack(self) -> int:
        return -(-self.images // CHUNK)

    @property
    def chunks(self) -> int:
        return self.attacks * self.chunks_per_attack

    def of_shard(self, shard: int) -> range:
        """The chunks of one shard; none of one that is beyond the last."""
        return range(shard, self.chunks if shard < self.shards else 0, self.shards)

    def first(self, chunk: int) -> tuple[int, int]:
        """Attack and first image of a chunk."""
        attack, place = divmod(chunk, self.chunks_per_attack)
        return attack, place * CHUNK


class Bank:
    """All shards, read as one."""

    def __init__(self, layout: BankLayout, shards: list[Tensor], seconds: float) -> None:
        """`seconds` is what the process took that made the longest shard."""
        self.layout, self.shards, self.seconds = layout, shards, seconds

    def __getitem__(self, key: tuple[int, Tensor]) -> Tensor:
        """The differences that attack `key[0]` made of the images at `key[1]`."""
        attack, images = key
        chunk = attack * self.layout.chunks_per_attack + images // CHUNK
        shard, place = chunk % self.layout.shards, chunk // self.layout.shards
        row = place * CHUNK + images % CHUNK
        result = torch.empty((len(images), *self.shards[0].shape[1:]), dtype=self.layout.dtype)
        for number, tensor in enumerate(self.shards):
            here = shard == number
            result[here] = tensor[row[here]]
        return result


def in_memory(
    layout: BankLayout, shape: tuple[int, ...], fill: Fill, advance: Callable[[], None]
) -> Bank:
    """A bank of one shard that lives as long as the process."""
    began = time.perf_counter()
    shard = torch.empty((layout.chunks * CHUNK, *shape), dtype=layout.dtype)
    for place, chunk in enumerate(layout.of_shard(0)):
        put(shard, place, fill(*layout.first(chunk)))
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
    shards = whole_shards(folder, identity, layout, shape) if processes.is_first else 0
    shards = processes.broadcast(shards)  # nobody writes before the first has looked
    found = replace(layout, shards=shards or layout.shards)
    if not shards:
        make_shard(folder, identity, layout, shape, fill, advance, processes.rank)
        processes.barrier()
    else:
        for _ in layout.of_shard(processes.rank):
            advance()
    numbers = range(found.shards)
    tensors = [opened(folder, found, shape, number) for number in numbers]
    return Bank(found, tensors, max(seconds(folder, number) for number in numbers))


def whole_shards(
    folder: Path, identity: dict[str, Any], layout: BankLayout, shape: tuple[int, ...]
) -> int:
    """Of how many shards the finished bank in `folder` is; 0 if the one wanted is not there."""
    shards = note_of(folder, 0).get("shards", 0)
    if shards < 1:
        return 0
    there = replace(layout, shards=shards)
    other = shards != layout.shards  # else who makes the shard looks again, and says what is wrong
    for number in range(shards):
        found = done(folder, identity, there, shape, number, say=other)
        if len(found) < len(there.of_shard(number)):
            return 0
    return int(shards)


def make_shard(
    folder: Path,
    identity: dict[str, Any],
    layout: BankLayout,
    shape: tuple[int, ...],
    fill: Fill,
    advance: Callable[[], None],
    number: int,
) -> None:
    """Attack the chunks of one shard, or those that are left."""
    path, chunks = data(folder, layout, number), layout.of_shard(number)
    if not chunks:
        return
    sums = done(folder, identity, layout, shape, number, say=True)
    finished = len(sums)
    note = {"identity": identity, "shards": layout.shards}
    before, began = seconds(folder, number) if finished else 0.0, time.perf_counter()
    if finished == 0:  # what is there must not be taken for whole once it is overwritten
        write_index(folder, number, {**note, "sums": []})
        path.unlink(missing_ok=True)
        reserve(path, size(layout, shape, number))
    rows = (len(chunks) * CHUNK, *shape)
    mapped = np.memmap(path, dtype=kind(layout), mode="r+", shape=rows)
    shard = torch.from_numpy(mapped)
    for place, chunk in enumerate(chunks):
        if place >= finished:
            put(shard, place, fill(*layout.first(chunk)))
            sums.append(chunk_sum(mapped, place))
            if (place + 1) % FLUSH == 0 or place + 1 == len(chunks):
                mapped.flush()  # the index must never promise what the disk does not hold
                taken = before + time.perf_counter() - began
                write_index(folder, number, {**note, "sums": sums, "seconds": taken})
        advance()


def done(
    folder: Path,
    identity: dict[str, Any],
    layout: BankLayout,
    shape: tuple[int, ...],
    number: int,
    *,
    say: bool,
) -> list[str]:
    """The checksums of the chunks of a shard that are on disk, up to the first that is damaged."""
    path = data(folder, layout, number)
    note = note_of(folder, number, say=say)
    same = not differences(note.get("identity"), identity) and note.get("shards") == layout.shards
    if not same or not path.exists():
        return []
    sums: list[str] = note["sums"]
    if path.stat().st_size != size(layout, shape, number):
        right = 0
    else:
        rows = (len(layout.of_shard(number)) * CHUNK, *shape)
        mapped = np.memmap(path, dtype=kind(layout), mode="r", shape=rows)
        right = next((i for i, sum_ in enumerate(sums) if chunk_sum(mapped, i) != sum_), len(sums))
    if right < len(sums) and say:
        files.say_made_again(f"{path} is damaged: what is wrong in it is made again")
    return sums[:right]


def chunk_sum(shard: np.memmap[Any, Any], place: int) -> str:
    """A checksum of one chunk of a shard."""
    return hashlib.sha256(shard[place * CHUNK : (place + 1) * CHUNK].tobytes()).hexdigest()


def note_of(folder: Path, number: int, *, say: bool = False) -> dict[str, Any]:
    """The index of a shard; nothing where there is none, or one that cannot be read."""
    path = index(folder, number)
    try:
        return json_schema.read(path, INDEX_KIND) if path.exists() else {}
    except DamagedFileError as error:
        if say:
            files.say_made_again(f"{error}; that part of the bank is made again")
        return {}


def write_index(folder: Path, number: int, note: dict[str, Any]) -> None:
    files.write_json(index(folder, number), note)


def seconds(folder: Path, number: int) -> float:
    """How long the making of a shard took, so far as it is on disk."""
    return float(json_schema.read(index(folder, number), INDEX_KIND).get("seconds", 0.0))


def opened(folder: Path, layout: BankLayout, shape: tuple[int, ...], number: int) -> Tensor:
    """A shard for reading."""
    rows = (len(layout.of_shard(number)) * CHUNK, *shape)
    path = data(folder, layout, number)
    return torch.from_numpy(np.memmap(path, dtype=kind(layout), mode="c", shape=rows))


def put(shard: Tensor, place: int, steps: Tensor) -> None:
    """The differences of a chunk in their place; the last chunk of an attack may be short."""
    shard[place * CHUNK : place * CHUNK + len(steps)] = steps


def index(folder: Path, number: int) -> Path:
    return folder / f"bank-{number}.json"


def kind(layout: BankLayout) -> str:
    """NumPy's name of the stored type, and the ending of its files: int8, float16."""
    return str(layout.dtype).removeprefix("torch.")


def data(folder: Path, layout: BankLayout, number: int) -> Path:
    return folder / f"bank-{number}.{kind(layout)}"


def size(layout: BankLayout, shape: tuple[int, ...], number: int) -> int:
    """Bytes of a shard."""
    pixels = len(layout.of_shard(number)) * CHUNK * torch.Size(shape).numel()
    return pixels * layout.dtype.itemsize


def reserve(path: Path, size: int) -> None:
    """A file of `size` bytes that the disk really has: writing to a mapped file that outgrows the
    disk would kill the process without a word."""
    try:
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CarsoError(
            f"no room for the bank of attacked images ({size / 1e9:.1f} GB in {path}): "
            f'{error.strerror}; set bank = "memory" or "off"'
        ) from None
