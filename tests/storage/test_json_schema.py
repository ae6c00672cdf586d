"""Edited or foreign JSON of any kind is one line that names the file and what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from carso.defence import on_disk
from carso.defence.description import read_description
from carso.errors import CarsoError
from carso.evaluation import record
from carso.evaluation.by_name import posterior_kl
from carso.evaluation.resume import SETTINGS, FinishedResults
from carso.report.write import write_report
from carso.reproduction.times import minutes_of, times_in
from carso.storage import files, json_schema
from carso.storage.json_schema import SCHEMAS
from carso.training import attack_precision, checkpoint
from carso.training.bank_layout import BankLayout
from carso.training.bank_shard import BankShard

FOREIGN: list[Any] = [[], [1, 2], "text", 3, None, {}, {"a": 1}]


@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("found", FOREIGN)
def test_foreign_json_is_no_file_of_ours(kind: str, found: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(found))
    with pytest.raises(CarsoError, match=kind) as error:
        json_schema.read(tmp_path / "x.json", kind)
    assert str(tmp_path / "x.json") in str(error.value)
    assert "\n" not in str(error.value)


def whole(kind: str) -> dict[str, Any]:
    """An object that is of a kind."""
    made: dict[str, Any] = {}
    for key, types in SCHEMAS[kind].items():
        path = key.removesuffix("?")
        *outer, last = path.removesuffix("[]").split(".")
        table = made
        for name in outer:
            table = table[name]
        value = (types[0] if isinstance(types, tuple) else types)()
        table[last] = [value] if path.endswith("[]") else value
    return made


@pytest.mark.parametrize("kind", SCHEMAS)
def test_each_key_counts(kind: str) -> None:
    assert json_schema.fault(whole(kind), SCHEMAS[kind]) == ""
    for key in SCHEMAS[kind]:
        path = key.removesuffix("?").removesuffix("[]")
        *outer, last = path.split(".")
        for change in ({1}, "absent"):
            made = whole(kind)
            table = made
            for name in outer:
                table = table[name]
            if change == "absent":
                del table[last]
                expected = "" if key.endswith("?") else "missing"
            else:
                table[last] = [change] if "[]" in key else change
                expected = "is not"
            assert expected in json_schema.fault(made, SCHEMAS[kind])


def test_true_is_no_number() -> None:
    assert "anchor is not a number" in json_schema.fault(
        {"anchor": True, "hardening": "x"}, SCHEMAS["the choice of an anchor"]
    )


def first_shard(folder: Path) -> BankShard:
    layout = BankLayout(1, 1, 1)
    return BankShard(folder=folder, identity={}, layout=layout, shape=(1,), number=0)


READERS = {
    "defence.json": read_description,
    "checkpoint.json": lambda folder: checkpoint.index_of(folder / "checkpoint.json", {}),
    "anchor.json": lambda folder: on_disk.chosen_anchor(folder / "hardening.safetensors"),
    "precision.json": lambda folder: attack_precision.read(folder / "precision.json"),
    "bank-0.json": lambda folder: first_shard(folder).seconds(),
    SETTINGS: lambda folder: FinishedResults(folder, {"seed": 0}),
    "purifier.json": lambda folder: posterior_kl(folder),
    "hardening.json": lambda folder: minutes_of(folder),
    "times.json": lambda folder: times_in(folder / "times.json"),
    "record.json": lambda folder: record.read(folder / "record.json"),
    "report.json": lambda folder: write_report([folder / "report.json"], folder / "out"),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("found", FOREIGN)
def test_every_reader_refuses_foreign_json_in_one_line(
    name: str, found: Any, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(json.dumps(found))
    with pytest.raises(CarsoError) as error:
        READERS[name](tmp_path)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_what_a_killed_process_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    below = tmp_path / "purifier"
    below.mkdir()
    left = [tmp_path / ".defence.json.ab12_xyz", below / ".epoch-0001.safetensors.abcdefgh"]
    kept = [
        tmp_path / ".lock", tmp_path / ".lock.json", tmp_path / "defence.json",
        tmp_path / ".my.settings", below / ".notes.json.backup",
    ]  # fmt: skip
    for path in (*left, *kept):
        path.write_text("x")
    files.clear_left_over(tmp_path)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in kept)


def test_beside_a_record_only_its_own_are_cleared(tmp_path: Path) -> None:
    own, other = tmp_path / ".a.json.abcdefgh", tmp_path / ".b.json.abcdefgh"
    own.write_text("x")
    other.write_text("x")  # another evaluation may be writing it
    files.clear_left_over(tmp_path, of="a.json")
    assert not own.exists()
    assert other.exists()


def test_scratch_folders_are_cleared_when_they_are_old(tmp_path: Path) -> None:
    import os

    names = (".writing-abcd_012", ".writing-efgh_345", ".writing-of-the-user")
    old, new, other = (tmp_path / name for name in names)
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "half").write_text("x")
    for folder in (old, other):
        os.utime(folder, (0, 0))
    files.clear_old_scratch(tmp_path, ".writing-")
    assert not old.exists()
    assert new.exists()
    assert other.exists()


@pytest.mark.parametrize("name", ["fashion.onnx", "fashion.pt2", "index.html", "plot.svg"])
def test_whatever_is_written_again_is_rid_of_what_a_kill_left(name: str, tmp_path: Path) -> None:
    import os

    left, fresh, other = (
        tmp_path / f".{it}" for it in (f"{name}.abcd_012", f"{name}.efgh_345", "other.abcd_012")
    )
    for path in (left, fresh, other):
        path.write_text("half")
    for path in (left, other):
        os.utime(path, (0, 0))
    files.write_text(tmp_path / name, "whole")
    assert not left.exists()
    assert fresh.exists()
    assert other.exists()
