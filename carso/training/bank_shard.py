"""One shard of the bank on disk: a file of differences, and an index with their checksums."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from carso.errors import CarsoError
from carso.storage import files, json_schema
from carso.storage.files import DamagedFileError
from carso.training.bank_layout import BankLayout
from carso.training.run_identity import differences

INDEX_KIND = "the index of a bank"

Mapped = np.memmap[Any, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class BankShard:
    """Shard `number` of a bank of differences of images of `shape`, in the folder of a run."""

    folder: Path
    identity: dict[str, Any]
    """What the bank depends on; one of another identity is not used."""
    layout: BankLayout
    shape: tuple[int, ...]
    number: int

    @property
    def index(self) -> Path:
        return self.folder / f"bank-{self.number}.json"

    @property
    def path(self) -> Path:
        return self.folder / f"bank-{self.number}.{self.kind}"

    @property
    def kind(self) -> str:
        """NumPy's name of the stored type, and the ending of its files: int8, float16."""
        return str(self.layout.dtype).removeprefix("torch.")

    @property
    def chunks(self) -> range:
        return self.layout.of_shard(self.number)

    @property
    def size(self) -> int:
        """In bytes."""
        pixels = len(self.chunks) * self.layout.chunk * torch.Size(self.shape).numel()
        return pixels * self.layout.dtype.itemsize

    def mapped(self, mode: Literal["r", "r+", "c"]) -> Mapped:
        """All rows of it, read from disk when they are looked at; "r+" writes there as well."""
        rows = (len(self.chunks) * self.layout.chunk, *self.shape)
        return np.memmap(self.path, dtype=self.kind, mode=mode, shape=rows)

    def chunk_sum(self, mapped: Mapped, place: int) -> str:
        """A checksum of one chunk."""
        return hashlib.sha256(mapped[self.layout.rows(place)].tobytes()).hexdigest()

    def note(self, *, say: bool = False) -> dict[str, Any]:
        """The index; nothing where there is none, or one that cannot be read."""
        try:
            return json_schema.read(self.index, INDEX_KIND) if self.index.exists() else {}
        except DamagedFileError as error:
            if say:
                files.say_made_again(f"{error}; that part of the bank is made again")
            return {}

    def write_note(self, sums: list[str], **more: Any) -> None:
        note = {"identity": self.identity, "shards": self.layout.shards, "sums": sums}
        files.write_json(self.index, note | more)

    def seconds(self) -> float:
        """How long its making took, so far as it is on disk."""
        return float(json_schema.read(self.index, INDEX_KIND).get("seconds", 0.0))

    def done(self, *, say: bool) -> list[str]:
        """The checksums of the chunks that are on disk, up to the first that is damaged."""
        note = self.note(say=say)
        other = differences(note.get("identity"), self.identity)
        if other or note.get("shards") != self.layout.shards or not self.path.exists():
            return []
        sums: list[str] = note["sums"]
        right = 0
        if self.path.stat().st_size == self.size:
            mapped = self.mapped("r")
            wrong = (i for i, known in enumerate(sums) if self.chunk_sum(mapped, i) != known)
            right = next(wrong, len(sums))
        if right < len(sums) and say:
            files.say_made_again(f"{self.path} is damaged: what is wrong in it is made again")
        return sums[:right]

    def begin(self) -> None:
        """An empty file for it. What is there must not be taken for whole once it is overwritten,
        so the index goes first."""
        self.write_note([])
        self.path.unlink(missing_ok=True)
        reserve(self.path, self.size)


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
