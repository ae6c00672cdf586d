"""Adversarially balanced batches: the right share, inside the ball, and a bank that is the same
however often its making was interrupted."""

import errno
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from carso.attacks.pgd import PGD
from carso.data import Split
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.randomness import generator
from carso.scenario.purifier_training_settings import BatchAttackSettings
from carso.threats.linf import Linf
from carso.training import batches
from carso.training.batches import AdversarialBatches, shares, variants

EPS = 0.1
IMAGES = 60


class Interrupted(Exception):
    """Stands for a run that is stopped."""


@pytest.fixture
def split() -> Split:
    source = torch.Generator().manual_seed(0)
    return Split(
        images=torch.randint(256, (IMAGES, 1, 6, 6), dtype=torch.uint8, generator=source),
        labels=torch.randint(3, (IMAGES,), generator=source),
    )


@pytest.fixture
def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.SiLU(), nn.Linear(16, 3)).eval()


@pytest.fixture
def make(split: Split, classifier: nn.Module) -> Callable[..., AdversarialBatches]:
    """Batches of the fixtures above, with settings of the test's own."""

    def make(
        *,
        folder: Path | None = None,
        identity: dict[str, Any] | None = None,
        seed: int = 5,
        processes: Processes = ALONE,
        **settings: Any,
    ) -> AdversarialBatches:
        wanted = {"fraction": 0.5, "steps": 3, "step_size": 0.04, "bank": "off", **settings}
        return AdversarialBatches(
            classifier,
            split,
            settings=BatchAttackSettings(**wanted),
            threat=Linf(eps=EPS),
            seed=seed,
            device=torch.device("cpu"),
            folder=folder,
            identity=identity,
            processes=processes,
        )

    return make


def epoch_shares(
    settings: BatchAttackSettings, images: int, batch: int, *, seen: int = 0
) -> list[tuple]:
    """The shares of each batch of an epoch that starts after `seen` images."""
    ends = [*range(0, images, batch), images]
    return [shares(seen + start, end - start, settings) for start, end in pairwise(ends)]


@pytest.mark.parametrize("fraction", [0.01, 0.15, 0.5, 1.0, 1 / 3, 0.003])
@pytest.mark.parametrize(("images", "batch"), [(45_000, 128), (45_000, 5120), (9_000, 2), (999, 7)])
@pytest.mark.parametrize("epoch", [0, 1, 17])
def test_the_attacked_share_of_an_epoch_is_right_and_evenly_split(
    fraction: float, images: int, batch: int, epoch: int
) -> None:
    settings = BatchAttackSettings(fraction=fraction)
    counts = epoch_shares(settings, images, batch, seen=epoch * images)
    total = [sum(column) for column in zip(*counts, strict=True)]
    assert abs(sum(total) - fraction * images) <= 1
    assert sum(total) > 0
    assert max(total) - min(total) <= 1
    # No attack waits for another: from the first batch on, each has what is due to it.
    running = torch.tensor(counts).cumsum(0)
    if epoch == 0:
        due = fraction / 4 * torch.arange(1, len(counts) + 1).mul(batch).clamp(max=images)
        assert ((running - due[:, None]).abs() <= 1).all()


@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.15, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 7, 128])
def test_a_batch_never_has_more_attacked_images_than_its_own(fraction: float, batch: int) -> None:
    settings = BatchAttackSettings(fraction=fraction)
    for number in range(300):
        counts = shares(number * batch, batch, settings)
        assert min(counts) >= 0
        assert sum(counts) <= batch
        assert abs(sum(counts) - fraction * batch) <= 1
        if fraction == 1.0:
            assert sum(counts) == batch
        if fraction == 0.0:
            assert sum(counts) == 0


def test_a_small_fraction_of_small_batches_is_carried_over() -> None:
    """0.01 of 128 images is 1.28 a batch, a third of an image for each attack."""
    counts = epoch_shares(BatchAttackSettings(fraction=0.01), 128 * 100, 128)
    totals = [sum(batch) for batch in counts]
    assert set(totals) == {1, 2}
    assert sum(totals) == 128
    assert [sum(column) for column in zip(*counts, strict=True)] == [32] * 4


