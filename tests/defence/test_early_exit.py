"""A pass through the classifier ends at the last layer that is read, where nothing more is needed,
and nobody can tell but by the time."""

from collections.abc import Sequence

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.defence.defence import Carso
from carso.defence.representation import Representation


class Counted(nn.Module):
    """A layer that counts how often it ran."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.calls = layer, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x)  # type: ignore[no-any-return]


class Twice(nn.Module):
    """Runs one layer two times: what counts is its last output."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.last = nn.Conv2d(1, 1, 3, padding=1), Counted(nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.again(self.again(x)))  # type: ignore[no-any-return]


class Copy:
    """A purifier that gives back what the first layer shows."""

    layers = ("0",)
    image_shape = None

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        return activations[0].sigmoid().expand(samples, *activations[0].shape)


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    late = Counted(nn.Linear(64, 3))
    return nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.SiLU(), nn.Flatten(), late)


def test_what_is_not_needed_does_not_run(network: nn.Sequential) -> None:
    representation = Representation(network, ["1", "0"])
    images = torch.rand(2, 1, 8, 8)
    first = representation(images)  # finds out how the layers run
    calls = network[3].calls
    second = representation(images)
    assert network[3].calls == calls
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    assert representation.with_logits(images)[1].shape == (2, 3)
    assert network[3].calls == calls + 1


def test_gradients_are_the_same(network: nn.Sequential) -> None:
    representation = Representation(network, ["1"])
    images = torch.rand(2, 1, 8, 8, requires_grad=True)
    gradients = [
        torch.autograd.grad(representation(images)[0].square().sum(), images)[0] for _ in range(2)
    ]
    assert torch.equal(*gradients)


def test_a_layer_that_runs_twice_is_seen_the_second_time() -> None:
    network = Twice()
    representation = Representation(network, ["again"])
    images = torch.rand(2, 1, 8, 8)
    expected = network.again(network.again(images))
    for _ in range(3):
        assert torch.equal(representation(images)[0], expected)
    assert network.last.calls == 3  # so its passes never end early


@pytest.mark.parametrize("max_batch", [None, 1])
@pytest.mark.parametrize(("aggregation", "own"), [("mean-logits", 0), ("anchored", 1)])
def test_the_defence_needs_the_rest_only_where_it_is_anchored(
    network: nn.Sequential, aggregation: str, own: int, max_batch: int | None
) -> None:
    defence = Carso(network, Copy(), samples=1, aggregation=aggregation, max_batch=max_batch)
    images = torch.rand(2, 1, 8, 8)
    defence.predict(images)  # the first pass finds out
    network[3].calls = 0
    defence.predict(images)
    parts = 1 if max_batch is None else 2
    assert network[3].calls == parts * (1 + own)


def test_a_mistake_inside_the_classifier_still_comes_out(network: nn.Sequential) -> None:
    representation = Representation(network, ["1"])
    representation(torch.rand(2, 1, 8, 8))
    with pytest.raises(RuntimeError, match="channels"):
        representation(torch.rand(2, 2, 8, 8))
    assert not any(module._forward_hooks for module in network.modules())
