"""A classifier and a defence of a few hundred parameters, and suites of a few steps."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

import carso
from carso.defence.defence import Carso
from carso.evaluation import suites
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import Effort, Suite, apgd, black_box, margin
from carso.randomness import normal

SHAPE = (1, 8, 8)
CLASSES = 5


class Gaussian:
    """A purifier that adds noise to the image itself, which the classifier's first layer shows."""

    layers = ("see",)
    image_shape = None

    def __init__(self, size: float = 0.05) -> None:
        self.size = size

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        (images,) = activations
        noise = normal((len(images), samples, *SHAPE), images, generator).transpose(0, 1)
        return (images + self.size * noise).clamp(0, 1)


def small_classifier(classes: int = CLASSES, scale: float = 4.0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = OrderedDict(
            see=nn.Identity(),
            flat=nn.Flatten(),
            hidden=nn.Linear(64, 32),
            smooth=nn.SiLU(),
            out=nn.Linear(32, classes),
        )
        network = nn.Sequential(layers)
    with torch.no_grad():
        network.hidden.weight *= 4
        network.out.weight *= scale
    return network.eval()


def tiny(seed: int, samples: int) -> Suite:
    """Three kinds of attack in a tenth of a second."""
    through = AttackedView(samples=samples)
    return Suite(
        name="tiny",
        attacks=(margin(5, 1, through), apgd("ce", 5, through), black_box(20)),
        effort=Effort(images=12, steps=10, queries=40, eps=(0.0, 1.0, 4.0)),
    )


def tiny_independent(seed: int, samples: int) -> Suite:
    found = tiny(seed, samples)
    return Suite(
        name="tiny-independent", attacks=found.attacks, effort=found.effort, independent=True
    )


@pytest.fixture(autouse=True)
def tiny_suites(monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate(..., suite="tiny")` in every test here."""
    monkeypatch.setitem(suites.SUITES, "tiny", tiny)
    monkeypatch.setitem(suites.SUITES, "tiny-independent", tiny_independent)


@pytest.fixture(scope="session")
def images() -> Tensor:
    return torch.rand(12, *SHAPE, generator=Generator().manual_seed(0))


@pytest.fixture
def make_classifier() -> Callable[..., nn.Sequential]:
    return small_classifier


@pytest.fixture
def classifier() -> nn.Sequential:
    return small_classifier()


@pytest.fixture(scope="session")
def labels(images: Tensor) -> Tensor:
    """What the classifier says, except that it gets the fourth image wrong."""
    with torch.no_grad():
        found = small_classifier()(images).argmax(dim=1)
    found[3] = (found[3] + 1) % CLASSES
    return found


@pytest.fixture
def purifier() -> type[Gaussian]:
    return Gaussian


@pytest.fixture
def defence(classifier: nn.Sequential) -> Carso:
    return Carso(classifier, Gaussian(), samples=4)


@pytest.fixture(scope="session")
def tiny_record(images: Tensor, labels: Tensor) -> dict[str, Any]:
    """The record of the small defence under the tiny suite; tests must not change it."""
    defence = Carso(small_classifier(), Gaussian(), samples=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(suites.SUITES, "tiny", tiny)
        return carso.evaluate(defence, images, labels, eps=0.02, suite="tiny", name="small")


class Spoiled(torch.autograd.Function):
    """The identity with another gradient: negated, random, NaN or zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        ctx.how = how
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        kinds = {
            "negated": lambda: -gradient,
            "random": lambda: torch.randn_like(gradient),
            "nan": lambda: gradient * math.nan,
            "zero": lambda: gradient * 0,
        }
        return kinds[ctx.how](), None


class Spoiling(nn.Module):
    """`network` with a gradient that is spoiled in a certain way."""

    def __init__(self, network: nn.Module, how: str) -> None:
        super().__init__()
        self.network, self.how = network, how

    def forward(self, x: Tensor) -> Tensor:
        return self.network(Spoiled.apply(x, self.how))  # type: ignore[no-any-return, no-untyped-call]


@pytest.fixture
def spoiling() -> type[Spoiling]:
    return Spoiling


def timeless(value: Any) -> Any:
    """A record without what a clock or the machine decides."""
    if isinstance(value, dict):
        left = {k: v for k, v in value.items() if k not in ("provenance", "seconds")}
        return {key: timeless(item) for key, item in left.items()}
    return [timeless(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.fixture(name="timeless")
def timeless_function() -> Callable[[Any], Any]:
    return timeless