def test_device_batch_gives_the_shares_of_the_released_code() -> None:
    assert shares(0, 5120, BatchAttackSettings(fraction=0.5, device_batch=640)) == (640,) * 4
    assert shares(0, 2560, BatchAttackSettings(fraction=0.15, device_batch=640)) == (96,) * 4
    assert shares(0, 1024, BatchAttackSettings(fraction=0.01, device_batch=128)) == (0,) * 4
    for seen in range(0, 1024 * 100, 1024):
        assert shares(seen, 1024, BatchAttackSettings(fraction=0.01, device_batch=128)) == (0,) * 4


def test_the_four_attacks_are_those_of_the_paper() -> None:
    found = variants(BatchAttackSettings(fraction=0.5), Linf(eps=8 / 255))
    assert [v.name for v in found] == ["pgd-half", "pgd", "fgsm-half", "fgsm"]
    assert [v.threat.eps for v in found] == [4 / 255, 8 / 255, 4 / 255, 8 / 255]
    assert found[0].attack == found[1].attack == PGD(steps=40, step_size=0.01, random_start=True)


@pytest.mark.parametrize("bank", ["off", "memory", "disk"])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
def test_a_batch_is_clean_images_first_then_each_attack_in_its_own_ball(
    make: Callable[..., AdversarialBatches],
    split: Split,
    tmp_path: Path,
    bank: str,
    fraction: float,
) -> None:
    batches = make(bank=bank, fraction=fraction, folder=tmp_path)
    batches.prepare(0)
    indices = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(1))[:41]
    mixed, target = batches.batch(indices, epoch=0, seen=82)
    assert torch.equal(target, split.batch(indices)[0])
    assert mixed.shape == target.shape
    counts = shares(82, 41, batches.settings)
    start = 41 - sum(counts)
    assert torch.equal(mixed[:start], target[:start])
    for variant, count in zip(batches.variants, counts, strict=True):
        part = slice(start, start + count)
        start += count
        assert variant.threat.contains(mixed[part], target[part]).all()
        change = (mixed[part] - target[part]).abs().flatten(1)
        assert (change.amax(dim=1) > 0.9 * variant.threat.eps).all(), "each image is attacked"
    assert start == 41


def test_attacks_made_anew_repeat_with_the_seed_and_change_with_the_epoch(
    make: Callable[..., AdversarialBatches],
) -> None:
    indices = torch.arange(20)
    first, _ = make().batch(indices, epoch=0, seen=0)
    assert torch.equal(first, make().batch(indices, epoch=0, seen=0)[0])
    assert not torch.equal(first, make().batch(indices, epoch=1, seen=0)[0])
    assert not torch.equal(first, make(seed=6).batch(indices, epoch=0, seen=0)[0])


def test_the_bank_gives_what_an_attack_gives_up_to_quantisation(
    make: Callable[..., AdversarialBatches], split: Split, classifier: nn.Module
) -> None:
    batches = make(bank="memory")
    batches.prepare(0)
    clean, labels = split.batch(slice(None))
    for number, variant in enumerate(batches.variants):
        source = generator(5, "bank", 0, variant.name, 0)
        direct = variant.attack(classifier, clean, labels, threat=variant.threat, generator=source)
        stored = batches.attacked(number, torch.arange(IMAGES), clean, labels, epoch=0, seen=0)
        assert (stored - direct).abs().max() <= variant.threat.eps / 127 / 2 + 1e-6
        assert variant.threat.contains(stored, clean).all()


def test_one_step_attacks_of_bank_and_anew_agree_without_any_seed(
    make: Callable[..., AdversarialBatches], split: Split
) -> None:
    batches, anew = make(bank="memory", seed=1), make(bank="off", seed=2)
    batches.prepare(0)
    indices = torch.tensor([40, 3, 59, 17])
    clean, labels = split.batch(indices)
    for number in (2, 3):  # FGSM draws nothing
        stored = batches.attacked(number, indices, clean, labels, epoch=0, seen=0)
        direct = anew.attacked(number, indices, clean, labels, epoch=0, seen=0)
        assert (stored - direct).abs().max() <= EPS / 127 / 2 + 1e-6


