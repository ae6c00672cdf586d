"""Imports point one way, from the command line down to the primitives."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "carso"

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def read_map() -> list[set[str]]:
    """The rooms of each line of the map in docs/architecture.md, from top to bottom.

    A line has the rooms, then two spaces or more, then what they are for.
    """
    text = ARCHITECTURE.read_text(encoding="utf-8").split("```")[1]
    return [set(line[:40].split()) for line in text.strip().splitlines()]


LAYERS = read_map()
"""From top to bottom; a module may import from its own line and from those below."""

ROOT_NAMES = {"__init__", "__main__"}


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


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_that_is_imported_is_patched(path: Path) -> None:
    """What another module or library does is its own: no attribute of it is set from outside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Import, ast.ImportFrom)
    known = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for alias in node.names
    }
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            root = target
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(target, ast.Attribute) and isinstance(root, ast.Name):
                assert root.id not in known, f"{path.name}:{target.lineno} sets {root.id}'s own"


def test_no_catch_all_modules() -> None:
    words = {"utils", "helpers", "misc", "common"}
    assert not [p for p in PACKAGE.rglob("*.py") if p.stem in words]


def test_every_room_is_on_the_map() -> None:
    rooms = {top_level(p) for p in FILES}
    assert rooms == set().union(*LAYERS)


def test_no_name_stands_for_two_things() -> None:
    modules = [p.stem for p in PACKAGE.rglob("*.py") if p.stem != "__init__"]
    classes = [
        node.name
        for p in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(p.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    for names in (modules, classes):
        assert sorted(names) == sorted(set(names))
