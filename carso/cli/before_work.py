"""Mistakes that are found before anything else is done, even before torch is imported: names that
there are not, files that are not there, places that cannot be written.

The names of a registry are read from its source, since importing it would import torch.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from pathlib import Path

from carso.classifiers.known_files import installed
from carso.defence.shipped import folder_of
from carso.errors import CarsoError
from carso.evaluation.attack_names import SUITE_NAMES, refuse_attack
from carso.machine.limits import check_threads
from carso.scenario.hardening_settings import ENEMIES, STARTS, means_a_file
from carso.storage.files import check_writable

PACKAGE = Path(__file__).parents[1]
REGISTRIES = {
    "suite": ("evaluation/suites.py", "SUITES"),
    "aggregation": ("defence/aggregation.py", "AGGREGATIONS"),
    "norm": ("threats/norms.py", "THREATS"),
    "data set": ("data/sets.py", "DATA_SETS"),
    "table": ("reproduction/paper_tables.py", "TABLES"),
    "precision": ("distributed/launchers.py", "PRECISIONS"),
    "format": ("export/export_files.py", "SUFFIXES"),
}
"""By what an option names: the module and the variable of the table that has it."""
SPLITS = ("test", "validation")
DEVICE = re.compile(r"auto|(cpu|cuda|mps|xpu)(:\d+)?")
"""What a device may be called; whether it is there, torch says."""


def check_words(words: Iterable[str]) -> None:
    """Refuse an empty word, as a variable of the shell gives that is not set: taken as a path it
    would be this folder, taken as a name the default."""
    before = "carso"
    for word in words:
        if not word.strip():
            raise CarsoError(f"what follows {before} on the command line is empty")
        if word.startswith("--") and word.endswith("="):
            raise CarsoError(f"{word} has no value")
        before = word


def names_of(kind: str) -> tuple[str, ...]:
    """The keys of a registry; none where its source cannot be read."""
    file, variable = REGISTRIES[kind]
    source = PACKAGE / file
    if not source.is_file():
        return ()
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        named = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == variable for one in named):
            table = getattr(node, "value", None)
            keys = table.keys if isinstance(table, ast.Dict) else getattr(table, "elts", [])
            return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))
    return ()


def check_name(kind: str, name: str) -> None:
    """Refuse a name that a registry does not have; an empty one stands for the default."""
    known = names_of(kind)
    if name and known and name not in known:
        raise CarsoError(f"there is no {kind} {name!r}; there are {', '.join(known)}")


def check_data_set(name: str) -> None:
    """Refuse the name of a data set that is neither in the table nor a folder."""
    known = names_of("data set")
    folder = Path(name.removeprefix("folder:")).expanduser()
    if name and known and name not in known and not folder.is_dir():
        raise CarsoError(
            f"unknown data set {name!r}; expected one of {', '.join(known)}, "
            "or folder:PATH with images in class folders"
        )


def check_defence(name: str) -> None:
    """Refuse what is neither a defence nor the name or the weights of a known classifier."""
    if name not in installed() and not Path(name).is_file():
        folder_of(name)


def check_start(name: str) -> None:
    """Refuse a starting point of a hardening that is neither a word for one, nor a file, nor a
    defence."""
    if name and name not in STARTS:
        if means_a_file(name):
            check_files("--start", [Path(name)])
        else:
            try:
                check_defence(name)
            except CarsoError as error:
                raise CarsoError(
                    f"--start is neither of {STARTS} nor a file, and {error}"
                ) from None


def check_sigma(sigma: float | None) -> None:
    """Refuse a deviation of noise that is none; without noise the option is left away."""
    if sigma is not None and not 0 < sigma < math.inf:
        raise CarsoError(f"--sigma is a number above 0, got {sigma:g}")


def check_against(name: str) -> None:
    """Refuse what nothing is hardened against."""
    if name and name not in ENEMIES:
        raise CarsoError(f"--against is {' or '.join(ENEMIES)}, got {name!r}")


def check_classifier(path: Path | None, option: str = "--classifier") -> None:
    """Refuse what is neither a file nor the name of a known classifier."""
    if path is not None and str(path) not in installed():
        check_files(option, [path])


def check_attacks(suite: str, attacks: Iterable[str]) -> None:
    """Refuse attacks that a suite does not have."""
    for name in attacks:
        if suite in SUITE_NAMES:
            refuse_attack(suite, name, SUITE_NAMES[suite])


def check_split(split: str) -> None:
    """Refuse a part of a data set that is not evaluated on."""
    if split not in SPLITS:
        raise CarsoError(f"the split is {' or '.join(SPLITS)}, got {split!r}")


def check_machine(device: str, threads: int = 0) -> None:
    """Refuse what is no device, and threads that would be too many."""
    if not DEVICE.fullmatch(device):
        raise CarsoError(f"--device is cpu, cuda, cuda:N or auto, got {device!r}")
    check_threads(threads)


def check_files(option: str, paths: Iterable[Path | None]) -> None:
    """Refuse files that are not there."""
    for path in paths:
        if path is not None and not path.is_file():
            is_folder = f"{path} is a folder, and a file is meant"
            what = is_folder if path.is_dir() else f"there is no file {path}"
            raise CarsoError(f"{option}: {what}" if option else what)


def check_folder(option: str, path: Path | None) -> None:
    """Refuse a folder that is not there."""
    if path is not None and not path.is_dir():
        raise CarsoError(f"{option}: there is no folder {path}")


def check_training(
    classifier: Path | None, run: Path | None, data: Path | None, on: str, precision: str
) -> None:
    """What `carso train` and `carso harden` both refuse."""
    check_files("--classifier", [classifier])
    check_folder("--data", data)
    check_data_set(on)
    check_name("precision", precision)
    check_places(folders=[run])


def check_places(*files: Path | None, folders: Iterable[Path | None] = ()) -> None:
    """Refuse files and folders that cannot be written."""
    for file in files:
        if file is not None:
            check_writable(file)
    for folder in folders:
        if folder is not None:
            check_writable(folder, folder=True)
