"""Every attack in L2, on linear classifiers, where the nearest mistake is known exactly."""

from typing import Any

import pyautoattack
import pytest
import torch
from torch import Generator, Tensor, nn

from carso.attacks.apgd import APGD
from carso.attacks.attack import Attack
from carso.attacks.autoattack import AutoAttack
from carso.attacks.fab import FAB
from carso.attacks.margin import Margin, Noise
from carso.attacks.pgd import FGSM, PGD
from carso.attacks.square import Square
from carso.threats.l2 import L2
from carso.threats.linf import Linf
from carso.training.losses import disagreement_attack

COMPLETE: dict[str, Attack] = {
    "pgd": PGD(steps=20, step_size=0.02),
    "margin": Margin(steps=20),
    "apgd-ce": APGD(loss="ce", steps=20),
    "apgd-t": APGD(loss="dlr-targeted", steps=20),
    "fab": FAB(steps=20),
}
OTHERS: dict[str, Attack] = {"fgsm": FGSM(), "noise": Noise(), "square": Square(queries=200)}


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.randn(64, 5, generator=generator(1))

    def forward(self, images: Tensor) -> Tensor:
        return (images - 0.5).flatten(1) @ self.weight


def grey() -> Tensor:
    """Far enough from black and white that no step of these tests is clipped."""
    return 0.5 + 0.1 * torch.randn(12, 1, 8, 8, generator=generator(2)).clamp(-2, 2)


def nearest(model: Linear, x: Tensor, y: Tensor) -> Tensor:
    """The Euclidean distance of each image to the nearest mistake, (B,)."""
    logits = model(x)
    lead = logits.gather(1, y.unsqueeze(1)) - logits
    width = (model.weight.T[y].unsqueeze(1) - model.weight.T).norm(dim=2)
    return (lead / width).masked_fill(width == 0, torch.inf).amin(dim=1)


@pytest.mark.parametrize("name", COMPLETE)
def test_it_breaks_what_can_be_broken_and_nothing_else(name: str) -> None:
    model, x = Linear(), grey()
    y = model(x).argmax(dim=1)
    distances = nearest(model, x, y)
    eps = float(distances.median()) * 1.05
    sure = (distances / eps - 1).abs() > 0.04
    found = COMPLETE[name](model, x, y, threat=L2(eps=eps), generator=generator())
    broken = model(found).argmax(dim=1) != y
    assert not bool((broken & (distances > eps)).any())
    if name in ("margin", "apgd-t", "fab"):  # others raise a loss that is not the lead itself
        assert torch.equal(broken[sure], (distances < eps)[sure])
    assert 0 < broken.sum() < len(x)


@pytest.mark.parametrize("name", [*COMPLETE, *OTHERS])
def test_it_stays_in_the_ball_and_uses_it(name: str) -> None:
    model, x = Linear(), grey()
    y = model(x).argmax(dim=1)
    attack, threat = {**COMPLETE, **OTHERS}[name], L2(eps=0.1)
    first, again = (attack(model, x, y, threat=threat, generator=generator(3)) for _ in range(2))
    assert torch.equal(first, again)
    moved = threat.distance(first, x)
    assert threat.contains(first, x).all()
    assert moved.max() > 0.0999
    assert (first - x).abs().max() < 0.1  # it is no single pixel


def test_one_step_of_fgsm_is_the_whole_radius_along_the_gradient() -> None:
    model, x = Linear(), grey()
    y = model(x).argmax(dim=1)
    found = FGSM()(model, x, y, threat=L2(eps=0.1), generator=generator())
    z = x.clone().requires_grad_(True)
    loss = torch.nn.functional.cross_entropy(model(z), y, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, z)
    wanted = x + 0.1 * gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    torch.testing.assert_close(found, wanted)


def test_the_attack_of_trades_takes_steps_of_the_norm() -> None:
    model, x = Linear(), grey()
    found = disagreement_attack(
        model, x, threat=L2(eps=0.1), steps=5, step_size=0.05, generator=generator()
    )
    assert L2(eps=0.1).contains(found, x).all()
    assert L2(eps=0.1).distance(found, x).min() > 0.09
    assert (found - x).abs().max() < 0.1
    assert not Linf(eps=0.01).contains(found, x).any()


def test_autoattack_is_the_librarys_in_that_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    published = pyautoattack.AutoAttack._set_version

    def shorter(ensemble: Any, version: str) -> None:
        published(ensemble, version)
        ensemble.apgd.n_iter, ensemble.apgd.eot_iter = 10, 1

    monkeypatch.setattr(pyautoattack.AutoAttack, "_set_version", shorter)
    model, x = Linear(), grey()[:4]
    y = model(x).argmax(dim=1)
    eps = float(nearest(model, x, y).median()) * 1.01
    with torch.random.fork_rng():
        direct = pyautoattack.AutoAttack(model, norm="L2", eps=eps, version="rand", seed=2)
        examples, _ = direct.run_standard_evaluation(x, y, batch_size=4)
    attack = AutoAttack(version="rand", seed=2)
    found = attack(model, x, y, threat=L2(eps=eps), generator=generator())
    assert torch.equal(found, examples)
    assert not torch.equal(found, x)
