"""Draws count by what they share: near mistakes whose gradients agree."""

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.attacks.attack import Attack
from carso.attacks.margin import Margin
from carso.attacks.shared_weakness import SharedWeakness, shared_weights
from carso.errors import CarsoError
from carso.threats.norms import threat_of


def test_equal_draws_count_alike() -> None:
    leads, gradients = torch.ones(4, 3), torch.ones(4, 3, 1, 2, 2)
    assert torch.allclose(shared_weights(leads, gradients), torch.full((4, 3), 0.25))


def test_weights_add_up_to_one_and_no_gradient_at_all_is_an_even_mean() -> None:
    source = Generator().manual_seed(0)
    leads = torch.randn(5, 7, generator=source)
    gradients = torch.randn(5, 7, 1, 3, 3, generator=source)
    found = shared_weights(leads, gradients)
    assert torch.allclose(found.sum(dim=0), torch.ones(7))
    assert (found >= 0).all()
    nothing = shared_weights(leads, torch.zeros_like(gradients))
    assert torch.allclose(nothing, torch.full((5, 7), 0.2))


def test_a_draw_alone_against_the_others_counts_least() -> None:
    gradients = torch.ones(4, 1, 1, 2, 2)
    gradients[3] *= -1
    found = shared_weights(torch.zeros(4, 1), gradients).flatten()
    assert found[3] < found[:3].min() / 2


def test_a_draw_that_is_nearer_to_a_mistake_counts_more() -> None:
    leads = torch.tensor([[0.1], [1.0], [2.0]])
    found = shared_weights(leads, torch.ones(3, 1, 1, 2, 2)).flatten()
    assert found[0] > found[1] > found[2]


class Torn(nn.Module):
    """Three draws of five share a weakness; the others pull harder, each its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1) - 0.5
        kind = self.calls % 5
        self.calls += 1
        if kind < 3:
            lead = 0.5 - 8 * x[:, 0]
        else:
            lead = 3 + (30 * x[:, 0] if kind == 3 else 30 * x[:, 0] + 30 * x[:, 1])
        return torch.stack([lead, torch.zeros_like(lead)], dim=1)


def test_it_breaks_what_the_mean_of_all_draws_does_not() -> None:
    """Pixel 0 up breaks three of five draws; the mean is for pixel 0 down, which breaks one."""
    images, labels = torch.full((1, 1, 2, 2), 0.5), torch.tensor([0])
    threat = threat_of(norm="Linf", eps=0.1)

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.torn = Torn()

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.torn(x) for _ in range(5)]).mean(dim=0)

    def wrong(attack: Attack, model: nn.Module) -> int:
        found = attack(model, images, labels, threat=threat, generator=Generator().manual_seed(0))
        judge = Torn()
        return sum(int(judge(found).argmax()) for _ in range(5))

    assert wrong(Margin(steps=20), Mean()) < 3
    assert wrong(SharedWeakness(steps=20, draws=5), Torn()) == 3


def test_it_declares_its_draws_and_refuses_nonsense() -> None:
    assert SharedWeakness(draws=6).facts.eot == 6
    assert SharedWeakness().facts.starts
    with pytest.raises(CarsoError, match="two draws"):
        SharedWeakness(draws=1)
