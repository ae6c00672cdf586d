"""Adversarially balanced batches (section 4.4), and the bank that makes them cheap.

A fixed share of every batch is attacked, split evenly over PGD and FGSM at eps / 2 and eps. The
classifier never changes, so an attacked image can be made once and kept as a small difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from carso.attacks.attack import Attack
from carso.attacks.pgd import FGSM, PGD
from carso.data import Split
from carso.distributed.processes import ALONE, Processes
from carso.randomness import Share, generator, shared
from carso.scenario.purifier_training_settings import BatchAttackSettings
from carso.threats.threat import Threat
from carso.training.bank import Bank, in_memory, on_disk
from carso.training.bank_layout import CHUNK, BankLayout
from carso.training.differences import packed, stored_as, unpacked


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One of the four attacks of a batch."""

    name: str
    attack: Attack
    threat: Threat


def variants(settings: BatchAttackSettings, threat: Threat) -> tuple[Variant, ...]:
    """The attacks of section 4.4, in the order in which the released code fills a batch."""
    pgd, half = PGD(steps=settings.steps, step_size=settings.step_size), threat.scaled(0.5)
    return (
        Variant(name="pgd-half", attack=pgd, threat=half),
        Variant(name="pgd", attack=pgd, threat=threat),
        Variant(name="fgsm-half", attack=FGSM(), threat=half),
        Variant(name="fgsm", attack=FGSM(), threat=threat),
    )


def shares(seen: int, batch: int, settings: BatchAttackSettings) -> tuple[int, int, int, int]:
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
        settings: BatchAttackSettings,
        threat: Threat,
        seed: int,
        device: torch.device,
        folder: Path | None = None,
        identity: dict[str, Any] | None = None,
        processes: Processes = ALONE,
    ) -> None:
        """`folder` and `identity` (what the bank depends on) are for the bank on disk."""
        self.classifier, self.split, self.settings = classifier, split, settings
        self.variants = variants(settings, threat)
        self.seed, self.device = seed, device
        self.folder, self.identity = folder, identity or {}
        self.processes = processes
        self.bank: Bank | None = None
        self.generation = -1

    def batch(
        self, indices: Tensor, *, epoch: int, seen: int, part: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """The mixed images and their clean targets; the clean ones come first. With `part`, just
        these images of the batch, as they are in the whole of it."""
        places = torch.arange(len(indices))[part]
        own = indices[part]
        clean, labels = self.split.batch(own)
        clean, labels = clean.to(self.device), labels.to(self.device)
        mixed = clean.clone()
        counts = shares(seen, len(indices), self.settings)
        start = len(indices) - sum(counts)
        for number, count in enumerate(counts):
            mine = ((places >= start) & (places < start + count)).nonzero().flatten()
            if len(mine):
                step = 1 if part.step is None else part.step
                first = int(places[mine[0]]) - start
                with shared(Share(slice(first, count, step), count)):
                    mixed[mine] = self.attacked(
                        number, own[mine], clean[mine], labels[mine], epoch=epoch, seen=seen
                    )
            start += count
        return mixed, clean

    def attacked(
        self, number: int, indices: Tensor, clean: Tensor, labels: Tensor, *, epoch: int, seen: int
    ) -> Tensor:
        """The images `clean` under attack `number`."""
        variant = self.variants[number]
        if self.settings.bank == "off":
            source = generator(self.seed, "attack", variant.name, epoch, seen)
            return self.made(variant, clean, labels, source)
        assert self.bank is not None, "prepare() comes first"
        return unpacked(self.bank[number, indices], clean, variant.threat)

    def prepare(self, epoch: int, advance: Callable[[], None] = lambda: None) -> None:
        """Have the bank of this epoch ready: make it, or find it on disk."""
        if self.settings.bank == "off" or self.settings.fraction == 0:
            return
        refresh = self.settings.bank_refresh
        generation = epoch // refresh if refresh else 0
        if generation == self.generation:
            return
        shape = tuple(self.split.images.shape[1:])

        def fill(number: int, start: int) -> Tensor:
            return self.differences(number, start, generation)

        if self.on_disk() and self.folder is not None:
            identity = {**self.identity, "generation": generation}
            layout = self.layout()
            self.bank = on_disk(self.folder, identity, layout, shape, fill, advance, self.processes)
        else:
            self.bank = in_memory(self.layout(), shape, fill, advance)
        self.generation = generation

    @property
    def seconds(self) -> float | None:
        """How long the making of the bank took."""
        return self.bank.seconds if self.bank is not None else None

    def layout(self) -> BankLayout:
        """One shard for each process on disk, one in memory."""
        shards = self.processes.world_size if self.on_disk() else 1
        dtype = stored_as(self.variants[0].threat)
        return BankLayout(len(self.variants), len(self.split), shards, dtype, CHUNK)

    def on_disk(self) -> bool:
        """Many processes share one bank, which they can on disk only."""
        shared = self.settings.bank == "disk" or self.processes.world_size > 1
        return shared and self.folder is not None

    def chunks(self) -> int:
        """How many chunks of the bank this process makes."""
        shard = self.processes.rank if self.on_disk() else 0
        return len(self.layout().of_shard(shard))

    def differences(self, number: int, start: int, generation: int) -> Tensor:
        """One chunk of images attacked, as differences."""
        variant, chunk = self.variants[number], slice(start, start + CHUNK)
        clean, labels = self.split.batch(chunk)
        clean, labels = clean.to(self.device), labels.to(self.device)
        source = generator(self.seed, "bank", generation, variant.name, start)
        attacked = self.made(variant, clean, labels, source)
        return packed(attacked, clean, variant.threat).cpu()

    def made(self, variant: Variant, clean: Tensor, labels: Tensor, source: Generator) -> Tensor:
        """The attack itself, in the precision of the run: it is most of what a training takes."""
        with self.processes.autocast(self.device):
            return variant.attack(
                self.classifier, clean, labels, threat=variant.threat, generator=source
            )
