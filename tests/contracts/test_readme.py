"""What README and docs say is true: commands exist, examples run, figures are rendered."""

import copy
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from typer.main import get_command

from carso import data
from carso.cli.main import app
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import SINGLE, Effort, Suite, margin
from carso.evaluation.suites import SUITES
from carso.scenario.parser import names

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("carso/weights/*/README.md")),
]
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def shown() -> list[tuple[str, str]]:
    """The page and the line of every command of ours that a page shows in a block."""
    return [
        (page.stem, line)
        for page in PAGES
        for block in re.findall(
            r"^```\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
        )
        for line in block.splitlines()
        if re.match(r"(\S+ )*carso [a-z]", line)
    ]


def test_every_command_is_listed_and_exists() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `carso (\w+)", page, flags=re.MULTILINE))
    assert listed == set(COMMANDS)


def test_every_scenario_is_listed_and_exists() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    table = page.split("| scenario |")[1].split("\n\n")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`([\w-]+)`", row[:60])}
    assert listed == set(names())


@pytest.mark.parametrize(("page", "line"), shown(), ids=lambda value: str(value)[:60])
def test_every_command_that_is_shown_has_these_options(page: str, line: str) -> None:
    words = shlex.split(line.split(" | ")[0], comments=True)
    words = words[words.index("carso") + 1 :]
    command = COMMANDS[words[0]]
    context = command.make_context(f"carso {words[0]}", words[1:])  # raises for what it has not
    assert context.info_name == f"carso {words[0]}"


def test_readme_is_for_two_minutes() -> None:
    assert len(README.splitlines()) <= 130
    tables = re.findall(r"<!-- begin [\w-]+ -->\n(\|.*?)<!-- end", README, flags=re.DOTALL)
    assert len(tables) == 1
    assert len(tables[0].splitlines()) <= 2 + 6  # header, rule, rows


def test_no_figure_in_readme_is_typed_by_hand() -> None:
    generated_or_code = r"<!-- begin ([\w-]+) -->.*?<!-- end \1 -->|```.*?```|`[^`\n]*`"
    prose = re.sub(generated_or_code, "", README, flags=re.DOTALL)
    assert not re.findall(r"\b0\.\d", prose)


def test_the_two_commands_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test", "lint", "clean"):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    assert "make demo" in README
    assert "make test" in README


def anchors(page: Path) -> set[str]:
    """What a link may name after `#`: the headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text) + re.findall(r' src="([^"]+)"', text):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_figures_are_rendered_from_the_records() -> None:
    script = [sys.executable, "scripts/render_docs.py", "--check"]
    result = subprocess.run(script, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_ours_that_is_named_exists(page: Path) -> None:
    ours = r"`((?:carso|tests|scripts|benchmarks|docs)/[\w./-]+\.(?:py|toml|md|json|sh|svg))`"
    for path in re.findall(ours, page.read_text(encoding="utf-8")):
        assert "NAME" in path or (ROOT / path).exists(), path


@pytest.mark.parametrize("name", ["method", "architecture"])
def test_what_a_table_of_code_names_exists(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    source = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "carso").rglob("*.py"))
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    for word in re.findall(r"`(?:[A-Z]\w+\.)?([a-z_]+|[A-Z]\w+)`", table):
        assert defines(source, word), word
    for word, path in re.findall(r"`(?:[A-Z]\w+\.)?(\w+)` in `(carso/[\w/]+\.py)`", text):
        assert defines((ROOT / path).read_text(encoding="utf-8"), word), f"{word} in {path}"


def defines(source: str, name: str) -> bool:
    """Whether a source has a function, a class or a constant of this name."""
    return bool(re.search(rf"(def|class) {name}\b|^{name}\b", source, flags=re.MULTILINE))


def shortest(seed: int, samples: int) -> Suite:
    """The suite `quick` with its first attack only, and hardly any diagnostics."""
    effort = Effort(images=4, steps=1, queries=1, eps=(0.0,))
    return Suite(
        name="quick", attacks=(margin(1, 1, AttackedView(samples=samples)),), effort=effort
    )


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
        test=whole.test.balanced(20),
    )
    monkeypatch.setattr(data, "load", lambda name: few)
    monkeypatch.setitem(SUITES, "quick", shortest)
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    scope: dict[str, object] = {}
    assert "epochs=5" in example
    exec(example.replace("epochs=5", "epochs=1"), scope)
    labels, candidates = scope["labels"], scope["candidates"]
    assert "attacks" in scope["record"]  # type: ignore[operator]
    assert isinstance(labels, torch.Tensor)
    assert isinstance(candidates, torch.Tensor)
    assert labels.shape == (20,)
    assert candidates.shape[1:] == (20, 1, 28, 28)


def test_the_evaluation_example_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = types.ModuleType("my_project")
    project.network = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_project", project)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    example, with_other = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert "balanced(200)" in example
    scope: dict[str, object] = {}
    exec(example.replace("balanced(200)", "balanced(8)"), scope)
    record = scope["record"]
    assert isinstance(record, dict)
    assert record["attacks"][0]["name"] == "autoattack"
    assert (tmp_path / "records" / "mine.json").is_file()
    scope |= {"model": project.network, "other": copy.deepcopy(project.network)}
    exec(with_other.replace('"adaptive"', '"quick"'), scope)
    assert scope["record"] is not record


def test_the_evaluation_page_lists_every_suite_and_attack() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    for name in (*SUITES, *SINGLE):
        assert f"| `{name}` |" in page, name


def test_the_wheel_holds_weights_images_and_scenarios(tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".venv", ".git", "runs", "build", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, source, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("carso-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (
        "carso/py.typed",
        "carso/scenario/scenarios/fashion.toml",
        "carso/report/page.html",
        "carso/report/style.css",
        "carso/play/page/index.html",
        "carso/play/page/play.js",
        "carso/weights/fashion/purifier.safetensors",
        "carso/weights/fashion/defence.json",
        "carso/data/embedded/fashion/train-images-idx3-ubyte.gz",
    ):
        assert path in names
    works_elsewhere(wheel, tmp_path)


def works_elsewhere(wheel: Path, scratch: Path) -> None:
    """The wheel passes the check of a package index, and runs from a folder of its own."""
    pytest.importorskip("twine", reason="twine is not installed")
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    place, other = scratch / "installed", scratch / "elsewhere"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)  # as pip does with a wheel of plain Python
    other.mkdir()
    pixels = data.load("fashion-embedded").test.images[0, 0].numpy()
    Image.fromarray(pixels).save(other / "image.png")
    found = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(place), "predict", "fashion", "image.png"],
        cwd=other,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert f"carso from {place}" in found.stdout
    assert "image.png" in found.stdout


ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv.pop(1))  # before what is installed of the checkout
import carso, pathlib
print("carso from", pathlib.Path(carso.__file__).parents[1])
from carso.cli.main import main
main()
"""
