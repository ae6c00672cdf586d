"""The last pass starts from the worst example that is known, and never ends above it."""

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.attacks.apgd import APGD
from carso.attacks.attack import room_for
from carso.attacks.margin import Margin, margins
from carso.attacks.refine import Refine
from carso.errors import CarsoError
from carso.threats.norms import threat_of


@pytest.fixture
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 5))
    return layers.eval()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(8, 1, 4, 4, generator=Generator().manual_seed(0))


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.3)])
def test_it_goes_on_from_where_it_starts(
    norm: str, eps: float, network: nn.Module, images: Tensor
) -> None:
    labels = network(images).argmax(dim=1)
    threat = threat_of(norm=norm, eps=eps)
    start = Margin(steps=3)(network, images, labels, threat=threat, generator=Generator())
    found = Refine(steps=10, targets=2)(
        network, images, labels, threat=threat, generator=Generator(), start=start
    )
    before, after = (margins(network(x), labels) for x in (start, found))
    assert (after <= before).all()
    assert (after < before).any()
    assert threat.contains(found, images).all()


def test_a_start_that_is_the_worst_there_is_comes_back(network: nn.Module, images: Tensor) -> None:
    """With steps that do nothing, what was given is returned, bit for bit."""
    labels = network(images).argmax(dim=1)
    threat = threat_of(norm="Linf", eps=0.1)
    start = Margin(steps=20)(network, images, labels, threat=threat, generator=Generator())
    still = Refine(steps=1, targets=0, restarts=0, step_share=1e-9)
    found = still(network, images, labels, threat=threat, generator=Generator(), start=start)
    assert torch.allclose(found, start, atol=1e-6)


def test_it_aims_at_each_of_the_likeliest_classes(images: Tensor) -> None:
    """The runner-up cannot be reached, the third can: only a target finds it."""

    class Trap(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mean = x.flatten(1).mean(dim=1)
            third = 10 * (mean - mean.detach()) - 0.5 + 40 * (x.flatten(1)[:, 0] - 0.5)
            return torch.stack([torch.zeros_like(mean), -0.1 - 0 * mean, third], dim=1)

    x = torch.full((1, 1, 4, 4), 0.5)
    labels, threat = torch.tensor([0]), threat_of(norm="Linf", eps=0.1)
    settings = {"threat": threat, "generator": Generator(), "start": x}
    plain = Refine(steps=5, targets=0, restarts=0)(Trap(), x, labels, **settings)
    aimed = Refine(steps=5, targets=2, restarts=0)(Trap(), x, labels, **settings)
    assert margins(Trap()(plain), labels).item() > 0
    assert margins(Trap()(aimed), labels).item() < 0


def test_it_declares_that_it_takes_a_start_and_refuses_nonsense() -> None:
    assert Refine().facts.starts
    with pytest.raises(CarsoError, match="needs a step"):
        Refine(steps=0)


@pytest.mark.parametrize("room", [0, 16, 1000])
def test_starts_and_targets_go_together_where_there_is_room(
    room: int, network: nn.Module, images: Tensor
) -> None:
    """As many gradients, in fewer and larger passes, none larger than the room; the result lies
    inside the ball and is no better for the model than the start."""
    sizes: list[int] = []

    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.requires_grad:
                sizes.append(len(x))
            return network(x)  # type: ignore[no-any-return]

    labels = network(images).argmax(dim=1)
    threat = threat_of(norm="Linf", eps=1e-3)
    for attack, passes in (
        (Refine(steps=3, targets=2, restarts=4), 8 * 3 * 3 * 5),
        (APGD(loss="dlr-targeted", steps=5, targets=3), 8 * 3 * 6),
    ):
        sizes.clear()
        with room_for(room):
            found = attack(Counting(), images, labels, threat=threat, generator=Generator())
        assert sum(sizes) == passes
        assert max(sizes) <= max(8, room)
        assert (max(sizes) > 8) == (room > 8)
        assert threat.contains(found, images).all()
        assert (margins(network(found), labels) <= margins(network(images), labels)).all()
