"""The defences that visitors may pick, each loaded when it is first asked for, and their images."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carso import data
from carso.data import Split
from carso.data.image_files import image_from_bytes
from carso.defence import on_disk, shipped
from carso.defence.description import read_description
from carso.defence.elsewhere import is_whole
from carso.defence.on_disk import Deployed
from carso.errors import CarsoError
from carso.evaluation.gallery import png
from carso.play.visitor_requests import AttackRequest

FIRST = "fashion"
"""The shipped defence that the page begins with: quick, and its images ship as well."""
PER_VIEW = 12
"""Test images that the page shows at once."""


@dataclass(slots=True)
class ShownDefence:
    """A defence, with test images where its data set is found."""

    defence: Deployed
    images: Split | None
    device: torch.device
    """Where the defence is; what a visitor brings is carried there."""

    def picked(self, asked: AttackRequest) -> tuple[Tensor, Tensor, bool]:
        """The image (1, C, H, W), its label (1,), and whether that is the truth or only what the
        classifier alone says of it."""
        if asked.image is not None:
            if self.images is None:
                raise CarsoError("there are no test images of this defence here: upload or draw")
            if asked.image >= len(self.images):
                raise CarsoError(f"there are test images 0 to {len(self.images) - 1}")
            image, label = self.images.batch(slice(asked.image, asked.image + 1))
            return image.to(self.device), label.to(self.device), True
        image = self.brought(asked).to(self.device)
        if asked.label is None:
            with torch.no_grad():
                return image, self.defence.classifier(image).argmax(dim=1), False
        if asked.label >= len(self.defence.classes):
            raise CarsoError(f"label must be a class from 0 to {len(self.defence.classes) - 1}")
        return image, torch.tensor([asked.label]).to(self.device), True

    def brought(self, asked: AttackRequest) -> Tensor:
        """The image that a visitor uploaded or drew, (1, C, H, W)."""
        channels, height, width = shape = self.defence.trained_shape
        if asked.picture:
            return image_from_bytes(asked.picture, shape)[None]
        if len(asked.drawing) != height * width:
            raise CarsoError(
                f"a drawing has a byte for each of {width}x{height} pixels, "
                f"got {len(asked.drawing)} bytes"
            )
        grey = torch.tensor(list(asked.drawing), dtype=torch.float32) / 255
        return grey.view(1, 1, height, width).repeat(1, channels, 1, 1)

    def described(self) -> dict[str, Any]:
        """What the page must know to offer it."""
        threat, shape = self.defence.scenario.threat, self.defence.trained_shape
        return {
            "classes": list(self.defence.classes),
            "shape": list(shape),
            "norm": threat.norm,
            "eps": threat.eps,
            "samples": self.defence.samples,
            "hardened": self.defence.hardened,
            "own_counts": self.defence.own_counts,
            "summary": self.defence.scenario.summary,
            "images": 0 if self.images is None else len(self.images),
        }

    def pictures(self, start: int) -> list[dict[str, Any]]:
        """A few test images from `start` on."""
        if self.images is None:
            return []
        images, labels = self.images.batch(slice(start, start + PER_VIEW))
        return [
            {"number": start + i, "picture": png(image), "label": self.defence.classes[int(label)]}
            for i, (image, label) in enumerate(zip(images, labels, strict=True))
        ]


def test_images(defence: Deployed) -> Split | None:
    """Test images of the defence's data set, classes in turn; those that ship come first, since
    they are read at once."""
    known = defence.scenario.data
    for name in filter(None, (known.fallback, known.set)):
        try:
            found = data.load(name)
        except data.DataError:
            continue
        if found.image_shape == defence.trained_shape:
            return found.test.balanced(len(found.test))
    return None


@dataclass(slots=True)
class Exhibition:
    """All that can be picked, by the name that the page shows."""

    folders: dict[str, Path]
    classifier: nn.Module | None = None
    """The network of those runs that need one of the user's own."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    loaded: dict[str, ShownDefence] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def names(self) -> list[str]:
        return list(self.folders)

    def shapes(self) -> dict[str, list[int]]:
        """The (C, H, W) of each one's images; nothing is loaded for that."""
        return {
            name: read_description(folder)["images"]["shape"]
            for name, folder in self.folders.items()
        }

    def __getitem__(self, name: str) -> ShownDefence:
        if name not in self.folders:
            raise CarsoError(f"defence must be one of {', '.join(self.folders)}")
        with self.lock:
            if name not in self.loaded:
                folder = self.folders[name]
                whole = folder.parent == shipped.SHIPPED and is_whole(folder)
                defence = on_disk.load(
                    folder, classifier=None if whole else self.classifier, device=self.device
                )
                self.loaded[name] = ShownDefence(defence, test_images(defence), self.device)
            return self.loaded[name]


def exhibition(
    runs: Sequence[str],
    classifier: nn.Module | None = None,
    device: torch.device | str = "cpu",
) -> Exhibition:
    """The given runs first, loaded, so that one that is none is said at once; then what ships."""
    folders = {name: shipped.folder_of(run) for name, run in shown_names(runs).items()}
    given = list(folders)
    for name in (FIRST, *shipped.names()):
        if is_whole(shipped.SHIPPED / name):
            folders.setdefault(name, shipped.SHIPPED / name)
    found = Exhibition(folders, classifier, torch.device(device))
    for name in given:
        found[name]
    return found


def shown_names(runs: Sequence[str]) -> dict[str, str]:
    """Each run by its last name, or as it was given where that name is another's as well."""
    last = {run: Path(run).resolve().name for run in runs}
    taken = [*last.values(), *(name for name in shipped.names() if name not in last)]
    return {name if taken.count(name) == 1 else run: run for run, name in last.items()}
