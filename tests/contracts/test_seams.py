"""What a user may replace is known by its protocol alone: no code of ours looks past it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import carso.attacks

PACKAGE = Path(carso.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted(path.name for path in (PACKAGE / "purifiers").iterdir() if path.is_dir())
PARTS = {"decoder", "posterior", "conditioning", "encoder"}
"""Of the paper's purifier."""
COMPLETENESS = {"refuse_without", "refuse_no_purifier"}
"""These name what an object of the user's lacks, and decide nothing else."""
PUBLISHED = {"carso.purifiers.vae.published_parts"}
"""The files that the paper's authors published are of one kind of purifier."""


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def outside(room: str) -> list[Path]:
    return [path for path in FILES if room not in path.relative_to(PACKAGE).parts]


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", outside("purifiers"), ids=named)
def test_nobody_names_the_parts_of_a_purifier(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.Attribute):
            assert node.attr not in PARTS, f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and named(path) != "__init__.py":
            kinds = {f"carso.purifiers.{room}" for room in ROOMS}
            inside = any((node.module or "").startswith(kind) for kind in kinds)
            assert not inside or node.module in PUBLISHED, f"line {node.lineno}"


def concrete_attacks() -> set[str]:
    """The classes of the attacks that ship: whatever can be called with images and labels."""
    found = set()
    for path in (PACKAGE / "attacks").glob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and node.name != "Attack":
                methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                found |= {node.name} if {"__call__", "facts"} <= methods else set()
    return found


def test_the_attacks_are_found() -> None:
    assert {"PGD", "APGD", "FAB", "Square", "AutoAttack", "Margin"} <= concrete_attacks()


@pytest.mark.parametrize("path", FILES, ids=named)
def test_what_something_is_is_not_guessed(path: Path) -> None:
    """No suite is steered by the class of an attack, and no `hasattr` decides what a thing is."""
    attacks, tree = concrete_attacks(), ast.parse(path.read_text(encoding="utf-8"))
    checks = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name in COMPLETENESS
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id == "isinstance":
            asked = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
            assert not asked & attacks, f"line {node.lineno}"
        if node.func.id == "hasattr" and id(node) not in checks:
            assert ast.unparse(node.args[0]) == "os", f"line {node.lineno}"
