"""A file of a run that is not as it was written is written again, and a line says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import write_photos
from torch import nn

import carso
from carso import data
from carso.data import ImageData, decoded_cache
from carso.data.pictures import common_format
from carso.training import loop


def damaged(path: Path) -> bytes:
    """What `path` held before eight of its bytes were changed."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + bytes(255 - byte for byte in whole[-8:]))
    return whole


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))


@pytest.fixture(scope="module")
def images() -> ImageData:
    pixels = torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8)
    return data.from_tensors(pixels, torch.arange(40) % 2)


def trained(images: ImageData, folder: Path) -> None:
    around: dict[str, Any] = {"layers": ["0"], "eps": 0.1, "batch_size": 16, "steps": 1}
    small: dict[str, Any] = {"condition": 8, "latent": 4, "decoder_width": 8}
    carso.fit(
        network(), images, epochs=2, check_accuracy=False, out=folder, quiet=True, **around, **small
    )


@pytest.mark.parametrize(
    "name", ["classifier.safetensors", "purifier.safetensors", "purifier/losses.csv"]
)
def test_a_damaged_file_of_a_finished_run_is_repaired_with_a_word(
    name: str, images: ImageData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(images, tmp_path)
    capsys.readouterr()
    trained(images, tmp_path)
    assert capsys.readouterr().err == ""
    whole = damaged(tmp_path / name)
    trained(images, tmp_path)
    said = capsys.readouterr().err
    assert said.startswith(f"carso: {tmp_path / name} is ")
    assert "written again" in said
    assert said.count("\n") == 1
    assert (tmp_path / name).read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text, False),
        (lambda text: "".join(text.splitlines(keepends=True)[:-1]), False),
        (lambda text: "".join(text.splitlines(keepends=True)[:-2]), True),
        (lambda text: text.replace("0.5", "0.6", 1), True),
        (lambda text: text[:-3], True),
    ],
    ids=["whole", "the last row", "two rows", "a digit", "cut"],
)
def test_losses_that_a_kill_did_not_cost_are_not_written_again_in_silence(
    change: Callable[[str], str], says: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed process leaves out the row of one epoch at most."""
    history: list[loop.Row] = [{"epoch": number, "loss": 0.5} for number in range(1, 4)]
    path, text = tmp_path / "losses.csv", loop.as_csv(history)
    path.write_text(change(text))
    loop.complete_csv(path, history)
    assert path.read_text() == text
    assert bool(capsys.readouterr().err) == says


def test_damaged_images_of_the_cache_are_decoded_again_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(decoded_cache, "SHOW_PROGRESS_FROM", 1)
    photos = write_photos(tmp_path / "photos")
    paths = sorted(photos.rglob("*.png"))

    def decoded() -> torch.Tensor:
        return decoded_cache.decode_once(paths, common_format(paths), folder=photos, name="photos")

    before = decoded()
    kept = next((tmp_path / "cache").rglob("*.safetensors"))
    capsys.readouterr()
    whole = damaged(kept)
    assert torch.equal(decoded(), before)
    assert f"carso: {kept} is damaged" in capsys.readouterr().err
    assert kept.read_bytes() == whole
    assert torch.equal(decoded(), before)
    assert capsys.readouterr().err == ""
