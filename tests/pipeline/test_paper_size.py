"""The paper's scenarios at full size: each builds, takes a step, predicts and is differentiated."""

import gc
import resource
import sys
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.classifiers import registry
from carso.classifiers.frozen import Frozen, freeze
from carso.data import DATA_SETS, ImageData, Split
from carso.defence.defence import Carso
from carso.randomness import generator, seeded
from carso.scenario.parser import read
from carso.scenario.schema import Scenario
from carso.training.purifier_stage import PurifierStage
from carso.training.scenario_stages import purifier_stage

CPU = torch.device("cpu")
SIZES = {"cifar10": (10, 32), "cifar100": (100, 32), "tinyimagenet": (200, 64)}
PARAMETERS = {  # of the classifier and of the deployed purifier, in millions
    "cifar10": (36.48, 28.44 + 75.29 + 2.46),
    "cifar100": (36.54, 28.44 + 75.29 + 2.46),
    "tinyimagenet": (36.60, 28.78 + 290.0 + 4.91),
}
MOST_MEMORY = 24  # GiB

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """Nothing of one scenario is left in memory for the next, and none needs too much of it."""
    gc.collect()
    yield
    gc.collect()
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
    assert peak < MOST_MEMORY


def few_images(scenario: Scenario) -> ImageData:
    """Random images with the shape, classes and statistics of the scenario's data set."""
    classes, side = SIZES[scenario.name]
    known = DATA_SETS[scenario.data.set]
    source = torch.Generator().manual_seed(0)
    split = Split(
        images=torch.randint(256, (2, 3, side, side), dtype=torch.uint8, generator=source),
        labels=torch.tensor([0, classes - 1]),
    )
    return ImageData(
        name=scenario.data.set,
        classes=tuple(map(str, range(classes))),
        train=split,
        validation=split,
        test=split,
        mean=known.mean,
        std=known.std,
        origin="random",
        fingerprint="random",
    )


def takes_a_step(stage: PurifierStage, clean: Tensor, eps: float) -> None:
    """One optimiser step on a perturbed batch, which reaches every part of the purifier."""
    source = generator(0, "test")
    noise = torch.rand(clean.shape, generator=source) - 0.5
    mixed = (clean + 2 * eps * noise).clamp(0, 1)
    stage.purifier.train()
    cost, divergence = stage.update(mixed, clean, 1.0, source).values()
    # An untrained decoder says about 1/2 everywhere, which costs log 2 for each number of an image.
    assert 0.6 * clean.numel() < cost < 1.0 * clean.numel()
    assert 0 < divergence < float("inf")
    for name, parameter in stage.purifier.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name
    moments = stage.optimiser.state_dict()["base_optimizer"]["state"]
    assert len(moments) == len(list(stage.purifier.parameters()))
    assert all(bool(state["exp_avg"].any()) for state in moments.values())
    assert all(parameter.grad is None for parameter in stage.classifier.parameters())


def predicts_and_is_differentiated(defence: Carso, images: Tensor, labels: Tensor) -> None:
    """Once forwards, and once forwards and back: eight candidates are dear at this size."""
    seen: list[Tensor] = []
    hook = defence.final_classifier.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    probabilities = defence.predict_proba(images)
    hook.remove()
    candidates = seen[-1]
    assert candidates.shape == (8 * 2, *images.shape[1:])
    assert ((candidates >= 0) & (candidates <= 1)).all()
    assert probabilities.shape == (2, int(labels.max()) + 1)
    assert probabilities.dtype == torch.float32
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(2), atol=1e-5)
    images = images.clone().requires_grad_(True)
    loss = F.cross_entropy(defence.view("mean-logits")(images), labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, images)
    assert gradient.dtype == torch.float32
    assert gradient.isfinite().all()
    assert (gradient != 0).flatten(1).float().mean(dim=1).min() > 0.9


def millions(module: nn.Module) -> float:
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


@pytest.mark.parametrize("name", SIZES)
def test_the_scenario_works_at_full_size(name: str) -> None:
    scenario = read(name)
    data = few_images(scenario)
    with seeded(0, "classifier"):
        classifier: Frozen = freeze(registry.build(scenario.classifier, data))
    stage = purifier_stage(scenario, data, classifier, CPU)
    images, labels = data.train.batch(slice(None))
    takes_a_step(stage, images, scenario.threat.eps)
    purifier = stage.result().deployed()
    del stage
    gc.collect()
    purifier.zero_grad(set_to_none=True)
    on_classifier, on_purifier = PARAMETERS[name]
    assert millions(classifier) == pytest.approx(on_classifier, abs=0.006)
    assert millions(purifier) == pytest.approx(on_purifier, abs=0.06)
    defence = Carso(
        classifier,
        purifier,
        samples=scenario.defence.samples,
        aggregation=scenario.defence.aggregation,
    )
    predicts_and_is_differentiated(defence, images, labels)
