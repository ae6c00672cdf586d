"""Training in L2: every stage attacks inside the Euclidean ball, and uses more of it than Linf."""

import copy

import pytest
import torch
from torch import Tensor, nn

import carso
from carso.attacks import pgd
from carso.attacks.attack import verified
from carso.data import ImageData
from carso.errors import CarsoError
from carso.threats.l2 import L2
from carso.threats.threat import Threat


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Threat, Tensor]]:
    """The threats of the attacks of hardening, and how far each of them went."""
    found: list[tuple[Threat, Tensor]] = []

    def watched(adversarial: Tensor, images: Tensor, threat: Threat) -> Tensor:
        found.append((threat, threat.distance(adversarial, images)))
        return verified(adversarial, images, threat)

    monkeypatch.setattr(pgd, "verified", watched)
    return found


UNET = {"widths": (4, 6), "blocks": (1, 1)}
SMALL = {"condition": 8, "latent": 4, "decoder_width": 8}


@pytest.mark.parametrize("loss", ["cross-entropy", "trades"])
def test_hardening_attacks_in_the_ball_of_its_threat(
    loss: str, bars: ImageData, learnt: nn.Module, seen: list[tuple[Threat, Tensor]]
) -> None:
    carso.harden(
        copy.deepcopy(learnt), bars, layers=["conv"], threat=L2(eps=1.5), epochs=1, batch_size=32,
        loss=loss, eps_epochs=0.0, samples=1, validation_images=8, **UNET,
    )  # fmt: skip
    assert {threat for threat, _ in seen} == {L2(eps=1.5)}
    moved = torch.cat([distance for _, distance in seen])
    assert 1.2 < moved.max() <= 1.5 * (1 + 1e-5)


def test_fit_takes_a_norm_too(bars: ImageData, learnt: nn.Module) -> None:
    classifier = copy.deepcopy(learnt)
    defence = carso.fit(
        classifier, bars, layers=["conv"], norm="L2", eps=1.0, epochs=1, steps=1, samples=1, **SMALL
    )
    assert defence(bars.test.batch(slice(0, 2))[0]).isfinite().all()
    with pytest.raises(CarsoError, match="norm must be one of"):
        carso.fit(classifier, bars, layers=["conv"], norm="L3", eps=1.0)
