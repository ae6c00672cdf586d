"""Adversarially balanced batches (section 4.4), and the bank that makes them cheap.

A fixed share of every batch is attacked, split evenly over PGD and FGSM at eps / 2 and eps. The
classifier never changes, so an attacked image can be made once and kept as 8-bit differences.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from carso import files
from carso.attacks.gradient import FGSM, PGD, Attack
from carso.data import Split
from carso.errors import CarsoError
from carso.randomness import generator
from carso.threat import Linf
from carso.training_settings import Attacks

LEVELS = 127
"""A difference is stored in units of eps / 127, so a stored image stays inside its ball."""
CHUNK = 256
"""Images that are attacked together while the bank is made; fixed, for the same bits always."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One of the four attacks of a batch."""

    name: str
    attack: Attack
    threat: Linf


def variants(settings: Attacks, threat: Linf) -> tuple[Variant, ...]:
    """The attacks of section 4.4, in the order in which the released code fills a batch."""
    pgd, half = PGD(steps=settings.steps, step_size=settings.step_size), threat.scaled(0.5)
    return (
        Variant(name="pgd-half", attack=pgd, threat=half),
        Variant(name="pgd", attack=pgd, threat=threat),
        Variant(name="fgsm-half", attack=FGSM(), threat=half),
        Variant(name="fgsm", attack=FGSM(), threat=threat),
    )


def shares(seen: int, batch: int, settings: Attacks) -> tuple[int, int, int, int]:
    """How many images of the next `batch` each attack gets, after `seen` images since the start.

    What a batch cannot give is owed to the next: the shares of all batches together are right
    however small the fraction. The attacks take turns, a quarter of an image apart.
    `device_batch` gives the released code's shares instead: rounded down in each device's part.
    """
    each = settings.fraction / 4
    if settings.device_batch:
        devices = batch // settings.device_batch
        return (devices * int(settings.device_batch * settings.fraction // 4),) * 4
    first, second, third, fourth = (
        int((seen + batch) * each + turn / 4) - int(seen * each + turn / 4) for turn in range(4)
    )
    return first, second, third, fourth


class AdversarialBatches:
    """Mixes attacked images into batches of `split`, from a bank or made anew each time."""

    def __init__(
        self,
        classifier: nn.Module,
        split: Split,
        *,
        settings: Attacks,
        threat: Linf,
        seed: int,
        device: torch.device,
        folder: Path | None = None,
        identity: dict[str, Any] | None = None,
    ) -> None:
        """`folder` and `identity` (what the bank depends on) are for the bank on disk."""
        self.classifier, self.split, self.settings = classifier, split, settings
        self.variants = variants(settings, threat)
        self.seed, self.device = seed, device
        self.folder, self.identity = folder, identity or {}
        self.bank: Tensor | None = None
        self.generation = -1

    def batch(self, indices: Tensor, *, epoch: int, seen: int) -> tuple[Tensor, Tensor]:
        """The mixed images and their clean targets; the clean ones come first."""
        clean, labels = self.split.batch(indices)
        clean, labels = clean.to(self.device), labels.to(self.device)
        mixed = clean.clone()
        counts = shares(seen, len(indices), self.settings)
        start = len(indices) - sum(counts)
        for number, count in enumerate(counts):
            part = slice(start, start + count)
            start += count
            if count:
                mixed[part] = self.attacked(
                    number, indices[part], clean[part], labels[part], epoch=epoch, seen=seen
                )
        return mixed, clean

    def attacked(
        self, number: int, indices: Tensor, clean: Tensor, labels: Tensor, *, epoch: int, seen: int
    ) -> Tensor:
        """The images `clean` under attack `number`."""
        variant = self.variants[number]
        if self.settings.bank == "off":
            source = generator(self.seed, "attack", variant.name, epoch, seen)
            return variant.attack(
                self.classifier, clean, labels, threat=variant.threat, generator=source
            )
        assert self.bank is not None, "prepare() comes first"
        steps = self.bank[number, indices].to(self.device, clean.dtype)
        return (clean + steps * (variant.threat.eps / LEVELS)).clamp_(0, 1)

    def prepare(self, epoch: int, advance: Callable[[], None] = lambda: None) -> None:
        """Have the bank of this epoch ready: make it, or find it on disk."""
        if self.settings.bank == "off" or self.settings.fraction == 0:
            return
        refresh = self.settings.bank_refresh
        generation = epoch // refresh if refresh else 0
        if generation == self.generation:
            return
        shape = (len(self.variants), *self.split.images.shape)
        if self.settings.bank == "disk" and self.folder is not None:
            self.bank = self.on_disk(shape, generation, advance)
        else:
            self.bank = torch.empty(shape, dtype=torch.int8)
            for number, start in self.chunks():
                self.fill(self.bank, number, start, generation)
                advance()
        self.generation = generation

    def chunks(self) -> list[tuple[int, int]]:
        """Every (attack, first image) that the bank is made of."""
        starts = range(0, len(self.split), CHUNK)
        return [(number, start) for number in range(len(self.variants)) for start in starts]

    def fill(self, bank: Tensor, number: int, start: int, generation: int) -> None:
        """Attack one chunk of images and store the differences."""
        variant, chunk = self.variants[number], slice(start, start + CHUNK)
        clean, labels = self.split.batch(chunk)
        clean, labels = clean.to(self.device), labels.to(self.device)
        source = generator(self.seed, "bank", generation, variant.name, start)
        attacked = variant.attack(
            self.classifier, clean, labels, threat=variant.threat, generator=source
        )
        steps = (attacked - clean) * (LEVELS / variant.threat.eps)
        bank[number, chunk] = steps.round().clamp_(-LEVELS, LEVELS).to(torch.int8).cpu()

    def on_disk(
        self, shape: tuple[int, ...], generation: int, advance: Callable[[], None]
    ) -> Tensor:
        """The bank as a file of the run, taken up at the chunk where its making stopped."""
        assert self.folder is not None
        index, path = self.folder / "bank.json", self.folder / "bank.int8"
        wanted = {**self.identity, "generation": generation, "shape": list(shape)}
        size = torch.Size(shape).numel()
        whole = index.exists() and path.exists() and path.stat().st_size == size
        found = files.read_json(index) if whole else {}
        done = found.get("chunks", 0) if found.get("identity") == wanted else 0
        if done == 0:  # what is there must not be taken for whole once it is overwritten
            files.write_json(index, {"identity": wanted, "chunks": 0})
            path.unlink(missing_ok=True)
            reserve(path, size)
        mapped = np.memmap(path, dtype=np.int8, mode="r+", shape=shape)
        bank = torch.from_numpy(mapped)
        for count, (number, start) in enumerate(self.chunks(), start=1):
            if count > done:
                self.fill(bank, number, start, generation)
                if count % 16 == 0 or count == len(self.chunks()):
                    mapped.flush()  # the index must never promise what the disk does not hold
                    files.write_json(index, {"identity": wanted, "chunks": count})
            advance()
        return bank


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
