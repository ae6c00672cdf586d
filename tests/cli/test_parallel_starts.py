"""The same run, or the same record, is made by one command at a time."""

import os
from pathlib import Path

import pytest
import torch
from support import fails, mini, write_photos
from torch import nn

import carso
from carso.errors import CarsoError
from carso.storage.locks import exclusive


def test_a_run_that_is_being_trained_is_not_trained_by_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = write_photos(tmp_path / "photos")
    (tmp_path / "mini.toml").write_text(mini(photos))
    folder = tmp_path / "run"
    words = ("train", tmp_path / "mini.toml", "--run", folder, "--threads", "1")
    with exclusive(folder, "a run"):
        fails(capsys, *words, says=[str(folder), f"process {os.getpid()} on "])
        assert sorted(path.name for path in folder.iterdir()) == [".lock", ".lock.json"]


def test_a_record_that_is_being_made_is_not_made_by_another(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5))
    images, labels = torch.rand(3, 1, 4, 4), torch.tensor([0, 1, 2])
    out = tmp_path / "record.json"
    with (
        exclusive(tmp_path / "record.parts", "an evaluation"),
        pytest.raises(CarsoError, match="an evaluation is being worked on by process"),
    ):
        carso.evaluate(model, images, labels, eps=0.1, suite="quick", out=out)
    assert not out.exists()


def test_what_was_locked_leaves_nothing_behind(tmp_path: Path) -> None:
    with exclusive(tmp_path / "new", "a run"):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with exclusive(tmp_path / "old", "a run"):
        (tmp_path / "old" / "file").touch()
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["file"]
