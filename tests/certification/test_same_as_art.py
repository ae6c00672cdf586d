"""ART's randomised smoothing comes to the same predictions and radii from the same draws."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from carso.certification.certificate import Smoothing, certify_image
from carso.certification.certified_images import Certified
from carso.randomness import seeded

WHY = "for the comparison; `pip install adversarial-robustness-toolbox statsmodels`"
SHAPE, CLASSES, COUNT = (1, 5, 5), 3, 12


class Unsure(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with seeded(0, "unsure"):
            hidden, out = nn.Linear(25, 8, bias=False), nn.Linear(8, CLASSES, bias=False)
        self.layers = nn.Sequential(nn.Flatten(), hidden, nn.Tanh(), out)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images - 0.5)  # type: ignore[no-any-return]


def test_votes_and_radii_are_those_of_art(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("statsmodels", reason=WHY)
    art = pytest.importorskip("art.estimators.certification.randomized_smoothing", reason=WHY)
    model, smoothing = Unsure().eval(), Smoothing(sigma=0.4, draws=600, selection=50, batch=600)
    with seeded(1, "images"):
        images = torch.rand(COUNT, *SHAPE)
    asked = Certified(
        model=model, images=images, labels=torch.zeros(COUNT), smoothing=smoothing, seed=0,
        classes=CLASSES,
    )  # fmt: skip
    streams = ((index, what) for index in range(COUNT) for what in ("select", "estimate"))

    def ours(_: Any, image: np.ndarray, n: int) -> np.ndarray:
        votes = asked.votes(*next(streams))
        np.testing.assert_array_equal(image, votes.image.numpy())
        return votes.noisy(n).numpy()

    theirs = art.PyTorchRandomizedSmoothing(
        model=model, loss=nn.CrossEntropyLoss(), input_shape=SHAPE, nb_classes=CLASSES,
        sample_size=smoothing.selection, scale=smoothing.sigma, alpha=smoothing.alpha,
    )  # fmt: skip
    monkeypatch.setattr(type(theirs), "_noisy_samples", ours)
    predictions, radii = theirs.certify(images.numpy(), n=smoothing.draws, batch_size=200)
    found = [
        certify_image(asked.votes(i, "select"), asked.votes(i, "estimate"), smoothing, label=None)
        for i in range(COUNT)
    ]
    assert [one.prediction for one in found] == predictions.tolist()
    assert {-1} < set(predictions.tolist())  # some abstain, some do not
    # Ours are smaller by what floating point may have changed.
    assert all(one.radius <= radius for one, radius in zip(found, radii, strict=True))
    assert [one.radius for one in found] == pytest.approx(radii.tolist(), abs=1e-5)
