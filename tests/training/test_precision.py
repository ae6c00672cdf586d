"""`--precision bf16-mixed`: networks and attacks in bfloat16, weights and losses in float32."""

import copy
from typing import Any

import pytest
import torch
from support import HARDENING, mini
from torch import Tensor, nn

from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.distributed.processes import Processes
from carso.purifiers.vae import vae
from carso.purifiers.vae.loss import kl_to_prior
from carso.scenario.parser import parse
from carso.scenario.purifier_training_settings import BatchAttackSettings
from carso.threats.linf import Linf
from carso.training.batches import AdversarialBatches
from carso.training.loop import first_losses
from carso.training.scenario_stages import classifier_stage, hardening_stage, purifier_stage

CPU = torch.device("cpu")
LOW = Processes(precision="bf16-mixed")
SCENARIO = parse(mini("nowhere") + HARDENING, source="test")


class Spy(nn.Module):
    """A classifier that remembers the types of what it computed."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.seen: set[torch.dtype] = set()

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.network(images)
        self.seen.add(found.dtype)
        return found


@pytest.mark.parametrize("bank", ["off", "memory"])
@pytest.mark.parametrize(
    ("processes", "wanted"), [(LOW, torch.bfloat16), (Processes(), torch.float32)]
)
def test_attacked_images_are_made_in_the_precision_of_the_run(
    network: nn.Module, bars: ImageData, processes: Processes, wanted: torch.dtype, bank: str
) -> None:
    spy = Spy(network)
    settings = BatchAttackSettings(fraction=1.0, steps=2, step_size=0.05, bank=bank)
    batches = AdversarialBatches(
        freeze(spy), bars.train, settings=settings, threat=Linf(eps=0.1), seed=0, device=CPU,
        processes=processes,
    )  # fmt: skip
    batches.prepare(0)
    mixed, clean = batches.batch(torch.arange(16), epoch=0, seen=0)
    assert spy.seen == {wanted}
    assert mixed.dtype == clean.dtype == torch.float32
    assert 0.05 < float((mixed - clean).abs().max()) <= 0.1 + 1e-6


def stages(bars: ImageData, network: nn.Module, processes: Processes) -> dict[str, Any]:
    """The stages of a small scenario at their start, around the same classifier."""
    classifier = classifier_stage(SCENARIO, bars, CPU, processes=processes)
    frozen = freeze(copy.deepcopy(classifier.averaged))
    return {
        "classifier": classifier,
        "purifier": purifier_stage(SCENARIO, bars, frozen, CPU, processes=processes),
        "hardening": hardening_stage(SCENARIO, bars, frozen, CPU, start=None, processes=processes),
    }


@pytest.mark.parametrize("stage", ["classifier", "purifier", "hardening"])
def test_the_first_losses_are_those_of_float32_but_for_the_rounding(
    bars: ImageData, network: nn.Module, stage: str
) -> None:
    low, full = (stages(bars, network, processes)[stage] for processes in (LOW, Processes()))
    assert low.identity != full.identity  # checkpoints are not mixed up
    wanted, found = first_losses(full, 3), first_losses(low, 3)
    assert found != wanted
    assert found == pytest.approx(wanted, rel=0.03)


def test_the_divergence_is_computed_in_float32(
    bars: ImageData, network: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Around a posterior near its prior, where sixteen bits would leave noise of either sign."""
    seen = []

    def spy(mean: Tensor, logvar: Tensor, **settings: float) -> Tensor:
        found = kl_to_prior(mean, logvar, **settings)
        seen.extend([mean.dtype, logvar.dtype, found.dtype])
        return found

    monkeypatch.setattr(vae, "kl_to_prior", spy)
    first_losses(stages(bars, network, LOW)["purifier"], 1)
    assert set(seen) == {torch.float32}
