"""The notebooks run from top to bottom, and show what they say they show."""

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

import nbformat
from nbformat import NotebookNode
from notebook_pages import as_page, words
from run_notebooks import code_hash, executed

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def printed(notebook: NotebookNode) -> str:
    """All that its cells printed."""
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    return "".join(words(one) for one in outputs if one.output_type == "stream")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_with_the_code_is_its_output(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata["ran"] == code_hash(notebook), "run scripts/run_notebooks.py"
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    assert outputs
    assert not [one for one in outputs if one.output_type == "error"]
    assert "/" + "home" not in str(notebook)
    assert sys.prefix not in str(notebook)


def test_a_defended_classifier_stands_more_and_is_not_changed(tmp_path: Path) -> None:
    said = printed(executed(FOLDER / "defend_a_classifier.ipynb", tmp_path))
    assert "the classifier is as it was given: True" in said
    assert "config.json" in said
    alone, defended = (
        float(found) for found in re.findall(r"clean [\d.]+, attacked ([\d.]+)", said)
    )
    assert defended > alone + 0.1


def test_a_broken_defence_is_caught_and_brought_down(tmp_path: Path) -> None:
    said = printed(executed(FOLDER / "is_it_real.ipynb", tmp_path))
    bare, flattering = (float(found) for found in re.findall(r"under PGD ([\d.]+)", said))
    assert bare <= 0.1
    assert flattering >= 0.5
    assert "unreliable: True" in said
    assert re.search(r"^- (inside|jumps|gradients):", said, re.MULTILINE)


def test_a_page_has_the_code_the_words_and_the_pictures() -> None:
    text, pictures = as_page(FOLDER / "defend_a_classifier.ipynb")
    assert text.startswith("# Defend a classifier that is not yours")
    assert "defence = carso.harden(" in text
    (name,) = pictures
    assert f"({name})" in text
    assert pictures[name].startswith(b"\x89PNG")
