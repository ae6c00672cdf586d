"""What is exported answers as the defence does, on any number of images."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support import fails, run
from torch import Generator, Tensor

import carso
from carso import data
from carso.defence.on_disk import Deployed
from carso.defence.shipped import names
from carso.export.export_files import export_defence
from carso.randomness import given_noise

IMAGES = 200
PAGE = Path(__file__).parents[2] / "docs" / "export.md"


def by_defence(defence: Deployed, images: Tensor, noise: Tensor) -> Tensor:
    """Log-probabilities of the defence itself, with this noise."""
    with given_noise(noise), torch.no_grad():
        return defence(images)


def inputs(size: int, count: int = IMAGES) -> tuple[Tensor, Tensor]:
    images = data.load("fashion-embedded").test.batch(slice(0, count))[0]
    return images, torch.randn(count, size, generator=Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["fashion", "fashion-retrofit-unet"])
def test_onnx_gives_the_same_labels_and_probabilities(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="carso[export] is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="carso[export] is not installed")
    defence = carso.load(name, samples=2)
    note = export_defence(defence, "onnx", tmp_path / "it.onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(
        tmp_path / "it.onnx", options, providers=["CPUExecutionProvider"]
    )
    images, noise = inputs(note["noise_size"])
    wanted = by_defence(defence, images, noise)
    for part in (slice(0, IMAGES), slice(3, 4)):  # a batch of any size
        scores, labels = session.run(
            None, {"images": images[part].numpy(), "noise": noise[part].numpy()}
        )
        assert (torch.from_numpy(labels) == wanted[part].argmax(dim=1)).all()
        torch.testing.assert_close(
            torch.from_numpy(scores).exp(), wanted[part].exp(), atol=1e-4, rtol=1e-3
        )


def test_the_lines_of_the_page_serve_what_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript", reason="carso[export] is not installed")
    pytest.importorskip("onnxruntime", reason="carso[export] is not installed")
    defence = carso.load("fashion", samples=1)
    export_defence(defence, "onnx", tmp_path / "defence.onnx")
    text = PAGE.read_text(encoding="utf-8")
    (lines,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.S) if "onnxruntime" in b)
    monkeypatch.chdir(tmp_path)
    served: dict[str, Any] = {}
    exec(lines, served)
    clothes = data.load("fashion-embedded")
    images, right = clothes.test.batch(slice(0, 50))
    found = served["labels"](images.numpy())
    wanted = [clothes.classes[label] for label in right.tolist()]
    assert sum(a == b for a, b in zip(found, wanted, strict=True)) > 35


def test_torch_gives_the_same_anchored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "it.pt2"
    code, out, _ = run(
        capsys, "export", "fashion-hardened", "--to", "torch", "--out", path, "--json"
    )
    assert code == 0
    note = json.loads(out)
    images, noise = inputs(note["noise_size"], 5)
    scores, labels = torch.export.load(path).module()(images, noise)
    wanted = by_defence(carso.load("fashion-hardened"), images, noise)
    assert torch.equal(labels, wanted.argmax(dim=1))
    torch.testing.assert_close(scores.exp(), wanted.exp(), atol=1e-5, rtol=1e-4)


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, "export", "fashion", "--to", "paper", says=["there is no format 'paper'"])
    record = tmp_path / "record.json"
    record.write_text('{"format": 3}')
    for out, says in ((record, "goes"), (tmp_path / "record.onnx", "no note of an export")):
        fails(capsys, "export", "fashion", "--out", out, says=[says])
    assert record.read_text() == '{"format": 3}'
    vote = carso.load("fashion", aggregation="majority-vote")
    with pytest.raises(carso.CarsoError, match="majority-vote"):
        export_defence(vote, "onnx", tmp_path / "vote.onnx")
    assert list(tmp_path.iterdir()) == [record]


def test_the_figures_of_every_shipped_defence_are_recorded() -> None:
    """`python scripts/record_exports.py docs/results/exports.json --weights FOLDER` makes them."""
    found = json.loads((PAGE.parent / "results" / "exports.json").read_text(encoding="utf-8"))
    assert set(found["defences"]) == set(names())
    for one in found["defences"].values():
        assert one["same_labels"] == found["images"] == IMAGES
        assert one["largest_difference"] < 1e-4
