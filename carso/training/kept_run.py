"""`out=` of `carso.fit` and `carso.harden`: a run in a folder, as the commands make it.

It goes on when the call is repeated, and `carso.load` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carso.arguments import shown
from carso.classifiers.frozen import Frozen
from carso.data import ImageData, ImageFacts
from carso.defence.description import read_description
from carso.defence.saving import description_of, keep, refuse_own_threat
from carso.distributed.processes import ALONE
from carso.errors import CarsoError, CarsoTypeError
from carso.machine.progress import by_default
from carso.scenario.schema import Scenario
from carso.storage import files, json_schema
from carso.training.loop import Display, Quiet
from carso.training.run_identity import refuse_another_run


@contextmanager
def kept_run(
    folder: Path, classifier: Frozen, scenario: Scenario, data: ImageData
) -> Iterator[None]:
    """Within it, `folder` is that of this scenario around this classifier, and nobody else's."""
    refuse_own_threat(scenario.threat)
    facts = ImageFacts(
        image_shape=data.image_shape, classes=data.classes, mean=data.mean, std=data.std
    )
    network = classifier.classifier
    wanted = description_of(network, scenario, facts)
    refuse_another_run(folder, wanted)
    there = (folder / "defence.json").exists()
    if there and read_description(folder).get("classifier") != wanted["classifier"]:
        raise CarsoError(f"{folder} holds a run around other weights: give another folder as out")
    with ALONE.exclusively(folder, "a run"):
        files.clear_left_over(folder)
        files.write_json(folder / "defence.json", wanted)
        if not kept_whole(folder):
            keep(folder, "classifier", network.state_dict())
        yield


def kept_whole(folder: Path) -> bool:
    """Whether the classifier lies in the folder as it was written; of one that is damaged, it is
    said that it is written again."""
    path, note = folder / "classifier.safetensors", folder / "classifier.json"
    if not (path.exists() and note.exists()):
        return False
    if json_schema.read(note, "a record of trained weights")["sha256"] == files.sha256(path):
        return True
    files.say_made_again(f"{path} is damaged: it is written again")
    return False


def check_display(display: Any) -> None:
    """One line for a display that is none."""
    for part in ("start", "finish") if display is not None else ():
        if not callable(getattr(display, part, None)):
            raise CarsoTypeError(
                f"display must have the methods of carso.training.loop.Display; {shown(display)} "
                f"has no {part}()"
            )


@contextmanager
def shown_by(display: Display | None, *, quiet: bool) -> Iterator[Display]:
    """Who shows the progress: what the caller gave, or a bar in a terminal or notebook."""
    if display is not None or quiet:
        yield display or Quiet()
        return
    with by_default() as bars:
        yield bars