def filled(
    batches: AdversarialBatches,
    epoch: int = 0,
    stop: int | None = None,
    advance: Callable[[], None] = lambda: None,
) -> int:
    """How many chunks `prepare` attacked; it is interrupted once `stop` chunks are done."""
    count, differences = 0, batches.differences

    def counted(number: int, start: int, generation: int) -> Tensor:
        nonlocal count
        if count == stop:
            raise Interrupted
        count += 1
        return differences(number, start, generation)

    batches.differences = counted  # type: ignore[method-assign]
    try:
        batches.prepare(epoch, advance)
    except Interrupted:
        assert stop is not None
    finally:
        batches.differences = differences  # type: ignore[method-assign]
    return count


def content(batches: AdversarialBatches) -> Tensor:
    """All differences in the bank, by attack and image."""
    everything = torch.arange(IMAGES)
    assert batches.bank is not None
    return torch.stack([batches.bank[number, everything] for number in range(4)])


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Chunks of 8 images; returns how many a bank has."""
    monkeypatch.setattr(batches, "CHUNK", 8)
    return 4 * 8


def test_the_bank_is_made_in_whole_and_only_once(
    make: Callable[..., AdversarialBatches], small_chunks: int
) -> None:
    batches = make(bank="memory")
    steps: list[int] = []
    batches.prepare(0, lambda: steps.append(1))
    assert len(steps) == batches.chunks() == small_chunks
    assert filled(batches) == 0
    assert filled(batches, epoch=7) == 0
    assert content(batches).shape == (4, IMAGES, 1, 6, 6)
    assert content(batches).dtype == torch.int8


def test_no_bank_is_made_where_none_is_wanted(make: Callable[..., AdversarialBatches]) -> None:
    assert filled(make(bank="off")) == 0
    assert filled(make(bank="memory", fraction=0.0)) == 0


def test_the_bank_on_disk_is_that_in_memory_and_is_found_again(
    make: Callable[..., AdversarialBatches], tmp_path: Path, small_chunks: int
) -> None:
    memory, disk = make(bank="memory"), make(bank="disk", folder=tmp_path / "run")
    memory.prepare(0)
    assert filled(disk) == small_chunks
    assert torch.equal(content(disk), content(memory))
    again = make(bank="disk", folder=tmp_path / "run")
    assert filled(again) == 0
    assert torch.equal(content(again), content(memory))


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_many_processes_make_the_bank_of_one(
    make: Callable[..., AdversarialBatches],
    together: Callable[..., list[Any]],
    tmp_path: Path,
    small_chunks: int,
    processes: int,
) -> None:
    """Each makes its chunks, none makes one twice, and all read the whole."""
    memory = make(bank="memory")
    memory.prepare(0)

    def work(processes: Processes) -> tuple[int, int, int, Tensor]:
        batches, advanced = make(bank="disk", folder=tmp_path, processes=processes), []
        fills = filled(batches, advance=lambda: advanced.append(1))
        return fills, len(advanced), batches.chunks(), content(batches)

    found = together(processes, work)
    assert sum(fills for fills, _, _, _ in found) == small_chunks
    for fills, advanced, chunks, read in found:
        assert fills == advanced == chunks
        assert fills in (small_chunks // processes, -(-small_chunks // processes))
        assert torch.equal(read, content(memory))
    alone = make(bank="disk", folder=tmp_path)
    assert filled(alone) == 0
    assert torch.equal(content(alone), content(memory))


@pytest.mark.parametrize("bank", ["off", "memory", "disk"])
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("fraction", [0.1, 0.5, 1.0])
def test_the_parts_of_a_batch_put_together_are_the_whole_of_it(
    make: Callable[..., AdversarialBatches],
    together: Callable[..., list[Any]],
    tmp_path: Path,
    small_chunks: int,
    bank: str,
    processes: int,
    fraction: float,
) -> None:
    """Also where an attack has one image only, so that most processes have none of it."""
    indices = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(1))[:41]
    one = make(bank=bank, fraction=fraction, folder=tmp_path / "one")
    one.prepare(0)
    whole, whole_target = one.batch(indices, epoch=0, seen=82)

    def work(processes: Processes) -> tuple[slice, Tensor, Tensor]:
        batches = make(bank=bank, fraction=fraction, folder=tmp_path / "many", processes=processes)
        batches.prepare(0)
        part = processes.part(len(indices))
        return part, *batches.batch(indices, epoch=0, seen=82, part=part)

    mixed, target = torch.full_like(whole, torch.nan), torch.full_like(whole, torch.nan)
    for part, own, own_target in together(processes, work):
        mixed[part], target[part] = own, own_target
    assert torch.equal(target, whole_target)
    # Attacks made anew round otherwise in a smaller batch; other noise would be far from this.
    torch.testing.assert_close(mixed, whole, rtol=0, atol=1e-6 if bank == "off" else 0)


@pytest.mark.parametrize("stop", [0, 1, 20, 31])
def test_a_bank_whose_making_stopped_is_taken_up_there_and_has_the_same_bytes(
    make: Callable[..., AdversarialBatches], tmp_path: Path, small_chunks: int, stop: int
) -> None:
    memory = make(bank="memory")
    memory.prepare(0)
    filled(make(bank="disk", folder=tmp_path), stop=stop)
    resumed = make(bank="disk", folder=tmp_path)
    advanced: list[int] = []
    fills = filled(resumed, advance=lambda: advanced.append(1))
    assert torch.equal(content(resumed), content(memory))
    assert len(advanced) == small_chunks
    assert fills == small_chunks - stop // 16 * 16  # progress is noted every 16 chunks


def test_the_bank_is_refreshed_when_asked_and_repeats_exactly(
    make: Callable[..., AdversarialBatches], tmp_path: Path, small_chunks: int
) -> None:
    kinds: list[dict[str, Any]] = [{"bank": "memory"}, {"bank": "disk", "folder": tmp_path}]
    seen: list[list[Tensor]] = []
    for kind in kinds:
        batches = make(bank_refresh=2, **kind)
        fills, banks = [], []
        for epoch in range(5):
            fills.append(filled(batches, epoch))
            banks.append(content(batches))
        assert fills == [small_chunks, 0, small_chunks, 0, small_chunks]
        assert torch.equal(banks[0], banks[1])
        assert torch.equal(banks[2], banks[3])
        for one, other in ((0, 2), (2, 4), (0, 4)):
            assert not torch.equal(banks[one][:2], banks[other][:2])  # PGD starts elsewhere
            assert torch.equal(banks[one][2:], banks[other][2:])  # FGSM draws nothing
        seen.append(banks)
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
    late = make(bank_refresh=2, bank="memory")  # as a run does that is resumed at epoch 3
    late.prepare(3)
    assert torch.equal(content(late), seen[0][3])


def test_a_bank_of_another_run_is_not_used(
    make: Callable[..., AdversarialBatches], tmp_path: Path, small_chunks: int
) -> None:
    old = make(bank="disk", folder=tmp_path, identity={"seed": 5})
    assert filled(old) == small_chunks
    before = content(old)
    new = make(bank="disk", folder=tmp_path, identity={"seed": 6}, seed=6)
    assert filled(new) == small_chunks
    assert not torch.equal(content(new), before)
    assert filled(make(bank="disk", folder=tmp_path, identity={"seed": 6}, seed=6)) == 0


@pytest.mark.parametrize("stop", [1, 20])
def test_a_bank_half_overwritten_by_another_run_is_not_taken_for_whole(
    make: Callable[..., AdversarialBatches], tmp_path: Path, small_chunks: int, stop: int
) -> None:
    """Settings are changed, the run is stopped at once, and the settings are changed back."""
    old = make(bank="disk", folder=tmp_path, identity={"seed": 5})
    old.prepare(0)
    right = content(old)
    filled(make(bank="disk", folder=tmp_path, identity={"seed": 6}, seed=6), stop=stop)
    back = make(bank="disk", folder=tmp_path, identity={"seed": 5})
    back.prepare(0)
    assert torch.equal(content(back), right)


def test_a_bank_file_that_was_cut_short_is_made_again(
    make: Callable[..., AdversarialBatches], tmp_path: Path, small_chunks: int
) -> None:
    old = make(bank="disk", folder=tmp_path)
    old.prepare(0)
    right = content(old)
    del old
    (file,) = (path for path in tmp_path.iterdir() if path.suffix != ".json")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 3])
    again = make(bank="disk", folder=tmp_path)
    again.prepare(0)
    assert torch.equal(content(again), right)


def test_a_disk_without_room_is_one_clear_line(
    make: Callable[..., AdversarialBatches], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(CarsoError, match=r"no room for the bank.*No space left.*bank ="):
        make(bank="disk", folder=tmp_path).prepare(0)
    assert not list(tmp_path.glob("*.int8"))
