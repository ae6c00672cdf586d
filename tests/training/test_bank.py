"""The bank in shards: whoever made it, and however often the making stopped, an image has the
differences that are its own, and none is made twice."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from carso.distributed.processes import ALONE, Processes
from carso.training import bank
from carso.training.bank import Bank, in_memory, make_shard, on_disk
from carso.training.bank_layout import BankLayout
from carso.training.bank_shard import BankShard

CHUNK = 8
FLUSH = 3
ATTACKS, IMAGES = 4, 60
CHUNKS = 32
"""Of 8 images, the last of an attack of 4; two shards of 16, or three of 11, 11 and 10."""
SHAPE = (1, 6, 6)
DIFFERENCES = torch.randint(
    -127,
    128,
    (ATTACKS, IMAGES, *SHAPE),
    dtype=torch.int8,
    generator=torch.Generator().manual_seed(0),
)
Together = Callable[..., list[Any]]


class Interrupted(Exception):
    """Stands for a run that is stopped."""


@dataclass
class Attacking:
    """Stands for the attacks: gives a chunk's differences and remembers which chunk it was."""

    stop: int | None = None
    made: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, attack: int, first: int) -> Tensor:
        if len(self.made) == self.stop:
            raise Interrupted
        self.made.append((attack, first))
        return DIFFERENCES[attack, first : first + CHUNK]


@dataclass
class Found:
    """What one process made, how often it told of progress, and what it read."""

    made: list[tuple[int, int]]
    advanced: int
    content: Tensor


@pytest.fixture(autouse=True)
def often_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank, "FLUSH", FLUSH)


def content(found: Bank) -> Tensor:
    everything = torch.arange(IMAGES)
    return torch.stack([found[attack, everything] for attack in range(ATTACKS)])


def layout_of(shards: int) -> BankLayout:
    return BankLayout(ATTACKS, IMAGES, shards, chunk=CHUNK)


def prepared(folder: Path, processes: Processes = ALONE, *, run: str = "this") -> Found:
    """What a process of a run does before it trains."""
    attacking, advanced = Attacking(), []
    found = on_disk(
        folder,
        {"run": run},
        layout_of(processes.world_size),
        SHAPE,
        attacking,
        lambda: advanced.append(1),
        processes,
    )
    return Found(attacking.made, len(advanced), content(found))


def part_made(
    folder: Path, shard: int, of: int, *, run: str = "this", stop: int | None = None
) -> None:
    """One process makes its shard, or is stopped once `stop` chunks of it are done."""
    own = BankShard(
        folder=folder, identity={"run": run}, layout=layout_of(of), shape=SHAPE, number=shard
    )
    try:
        make_shard(own, Attacking(stop), lambda: None)
    except Interrupted:
        assert stop is not None


