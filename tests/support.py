"""What tests of the command line share: a command in this process, a folder of images, and a
scenario as small as it gets."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from carso import data
from carso.cli.main import main
from carso.evaluation.statistics import share


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in this process."""
    arguments, sys.argv = sys.argv, ["carso", *map(str, words)]
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = arguments
    out, err = capsys.readouterr()
    return code, out, err


def fails(capsys: pytest.CaptureFixture[str], *words: str | Path, says: list[str]) -> None:
    """The command exits with 2 and one line that contains each of `says`."""
    code, _, err = run(capsys, *words)
    assert code == 2, err
    assert len(err.strip().splitlines()) == 1, err
    assert err.startswith("carso: ")
    for word in says:
        assert word in err, err


def write_photos(folder: Path, count: int = 12) -> Path:
    """A folder of two classes of clothes, with `count` images each."""
    images = data.load("fashion-embedded").train.balanced(10 * count)
    for number, (image, label) in enumerate(zip(images.images, images.labels, strict=True)):
        if int(label) < 2:
            place = folder / f"class{int(label)}"
            place.mkdir(exist_ok=True, parents=True)
            Image.fromarray(image[0].numpy()).save(place / f"{number:03d}.png")
    return folder


OWN = """
[classifier]
depth = 10
width = 1
strides = [2, 2, 2]
[classifier.training]
epochs = 1
batch_size = 16
attack_steps = 1
attack_step_size = 0.1
"""
"""A classifier that is trained."""


def mini(data: str | Path, *, name: str = "mini", classifier: str = OWN, epochs: int = 1) -> str:
    """A scenario with the paper's stage of so many epochs."""
    return f"""
name = "{name}"
summary = "as small as it gets"
[data]
set = "{data}"
[threat]
eps = 0.1
{classifier.strip()}
[purifier]
condition = 16
latent = 8
decoder_width = 16
[purifier.attacks]
fraction = 0.5
steps = 1
step_size = 0.1
[purifier.training]
epochs = {epochs}
batch_size = 16
plateau_rate = 1e-3
final_rate = 1e-3
warmup_epochs = 0
plateau_epochs = 0
beta_start = 0
beta_end = 0
"""


HARDENING = """
[hardening]
start = "scratch"
epochs = 1
batch_size = 16
attack_steps = 1
attack_step_size = 0.1
validation_images = 8
"""


def consistent(record: dict[str, Any]) -> dict[str, Any]:
    """`record` with the accuracies that its images give, and a verdict that says them."""
    clean, worst = (
        asdict(share(torch.tensor(record["images"][key]))) for key in ("clean_right", "worst_right")
    )
    verdict = f"{worst['value']:.3f} of {record['data']['count']} images"
    accuracy = {"clean": clean, "worst": worst, "worst_on_all_draws": worst}
    return {**record, "accuracy": accuracy, "verdict": verdict}
