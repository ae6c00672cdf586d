"""Where data sets are looked for, and what is said when they are not there."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from carso.data import DATA_SETS, DataError, Split, available, from_tensors, load
from carso.data.sources import MIRRORS
from carso.errors import CarsoError

MakeFolder = Callable[..., tuple[Path, Split, Split]]


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DataError) as caught:
        load("imagenet")
    for name in DATA_SETS:
        assert name in str(caught.value)
    assert isinstance(caught.value, CarsoError)


@pytest.mark.parametrize("name", [name for name in DATA_SETS if name != "fashion-embedded"])
def test_a_missing_set_names_the_folders_searched_and_the_remedies(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_installed: Path
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("CARSO_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    places = (tmp_path, tmp_path / "mine", nothing_installed, tmp_path / "system")
    positions = [message.index(f"{place},") for place in places[:-1]]
    positions.append(message.index(f"{places[-1]} for"))
    assert positions == sorted(positions)
    assert DATA_SETS[name].layouts[0].folder in message
    assert "--data DIR" in message
    assert "--download" in message
    assert "\n" not in message


def test_a_set_that_cannot_be_downloaded_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MIRRORS, "mnist")
    with pytest.raises(DataError, match="mnist cannot be downloaded"):
        load("mnist", download=True)
    with pytest.raises(DataError) as caught:
        load("mnist")
    assert "--download" not in str(caught.value)


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: expected a folder that holds data sets"):
        load("mnist", tmp_path / "absent")


def test_earlier_folders_win(
    idx_folder: MakeFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_installed: Path,
) -> None:
    relative = nothing_installed.relative_to(tmp_path)
    for place in ("system", str(relative), "mine", "root"):
        folder, _, _ = idx_folder(f"{place}/mnist")
        if place == "mine":
            monkeypatch.setenv("CARSO_DATA", str(tmp_path / "mine"))
        root = tmp_path / "root" if place == "root" else None
        assert load("mnist", root).origin == str(folder)


def test_the_root_itself_may_be_the_folder_of_the_set(idx_folder: MakeFolder) -> None:
    folder, _, _ = idx_folder("downloads")
    assert load("mnist", folder).origin == str(folder)


def test_available_says_where_each_set_is(idx_folder: MakeFolder, tmp_path: Path) -> None:
    folder, _, _ = idx_folder("mnist")
    places = dict(available(tmp_path))
    assert list(places) == list(DATA_SETS)
    assert places["fashion-embedded"] == "embedded"
    assert places["mnist"] == str(folder)
    assert places["cifar10"] is None


def test_every_set_that_is_not_shipped_can_be_downloaded() -> None:
    assert set(MIRRORS) == {name for name, row in DATA_SETS.items() if row.shipped is None}
    for name, mirrors in MIRRORS.items():
        folders = {layout.folder for layout in DATA_SETS[name].layouts}
        assert {mirror.folder for mirror in mirrors} <= folders


def test_the_table_has_a_statistic_for_each_channel() -> None:
    for row in DATA_SETS.values():
        assert len(row.mean) == len(row.std) in (1, 3)


def test_tensors_make_a_set_with_every_class_in_every_part() -> None:
    images = torch.arange(40, dtype=torch.uint8).repeat_interleave(4).view(40, 1, 2, 2)
    labels = torch.arange(40) % 2
    made = from_tensors(images, labels, classes=["even", "odd"])
    assert made.classes == ("even", "odd")
    assert [len(part) for part in (made.train, made.validation, made.test)] == [32, 4, 4]
    for part in (made.train, made.validation, made.test):
        assert set(part.labels.tolist()) == {0, 1}
        assert torch.equal(part.images[:, 0, 0, 0] % 2, part.labels.to(torch.uint8))
    with pytest.raises(DataError, match="at least one image"):
        from_tensors(images[:0], labels[:0])
