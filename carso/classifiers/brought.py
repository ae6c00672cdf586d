"""Classifiers that the user brings: a Python file, a weight file, or the name of a known one."""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path

from torch import nn

from carso import data
from carso.arguments import door, place
from carso.classifiers.known_files import KNOWN, KnownFile, installed, installed_file, recognised
from carso.classifiers.registry import build
from carso.data import ImageData, ImageFacts
from carso.errors import CarsoError
from carso.scenario.classifier_settings import ClassifierSettings
from carso.scenario.parser import read
from carso.storage.tensor_files import load_weights


def of_user(path: Path) -> nn.Module:
    """The classifier that a Python file of the user's own makes, in its function `classifier()`.

    The file is run: it is code that the user trusts, as an import is. Weights are its own affair.
    """
    if path.suffix != ".py":
        raise CarsoError(f"{path} is no Python file; one with a function classifier() is wanted")
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)  # for the modules beside it
    try:
        make = runpy.run_path(str(path)).get("classifier")
        made = make() if callable(make) else None
    except (Exception, SystemExit) as error:
        first = next(iter(str(error).splitlines()), "")
        raise CarsoError(f"{path} failed: {type(error).__name__}: {first}") from None
    finally:
        with contextlib.suppress(ValueError):  # the file may have changed the list, or replaced it
            sys.path.remove(beside)
    if make is None:
        raise CarsoError(f"{path} defines no function classifier()")
    if not isinstance(made, nn.Module):
        raise CarsoError(f"classifier() of {path} gives {type(made).__name__}, not a torch module")
    return made


def given(path: Path, settings: ClassifierSettings, images: ImageData | ImageFacts) -> nn.Module:
    """The classifier in a file: a Python file makes one, any other holds the network's weights."""
    if path.suffix == ".py":
        return of_user(path)
    classifier = build(settings, images)
    load_weights(classifier, path)
    return classifier


def known(name: str) -> tuple[KnownFile, Path] | None:
    """What is known of a network of this name, or of the weight file at this path; and the file."""
    if name in installed():
        return KNOWN[name], installed_file(name)
    row = recognised(Path(name))
    return None if row is None else (row, Path(name))


def load_known(row: KnownFile, weights: Path) -> nn.Module:
    """The network of a known file, ready to predict."""
    classifier = build(row.settings, data.facts(read(row.scenario).data.set))
    load_weights(classifier, weights)
    return classifier.eval()


@door
def load_classifier(name: str | Path) -> nn.Module:
    """A trained classifier from images in [0, 1] to logits, in evaluation mode.

    `name` is that of a network inside an installed package ("autoattack-resnet18"), the path of a
    weight file that is known by its SHA-256, or of a Python file with a function `classifier()`.
    """
    place("name", name)
    if str(name).endswith(".py"):
        return of_user(Path(name)).eval()
    found = known(str(name))
    if found is None:
        titles = "; ".join(row.title for row in KNOWN.values())
        raise CarsoError(
            f"no classifier {str(name)!r}: it is neither {' nor '.join(installed())}, nor a Python "
            f"file with a function classifier(), nor a known weight file ({titles})"
        )
    return load_known(*found)