def files_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of writing, by name."""
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def chunks_of(shard: int, of: int) -> list[tuple[int, int]]:
    return [layout_of(of).first(chunk) for chunk in layout_of(of).of_shard(shard)]


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 32])
def test_every_chunk_lies_in_one_shard_and_shards_are_equal(shards: int) -> None:
    everywhere = [chunks_of(shard, shards) for shard in range(shards)]
    together = [chunk for chunks in everywhere for chunk in chunks]
    starts = range(0, IMAGES, CHUNK)
    assert sorted(together) == [(attack, first) for attack in range(ATTACKS) for first in starts]
    assert max(map(len, everywhere)) - min(map(len, everywhere)) <= 1
    assert len(together) == layout_of(shards).chunks == CHUNKS


def test_a_bank_in_memory_has_the_differences_of_every_image() -> None:
    attacking, advanced = Attacking(), []
    found = in_memory(layout_of(1), SHAPE, attacking, lambda: advanced.append(1))
    assert torch.equal(content(found), DIFFERENCES)
    assert len(attacking.made) == len(advanced) == CHUNKS


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
def test_processes_make_a_shard_each_and_read_what_one_process_makes(
    together: Together, tmp_path: Path, processes: int
) -> None:
    found = together(processes, lambda processes: prepared(tmp_path, processes))
    for index, process in enumerate(found):
        assert process.made == chunks_of(index, processes)
        assert process.advanced == len(process.made)
        assert torch.equal(process.content, DIFFERENCES)
    names = {f"bank-{index}.{kind}" for index in range(processes) for kind in ("int8", "json")}
    assert set(files_in(tmp_path)) == names


@pytest.mark.parametrize("shards", [1, 3])
def test_images_are_read_in_the_order_in_which_they_are_asked_for(
    tmp_path: Path, shards: int
) -> None:
    for shard in range(shards):
        part_made(tmp_path, shard, shards)
    found = on_disk(tmp_path, {"run": "this"}, layout_of(1), SHAPE, Attacking(), print, ALONE)
    indices = torch.randint(IMAGES, (200,), generator=torch.Generator().manual_seed(1))
    for attack in range(ATTACKS):
        assert torch.equal(found[attack, indices], DIFFERENCES[attack, indices])
        assert found[attack, indices[:0]].shape == (0, *SHAPE)
    assert found[0, indices].dtype == torch.int8


@pytest.mark.parametrize("makers", [1, 2, 3])
@pytest.mark.parametrize("readers", [1, 2, 3])
def test_a_whole_bank_is_read_by_any_number_of_processes_and_not_made_again(
    together: Together, tmp_path: Path, makers: int, readers: int
) -> None:
    together(makers, lambda processes: prepared(tmp_path, processes))
    before = files_in(tmp_path)
    for process in together(readers, lambda processes: prepared(tmp_path, processes)):
        assert process.made == []
        assert torch.equal(process.content, DIFFERENCES)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("stops", [(0, 1, 2), (None, 7, 3), (11, 9, None), (None, None, 0)])
def test_each_shard_is_taken_up_where_its_making_stopped(
    together: Together, tmp_path: Path, stops: tuple[int | None, ...]
) -> None:
    for shard, stop in enumerate(stops):
        part_made(tmp_path, shard, len(stops), stop=stop)
    found = together(len(stops), lambda processes: prepared(tmp_path, processes))
    for shard, (stop, process) in enumerate(zip(stops, found, strict=True)):
        chunks = chunks_of(shard, len(stops))
        done = len(chunks) if stop in (None, len(chunks)) else stop // FLUSH * FLUSH
        assert process.made == chunks[done:]
        assert process.advanced == len(chunks)
        assert torch.equal(process.content, DIFFERENCES)
    assert all(not p.made for p in together(3, lambda processes: prepared(tmp_path, processes)))


def test_the_time_of_the_making_counts_what_was_made_before_a_stop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = [0.0]
    monkeypatch.setattr(bank, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    class Slow(Attacking):
        def __call__(self, attack: int, first: int) -> Tensor:
            clock[0] += 2
            return super().__call__(attack, first)

    stopped, going_on = Slow(stop=9), Slow()
    arguments = (tmp_path, {"run": "this"}, layout_of(1), SHAPE)
    with pytest.raises(Interrupted):
        on_disk(*arguments, stopped, lambda: None, ALONE)
    clock[0] += 1000
    assert on_disk(*arguments, going_on, lambda: None, ALONE).seconds == 2 * CHUNKS
    assert on_disk(*arguments, Slow(), lambda: None, ALONE).seconds == 2 * CHUNKS
    assert in_memory(layout_of(1), SHAPE, Slow(), lambda: None).seconds == 2 * CHUNKS


def test_nobody_writes_before_everybody_has_looked(together: Together, tmp_path: Path) -> None:
    """Else one that comes late would find the bank whole and leave the others waiting for it."""
    part_made(tmp_path, 1, 2)

    def work(processes: Processes) -> Found:
        sleep(0.3 * processes.rank)
        return prepared(tmp_path, processes)

    first, late = together(2, work)
    assert (first.made, late.made) == (chunks_of(0, 2), [])
    assert torch.equal(first.content, DIFFERENCES)
    assert torch.equal(late.content, DIFFERENCES)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("kind", "damage"), [("int8", cut), ("int8", Path.unlink), ("json", Path.unlink)]
)
@pytest.mark.parametrize("shard", [0, 2])
def test_only_a_shard_that_is_damaged_is_made_again(
    together: Together, tmp_path: Path, kind: str, damage: Callable[[Path], None], shard: int
) -> None:
    together(3, lambda processes: prepared(tmp_path, processes))
    damage(tmp_path / f"bank-{shard}.{kind}")
    for index, process in enumerate(together(3, lambda processes: prepared(tmp_path, processes))):
        assert process.made == (chunks_of(shard, 3) if index == shard else [])
        assert torch.equal(process.content, DIFFERENCES)


def flip(path: Path, row: int) -> None:
    """Eight bytes changed in one image of a shard."""
    content = bytearray(path.read_bytes())
    first = row * torch.Size(SHAPE).numel()
    content[first : first + 8] = bytes(255 - value for value in content[first : first + 8])
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("chunk", [0, 4, 10])
def test_a_shard_is_made_again_from_the_first_damaged_chunk_on(
    together: Together, tmp_path: Path, capsys: pytest.CaptureFixture[str], chunk: int
) -> None:
    together(3, lambda processes: prepared(tmp_path, processes))
    flip(tmp_path / "bank-1.int8", chunk * CHUNK + 3)
    for index, process in enumerate(together(3, lambda processes: prepared(tmp_path, processes))):
        assert process.made == (chunks_of(1, 3)[chunk:] if index == 1 else [])
        assert torch.equal(process.content, DIFFERENCES)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"carso: {tmp_path / 'bank-1.int8'} is damaged")


@pytest.mark.parametrize("readers", [1, 2])
def test_damage_is_noticed_by_any_number_of_processes(
    together: Together, tmp_path: Path, capsys: pytest.CaptureFixture[str], readers: int
) -> None:
    together(2, lambda processes: prepared(tmp_path, processes))
    flip(tmp_path / "bank-1.int8", 5)
    for process in together(readers, lambda processes: prepared(tmp_path, processes)):
        assert torch.equal(process.content, DIFFERENCES)
    assert capsys.readouterr().err.count("bank-1.int8 is damaged") == 1


def test_an_index_that_was_edited_is_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(tmp_path)
    index = tmp_path / "bank-0.json"
    index.write_text(index.read_text().replace('"seconds": ', '"seconds": 1'))
    found = prepared(tmp_path)
    assert found.made == chunks_of(0, 1)
    assert torch.equal(found.content, DIFFERENCES)
    assert "bank-0.json is damaged or was edited" in capsys.readouterr().err


@pytest.mark.parametrize(("makers", "readers"), [(3, 1), (3, 2), (1, 3), (2, 3), (6, 7)])
@pytest.mark.parametrize("stop", [0, 4])
def test_a_bank_that_another_number_of_processes_left_unfinished_is_made_anew(
    together: Together, tmp_path: Path, makers: int, readers: int, stop: int
) -> None:
    """Also by seven where six left shards of the same size; and if the other number goes on
    afterwards, what is whole by then is read."""
    for shard in range(makers):
        part_made(tmp_path, shard, makers, stop=stop if shard == makers - 1 else None)
    for index, process in enumerate(together(readers, lambda r: prepared(tmp_path, r))):
        assert process.made == chunks_of(index, readers)
        assert torch.equal(process.content, DIFFERENCES)
    for process in together(makers, lambda processes: prepared(tmp_path, processes)):
        assert process.made == []
        assert torch.equal(process.content, DIFFERENCES)


@pytest.mark.parametrize("overwritten", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize(("shards", "others"), [(2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("stop", [0, 4, None])
def test_what_another_run_has_overwritten_is_made_again(
    together: Together,
    tmp_path: Path,
    overwritten: tuple[int, ...],
    shards: int,
    others: int,
    stop: int | None,
) -> None:
    """Some processes of a run with other settings, and of another number, came so far; then the
    settings are changed back."""
    together(shards, lambda processes: prepared(tmp_path, processes))
    for shard in overwritten:
        part_made(tmp_path, shard, others, run="another", stop=stop)
    for index, process in enumerate(together(shards, lambda r: prepared(tmp_path, r))):
        assert process.made == (chunks_of(index, shards) if index in overwritten else [])
        assert torch.equal(process.content, DIFFERENCES)


def test_a_bank_of_another_run_is_not_used(together: Together, tmp_path: Path) -> None:
    together(3, lambda processes: prepared(tmp_path, processes, run="another"))
    for index, process in enumerate(together(3, lambda r: prepared(tmp_path, r))):
        assert process.made == chunks_of(index, 3)


def test_processes_for_whom_no_chunk_is_left_read_what_the_others_make(
    together: Together, tmp_path: Path
) -> None:
    found = together(CHUNKS + 2, lambda processes: prepared(tmp_path, processes))
    assert all(torch.equal(process.content, DIFFERENCES) for process in found)
    assert [len(process.made) for process in found] == [1] * CHUNKS + [0, 0]
