"""One defence, or one classifier in many defences, serves many threads at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.defence.defence import Carso
from carso.defence.representation import Representation

THREADS, ROUNDS = 8, 12


class Slow(nn.Module):
    """Meets the other threads in the middle of a pass, so that all are inside at once."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier: Barrier | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.barrier is not None:
            self.barrier.wait(timeout=30)
        return x


class Mirror:
    """A purifier that draws no noise, so that calls in any order give the same."""

    layers = ("first", "second")
    image_shape = None

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        first, second = activations
        return torch.sigmoid(first + second.mean(dim=(1, 2, 3), keepdim=True))[None]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.slow = nn.Conv2d(1, 1, 3, padding=1), Slow()
        self.second, self.out = nn.Conv2d(1, 2, 3), nn.Linear(72, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.slow(self.first(x))
        return self.out(self.second(x).flatten(1))  # type: ignore[no-any-return]


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network()


def batches() -> list[Tensor]:
    source = Generator().manual_seed(1)
    return [torch.rand(2, 1, 8, 8, generator=source) for _ in range(THREADS)]


def test_eight_threads_read_their_own_activations(network: Network) -> None:
    representation = Representation(network, ["first", "second"])
    expected = [representation(batch, gradients=False) for batch in batches()]
    network.slow.barrier = Barrier(THREADS)

    def read(batch: Tensor) -> list[list[Tensor]]:
        return [representation(batch, gradients=False) for _ in range(ROUNDS)]

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(read, batches()))
    for rounds, wanted in zip(found, expected, strict=True):
        for activations in rounds:
            for one, other in zip(activations, wanted, strict=True):
                assert torch.equal(one, other)
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("max_batch", [None, 1])
def test_one_defence_serves_eight_threads_with_the_results_of_one(
    network: Network, max_batch: int | None
) -> None:
    defence = Carso(network, Mirror(), samples=1, max_batch=max_batch)

    def answer(batch: Tensor) -> tuple[Tensor, Tensor]:
        point = batch.clone().requires_grad_(True)
        scores = defence.view("mean-logits")(point)
        (gradient,) = torch.autograd.grad(scores.logsumexp(dim=1).sum(), point)
        return defence.predict_proba(batch), gradient

    expected = [answer(batch) for batch in batches()]
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(ROUNDS):
            for found, wanted in zip(pool.map(answer, batches()), expected, strict=True):
                assert torch.equal(found[0], wanted[0])
                assert torch.equal(found[1], wanted[1])


class Noisy(Mirror):
    """Writes down what it draws."""

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        noise = torch.randn(len(activations[0]), 16, generator=generator)
        self.drawn += noise[:, 0].tolist()
        return super().sample(activations, samples, generator) * noise[:, :1, None, None].sigmoid()


@pytest.mark.parametrize("max_batch", [None, 1])
def test_threads_draw_between_them_what_one_would(network: Network, max_batch: int | None) -> None:
    purifier = Noisy()
    defence = Carso(network, purifier, samples=1, max_batch=max_batch)
    image = torch.rand(2, 1, 8, 8)

    def answer(_: int) -> None:
        defence.view("mean-logits")(image.clone().requires_grad_(True))

    for number in range(THREADS * ROUNDS):
        answer(number)
    in_turn, purifier.drawn = purifier.drawn, []
    assert len(set(in_turn)) == len(in_turn)
    defence.seed(0)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(answer, range(THREADS * ROUNDS)))
    assert sorted(purifier.drawn) == sorted(in_turn)
