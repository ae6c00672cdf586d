"""What README and docs say is true: commands exist, examples run, figures are rendered."""

import re
import shutil
import subprocess
import sys
import types
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.main import get_command

from carso import data
from carso.cli.main import app
from carso.evaluation.attacked_model import Through
from carso.evaluation.planned_attacks import SINGLE, Effort, Suite, margin
from carso.evaluation.suites import SUITES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_is_listed_and_exists() -> None:
    listed = set(re.findall(r"^\| `carso (\w+)", README, flags=re.MULTILINE))
    assert listed == set(get_command(app).commands)  # type: ignore[attr-defined]


def test_the_two_commands_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test", "lint", "clean"):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_every_linked_file_exists() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_figures_are_rendered_from_the_records() -> None:
    script = [sys.executable, "scripts/render_docs.py", "--check"]
    result = subprocess.run(script, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_method_page_names_what_exists() -> None:
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    for path in re.findall(r"`(carso/[\w/]+\.(?:py|toml))`", text):
        assert (ROOT / path).exists(), path
    source = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "carso").rglob("*.py"))
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    for name in re.findall(r"`(?:Carso\.|Purifier\.)?([a-z_]+|[A-Z]\w+)`", table):
        assert re.search(rf"(def|class) {name}\b", source), name


def shortest(seed: int, samples: int) -> Suite:
    """The suite `quick` with its first attack only, and hardly any diagnostics."""
    effort = Effort(images=4, steps=1, queries=1, eps=(0.0,))
    return Suite(name="quick", attacks=(margin(1, 1, Through(samples=samples)),), effort=effort)


def test_the_python_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    features = nn.Sequential(
        nn.Conv2d(1, 6, 5, stride=2), nn.ReLU(), nn.Identity(), nn.Conv2d(6, 8, 3, stride=2)
    )
    project = types.ModuleType("my_project")

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.head = features, nn.Linear(8 * 5 * 5, 10)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.head(self.features(images).flatten(1))

    project.classifier = Network()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_project", project)
    whole = data.load("fashion-embedded")
    few = replace(
        whole,
        train=whole.train.balanced(200),
        validation=whole.validation.balanced(20),
        test=whole.test.balanced(100),
    )
    monkeypatch.setattr(data, "load", lambda name: few)
    monkeypatch.setitem(SUITES, "quick", shortest)
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    scope: dict[str, object] = {}
    exec(example, scope)
    labels, candidates = scope["labels"], scope["candidates"]
    assert "attacks" in scope["record"]  # type: ignore[operator]
    assert isinstance(labels, torch.Tensor)
    assert isinstance(candidates, torch.Tensor)
    assert labels.shape == (100,)
    assert candidates.shape == (8, 100, 1, 28, 28)


def test_the_evaluation_example_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = types.ModuleType("my_project")
    project.network = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_project", project)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert "balanced(200)" in example
    scope: dict[str, object] = {}
    exec(example.replace("balanced(200)", "balanced(8)"), scope)
    record = scope["record"]
    assert isinstance(record, dict)
    assert record["attacks"][0]["name"] == "autoattack"
    assert (tmp_path / "records" / "mine.json").is_file()


def test_the_evaluation_page_lists_every_suite_and_attack() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    for name in (*SUITES, *SINGLE):
        assert f"| `{name}` |" in page, name


def test_the_wheel_holds_weights_images_and_scenarios(tmp_path: Path) -> None:
    copy = tmp_path / "source"
    ignored = shutil.ignore_patterns(".venv", ".git", "runs", "build", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, copy, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(copy)], check=True)
    (wheel,) = tmp_path.glob("carso-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (
        "carso/py.typed",
        "carso/scenario/scenarios/fashion.toml",
        "carso/report/page.html",
        "carso/weights/fashion/purifier.safetensors",
        "carso/weights/fashion/defence.json",
        "carso/data/embedded/fashion/train-images-idx3-ubyte.gz",
    ):
        assert path in names
