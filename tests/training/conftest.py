"""A classifier, a purifier and images that are small enough to be hardened in a test, and threads
that stand for the processes of a run."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.attacks.margin import Margin
from carso.classifiers.frozen import freeze
from carso.data import ImageData, Split
from carso.defence.around import purifier_around
from carso.defence.representation import Representation
from carso.distributed.processes import Processes
from carso.purifiers.vae.vae import VAEPurifier
from carso.randomness import seeded
from carso.scenario.hardening_settings import HardeningSettings
from carso.threats.linf import Linf
from carso.training import validation_attack
from carso.training.hardening import HardeningStage

SHAPE = (1, 8, 8)
CLASSES = 4
TRAINING_IMAGES = 49  # three batches of 16, and one image that is left out


def some(count: int, seed: int) -> Split:
    """Images of four bars, each class with one of them brighter, under noise."""
    source = Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    images = 0.3 + 0.08 * torch.randn(count, *SHAPE, generator=source)
    for number, label in enumerate(labels.tolist()):
        images[number, :, :, 2 * label : 2 * label + 2] += 0.3
    return Split(images=(255 * images.clamp(0, 1)).to(torch.uint8), labels=labels)


@pytest.fixture(scope="session")
def bars() -> ImageData:
    return ImageData(
        name="bars",
        classes=tuple("abcd"),
        train=some(TRAINING_IMAGES, 0),
        validation=some(24, 1),
        test=some(12, 2),
        mean=(0.36,),
        std=(0.19,),
        origin="a test",
        fingerprint="bars",
    )


@pytest.fixture(scope="session")
def learnt(bars: ImageData) -> nn.Module:
    """A classifier with batch norm that knows the bars; tests take a copy of it."""
    with seeded(0, "test"):
        network = nn.Sequential(
            OrderedDict(
                conv=nn.Conv2d(1, 6, 3, padding=1),
                norm=nn.BatchNorm2d(6),
                smooth=nn.SiLU(),
                pool=nn.AvgPool2d(2),
                flat=nn.Flatten(),
                out=nn.Linear(96, CLASSES),
            )
        )
        images, labels = bars.train.batch(slice(None))
        optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
        for _ in range(25):
            optimiser.zero_grad()
            F.cross_entropy(network(images), labels).backward()
            optimiser.step()
    return network.eval()


@pytest.fixture
def network(learnt: nn.Module) -> nn.Module:
    return copy.deepcopy(learnt)


@pytest.fixture(scope="session")
def prepared(learnt: nn.Module, bars: ImageData) -> VAEPurifier:
    """A purifier whose candidates resemble the images; tests take a copy of it."""
    layers = ["norm", "out"]
    with seeded(0, "purifier"):
        purifier = purifier_around(
            copy.deepcopy(learnt), SHAPE, layers=layers, condition=8, latent=8, decoder_width=16
        )
        images, _ = bars.train.batch(slice(None))
        activations = Representation(copy.deepcopy(learnt), layers)(images, gradients=False)
        optimiser = torch.optim.Adam(purifier.parameters(), lr=0.02)
        for _ in range(40):
            optimiser.zero_grad()
            latent = torch.randn(len(images), 8)
            pixels = purifier.decoder.logits(latent, purifier.conditioning(activations))
            F.binary_cross_entropy_with_logits(pixels, images).backward()
            optimiser.step()
    return purifier


@pytest.fixture
def new_stage(
    learnt: nn.Module, prepared: VAEPurifier, bars: ImageData
) -> Callable[..., HardeningStage]:
    """Makes a stage at its very start; what differs from the settings here is named."""

    def make(
        *, threat: float = 0.1, final: nn.Module | None = None, **changes: Any
    ) -> HardeningStage:
        settings: dict[str, Any] = {
            "epochs": 4,
            "batch_size": 16,
            "rate": 0.01,
            "attack_steps": 2,
            "attack_step_size": 0.06,
            "validation_images": 16,
            "samples": 2,
            "average": 0.5,
        }
        return HardeningStage(
            freeze(copy.deepcopy(learnt)),
            copy.deepcopy(prepared),
            bars,
            hardening=HardeningSettings(**{**settings, **changes}),
            threat=Linf(eps=threat),
            seed=3,
            device=torch.device("cpu"),
            identity={"stage": "hardening"},
            final_classifier=None if final is None else freeze(final),
        )

    return make


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Does some work in as many threads as a run has processes, which wait for each other as
    processes do; gives what each of them found."""

    def together(count: int, work: Callable[[Processes], Any]) -> list[Any]:
        barrier = Barrier(count, timeout=20)
        said: list[Any] = []

        def wait(processes: Processes) -> None:
            if processes.world_size > 1:
                barrier.wait()

        def broadcast(processes: Processes, value: Any) -> Any:
            if processes.is_first:
                said.append(value)
            wait(processes)
            value = said[-1]
            wait(processes)  # nobody tells anew before all have heard
            return value

        def process(processes: Processes) -> Any:
            try:
                return work(processes)
            except BaseException:
                barrier.abort()
                raise

        with monkeypatch.context() as patch, ThreadPoolExecutor(count) as threads:
            patch.setattr(Processes, "barrier", wait)
            patch.setattr(Processes, "broadcast", broadcast)
            begun = [threads.submit(process, Processes(index, count)) for index in range(count)]
            errors = [error for thread in begun if (error := thread.exception())]
        for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
            raise error  # that of the others is only that they wait in vain
        return [thread.result() for thread in begun]

    return together


@pytest.fixture
def short_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of the attack that judges an epoch instead of twenty."""
    monkeypatch.setattr(validation_attack, "VALIDATION_ATTACK", Margin(steps=2))


@pytest.fixture
def batch(bars: ImageData) -> tuple[Tensor, Tensor]:
    return bars.train.batch(slice(0, 16))
