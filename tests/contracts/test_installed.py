"""Wheel and source distribution, installed by pip into environments of their own, run elsewhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import carso

ROOT = Path(__file__).parents[2]


def done(*command: str | Path, cwd: Path) -> str:
    """What a command prints, which does not find the checkout on its path."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    found = subprocess.run(
        [str(word) for word in command],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.skipif(
    os.environ.get("CARSO_TEST_NETWORK") != "1",
    reason="set CARSO_TEST_NETWORK=1 to install from a package index",
)
@pytest.mark.parametrize(("kind", "pattern"), [("wheel", "*.whl"), ("sdist", "*.tar.gz")])
def test_what_is_built_installs_and_runs_elsewhere(kind: str, pattern: str, tmp_path: Path) -> None:
    source, place, elsewhere = (tmp_path / name for name in ("source", "venv", "elsewhere"))
    left_out = shutil.ignore_patterns(".venv*", ".git", "runs", "build", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, source, ignore=left_out)
    elsewhere.mkdir()
    build = ("-m", "build", "--no-isolation", f"--{kind}", "--outdir", tmp_path, source)
    done(sys.executable, *build, cwd=tmp_path)
    (made,) = tmp_path.glob(pattern)
    done(sys.executable, "-m", "twine", "check", "--strict", made, cwd=tmp_path)
    done(sys.executable, "-m", "venv", place, cwd=tmp_path)
    done(place / "bin" / "pip", "install", "-c", ROOT / "constraints.txt", made, cwd=elsewhere)
    shutil.rmtree(source)
    try:
        command = place / "bin" / "carso"
        assert done(command, "--version", cwd=elsewhere).strip().endswith(carso.__version__)
        where = "import carso; print(carso.__file__)"
        assert str(place) in done(place / "bin" / "python", "-c", where, cwd=elsewhere)
        said = done(command, "demo", "--images", "3", "--quiet", cwd=elsewhere)
        assert "page:" in said
        assert (elsewhere / "demo" / "index.html").is_file()
    finally:
        shutil.rmtree(place)
