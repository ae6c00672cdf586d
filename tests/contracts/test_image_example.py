"""The example of a data set of one's own runs, from the file that the page shows."""

import runpy
from pathlib import Path

import pytest
import torch

from carso import data

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_images.py"


def test_images_of_ones_own_are_learnt_and_attacked(capsys: pytest.CaptureFixture[str]) -> None:
    scope = runpy.run_path(str(EXAMPLE))
    scope["main"]()
    assert "of 40 images right" in capsys.readouterr().out
    mine = data.from_tensors(*scope["stripes"](400))
    x, y = mine.test.batch(slice(None))
    assert torch.equal(scope["trained"](mine)(x).argmax(dim=1), y)
