"""The site builds without a warning: no broken link, no page that is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="mkdocs and mkdocstrings are not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    found = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "WARNING" not in found.stderr
    start = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "fonts.googleapis.com" not in start
    reference = (tmp_path / "api.html").read_text(encoding="utf-8")
    assert "carso.evaluate" in reference
    assert (tmp_path / "pictures" / "play-attack-wide.png").is_file()
