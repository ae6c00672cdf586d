"""Small data sets in the official layouts, and folders that keep tests off the user's own data."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from carso.data import Split, locations
from carso.data.idx import TEST, TRAINING, write_idx

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data set can be found except where a test puts it; returns the empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CARSO_DATA", raising=False)
    monkeypatch.setattr(locations, "SYSTEM_ROOT", tmp_path / "system")
    return tmp_path / "cache" / "carso" / "data"


@pytest.fixture
def random_split() -> Callable[..., Split]:
    """A split with the same number of images of each class, in shuffled order."""

    def make(per_class: int, *, classes: int = 10, shape: tuple[int, ...] = (1, 6, 5)) -> Split:
        generator = torch.Generator().manual_seed(per_class)
        count = per_class * classes
        labels = torch.arange(classes).repeat(per_class)[torch.randperm(count, generator=generator)]
        images = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=generator)
        return Split(images=images, labels=labels)

    return make


@pytest.fixture
def idx_folder(
    tmp_path: Path, random_split: Callable[..., Split]
) -> Callable[..., tuple[Path, Split, Split]]:
    """Write four IDX files into a folder; returns it with what was written."""

    def make(
        name: str = "mnist", suffix: str = ".gz", classes: int = 10
    ) -> tuple[Path, Split, Split]:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        training, test = (random_split(count, classes=classes) for count in (20, 3))
        for names, split in ((TRAINING, training), (TEST, test)):
            write_idx(folder / f"{names[0]}{suffix}", split.images.squeeze(1))
            write_idx(folder / f"{names[1]}{suffix}", split.labels)
        return folder, training, test

    return make


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Parts of official sets kept beside the repository by its developers."""
    place = Path(os.environ.get("CARSO_SHARED", REPOSITORY.parent / "shared")) / "data"
    if not place.is_dir():
        pytest.skip(f"no developers' data in {place}; set CARSO_SHARED to the folder above it")
    return place
