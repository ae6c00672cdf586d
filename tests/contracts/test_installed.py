"""What a package index gets: it installs outside the checkout, and runs from another folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import carso

ROOT = Path(__file__).parents[2]


def done(*command: str | Path, cwd: Path, **changes: str) -> str:
    """What a command prints that does not find the checkout on its path."""
    mine = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in mine}
    environment |= changes
    words = [str(word) for word in command]
    found = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, f"{' '.join(words)}\n{found.stdout}{found.stderr}"
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the source distribution, and the wheel that is made from it."""
    pytest.importorskip("build", reason="requirements-test.txt is not installed")
    pytest.importorskip("twine", reason="requirements-test.txt is not installed")
    folder = tmp_path_factory.mktemp("built")
    left_out = shutil.ignore_patterns(
        ".git", ".venv*", ".*_cache", "__pycache__", "runs", "site", "build", "*.egg-info"
    )
    shutil.copytree(ROOT, folder / "source", ignore=left_out)
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, "source", cwd=folder)
    shutil.rmtree(folder / "source")
    yield folder
    shutil.rmtree(folder)


def one(folder: Path, kind: str) -> Path:
    (found,) = folder.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[kind])
    return found


def installed(made: Path, folder: Path) -> Path:
    """The commands of a new environment with `made` in it.

    What carso depends on is looked up where it is installed already: a torch for each environment
    would take minutes. `.pth` files over there are not read, so the checkout is not found.
    """
    place = folder / "environment"
    done(sys.executable, "-m", "venv", "--without-pip", place, cwd=folder)
    python = place / "bin" / "python"
    own = Path(
        done(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder).strip()
    )
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index")
    here = ("--no-deps", "--no-build-isolation", "--ignore-installed")
    done(*pip, *here, made, cwd=folder)
    assert (own / "carso" / "__init__.py").is_file()
    return place / "bin"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_built_runs_from_another_folder(kind: str, built: Path, tmp_path: Path) -> None:
    commands = installed(one(built, kind), tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert same_files(commands, one(built, "wheel"), elsewhere)
    version = done(commands / "carso", "--version", cwd=elsewhere)
    assert version.split() == ["carso", carso.__version__]
    assert "demo" in done(commands / "python", "-m", "carso", "--help", cwd=elsewhere)
    pressed = {"COMP_WORDS": "carso ex", "COMP_CWORD": "1", "_CARSO_COMPLETE": "complete_bash"}
    assert done(commands / "carso", cwd=elsewhere, **pressed).split() == ["export"]  # Tab in bash
    if kind == "wheel":  # the source distribution has given the same files
        said = done(commands / "carso", "demo", "--images", "3", "--quiet", cwd=elsewhere)
        assert "UNRELIABLE" in said
        assert (elsewhere / "demo" / "index.html").is_file()


def same_files(commands: Path, wheel: Path, elsewhere: Path) -> bool:
    """Whether the carso that a command in `elsewhere` imports has the files of the wheel."""
    where = "import carso; print(carso.__path__[0])"
    package = Path(done(commands / "python", "-c", where, cwd=elsewhere).strip())
    assert package.is_relative_to(commands.parent)
    found = {path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        wanted = {Path(name) for name in archive.namelist() if name.startswith("carso/")}
    return {path for path in found if path.suffix != ".pyc"} == wanted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_index_takes_its_metadata(kind: str, built: Path) -> None:
    done(sys.executable, "-m", "twine", "check", "--strict", one(built, kind), cwd=built)
