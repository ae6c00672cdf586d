"""Imports point one way, from the command line down to the primitives."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "carso"

LAYERS = (
    {"cli"},
    {"commands"},
    {"demo", "prediction", "reproduction", "tuning_measures"},
    {"report", "progress"},
    {"evaluation"},
    {"training", "importing"},
    {"attacks"},
    {"deployed"},
    {"defence", "view"},
    {"purifier", "representation", "aggregation"},
    {"classifiers"},
    {
        "threat",
        "data",
        "image_files",
        "published",
        "scenario",
        "scenario_file",
        "training_settings",
    },
    {"ranks", "synced_norm"},
    {"randomness", "provenance"},
    {"tensor_files", "slices", "tuning"},
    {"files", "columns"},
    {"errors", "launchers"},
)
"""From top to bottom; a module may import from its own layer and from those below."""

ROOT_NAMES = {"__init__"}


def top_level(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of carso that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts == ["carso"]:
                names |= {alias.name for alias in node.names}
            elif parts[0] == "carso":
                names.add(parts[1])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "carso" and len(parts) > 1:
                    names.add(parts[1])
    return names


def depth(name: str) -> int:
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


FILES = sorted(p for p in PACKAGE.rglob("*.py") if top_level(p) not in ROOT_NAMES)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = depth(top_level(path))
    for name in imported(path) - {"__version__"}:
        assert depth(name) >= own, f"{path.name} imports carso.{name} from a layer above"


def test_no_catch_all_modules() -> None:
    words = {"utils", "helpers", "misc", "common"}
    assert not [p for p in PACKAGE.rglob("*.py") if p.stem in words]
