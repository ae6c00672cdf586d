"""What is shipped as source holds what one needs to check it: docs and tests."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys, setuptools.build_meta as b; print(b.build_sdist(sys.argv[1]))"


@pytest.mark.slow
def test_the_source_distribution_holds_docs_and_tests(tmp_path: Path) -> None:
    source = tmp_path / "source"
    left_out = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "*.safetensors", "runs")
    shutil.copytree(ROOT, source, ignore=left_out)
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as found:
        names = {name.partition("/")[2] for name in found.getnames()}
    for folder in ("docs", "tests", "scripts"):
        files = [path for path in (source / folder).rglob("*") if path.is_file()]
        missing = {str(path.relative_to(source)) for path in files} - names
        assert not missing
    assert {"Makefile", "constraints.txt", "CHANGELOG.md", "pyproject.toml"} <= names
    assert not any("__pycache__" in name for name in names)


def test_every_python_that_is_classified_is_in_the_makefile() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    classified = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tried = re.search(r"^PYTHONS \?= ([\d. ]+)$", makefile, re.MULTILINE)
    assert tried is not None
    assert classified == tried[1].split() == ["3.11", "3.12", "3.13"]


CHECK = """
import ast, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    ast.parse(path.read_text(encoding="utf-8"), str(path))
"""


def interpreter(version: str) -> str | None:
    """A Python of this version that really runs; a shim of pyenv may name one that does not."""
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in (shutil.which(f"python{version}"), *map(str, installed)):
        if python and subprocess.run([python, "-V"], capture_output=True).returncode == 0:
            return python
    return None


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_sources_are_valid_in_newer_pythons(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    command = [python, "-W", "error", "-c", CHECK, str(ROOT / "carso")]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_a_shipped_defence_answers_in_newer_pythons(version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    modules = "torch, safetensors, typer, rich, filelock, pytorch_optimizer"
    if subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode:
        pytest.skip(f"Python {version} has no torch here: see `make test-all-pythons`")
    answer = "import carso, torch; print(carso.load('fashion').predict(torch.zeros(1, 1, 28, 28)))"
    subprocess.run([python, "-c", answer], check=True, cwd=ROOT)
