"""A guide: a head on what the purifier has seen, attacked and trained along, and then dropped."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.defence.around import purifier_around
from carso.errors import CarsoError
from carso.randomness import generator, seeded
from carso.scenario.hardening_settings import HardeningSettings
from carso.threats.linf import Linf
from carso.training.hardening import HardeningStage
from carso.training.loop import Quiet, run, train_in_memory

Make = Callable[..., HardeningStage]

pytestmark = pytest.mark.usefixtures("short_validation")


@pytest.fixture
def guided_stage(learnt: nn.Module, bars: ImageData) -> Make:
    """A stage with a small U-Net without skips, and a guide."""

    def make(**changes: Any) -> HardeningStage:
        network = copy.deepcopy(learnt)
        with seeded(0, "unet"):
            purifier = purifier_around(
                network, (1, 8, 8), layers=["norm"], kind="unet",
                widths=(6, 8), blocks=(0, 1), noise=0, skips=False,
            )  # fmt: skip
        settings: dict[str, Any] = {
            "epochs": 4, "batch_size": 16, "rate": 0.02, "attack_steps": 2, "temperature": 2.0,
            "attack_step_size": 0.06, "validation_images": 16, "samples": 1, "average": 0.5,
            "guide": 0.5, "guide_epochs": 1.0,
        }  # fmt: skip
        return HardeningStage(
            freeze(network),
            purifier,
            bars,
            hardening=HardeningSettings(**{**settings, **changes}),
            threat=Linf(eps=0.1),
            seed=3,
            device=torch.device("cpu"),
            identity={"stage": "hardening"},
        )

    return make


def parts(stage: HardeningStage, images: Tensor) -> tuple[Tensor, Tensor]:
    """The head's logits and the candidates' over the temperature, written out."""
    assert stage.guided is not None
    activations = stage.defence.representation(images)
    purifier = stage.guided.summarising
    summary = purifier.summary(activations, generator(0))
    candidates = purifier.pixel_logits(activations, generator(0)).sigmoid()
    logits = stage.defence.classifier(candidates)
    return stage.guided.head(summary), logits / stage.temperature


def parameters(stage: HardeningStage) -> Iterator[tuple[str, nn.Parameter]]:
    """The weights that learn, by their names."""
    return stage.trained.named_parameters()


def test_first_the_guide_alone_is_attacked_then_the_whole_defence_as_well(
    guided_stage: Make, batch: tuple[Tensor, Tensor]
) -> None:
    stage = guided_stage()
    images, labels = batch
    stage.trained.eval()
    told, logits = parts(stage, images)
    of_head = F.cross_entropy(told, labels, reduction="sum")
    of_whole = F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(stage.guided_loss(images, labels), of_head)
    stage.step = stage.steps()  # one epoch
    torch.testing.assert_close(stage.guided_loss(images, labels), of_whole + 0.5 * of_head)


def test_an_attack_makes_the_guide_err_within_its_ball(
    guided_stage: Make, batch: tuple[Tensor, Tensor]
) -> None:
    stage = guided_stage()
    train_in_memory(stage, Quiet())
    stage.step = 0
    images, labels = batch
    attacked = stage.attacked(images, labels, generator(0))
    assert float((attacked - images).abs().max()) <= 0.1 + 1e-6
    before, after = (parts(stage, each)[0] for each in (images, attacked))
    assert F.cross_entropy(after, labels) > F.cross_entropy(before, labels)


def test_head_and_purifier_learn_and_only_the_purifier_is_kept(
    guided_stage: Make, learnt: nn.Module
) -> None:
    stage = guided_stage(epochs=25)
    assert stage.guided is not None
    head = stage.guided.head.weight.detach().clone()
    history = train_in_memory(stage, Quiet())
    assert not torch.equal(stage.guided.head.weight, head)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    kept = stage.result().state_dict()
    assert not any("head" in name for name in kept)
    for name, value in stage.defence.classifier.classifier.state_dict().items():
        assert torch.equal(value, learnt.state_dict()[name]), name


def test_the_loss_is_of_candidates_and_guide_from_the_first_step(
    guided_stage: Make, batch: tuple[Tensor, Tensor]
) -> None:
    images, labels = batch
    stage = guided_stage()
    stage.trained.eval()
    told, logits = parts(stage, images)
    loss, _, found = stage.loss(images, images, labels)
    wanted = F.cross_entropy(logits, labels) + 0.5 * F.cross_entropy(told, labels)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(found, logits)


def test_before_anything_is_painted_only_the_guide_and_what_it_reads_learn(
    guided_stage: Make, batch: tuple[Tensor, Tensor]
) -> None:
    images, labels = batch
    stage = guided_stage(unpainted_epochs=1.0)
    stage.trained.eval()
    told, _ = parts(stage, images)
    loss, cost, found = stage.loss(images, images, labels)
    torch.testing.assert_close(loss, 0.5 * F.cross_entropy(told, labels))
    torch.testing.assert_close(found, told)
    assert float(cost) == 0
    stage.update(images, labels, generator(0))
    learns = {name for name, weight in parameters(stage) if weight.grad is not None}
    assert any("encoders" in name for name in learns)
    assert not any("decoders" in name or ".last" in name or ".ups" in name for name in learns)
    stage.step = stage.steps()  # one epoch later it paints
    stage.update(images, labels, generator(0))
    assert all(weight.grad is not None for _, weight in parameters(stage))


def test_a_stopped_hardening_with_a_guide_goes_on_with_the_same_bits(
    guided_stage: Make, tmp_path: Path
) -> None:
    whole, begun = guided_stage(), guided_stage()
    train_in_memory(whole, Quiet())

    class Stop(Exception):
        pass

    class Once(Quiet):
        def finish(self, stage: str, epoch: int, row: dict[str, Any]) -> None:
            if epoch == 1:
                raise Stop

    with pytest.raises(Stop):
        run(begun, tmp_path, Once())
    again = guided_stage()
    run(again, tmp_path, Quiet())
    for name, value in whole.trained.state_dict().items():
        assert torch.equal(again.trained.state_dict()[name], value), name


def test_a_purifier_without_a_summary_is_refused(new_stage: Make) -> None:
    with pytest.raises(CarsoError, match="guide needs a purifier with a summary"):
        new_stage(guide=1.0)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"guide_epochs": 1.0}, "guide must be above 0 with guide_epochs"),
        ({"guide": 1.0, "guide_epochs": 1.0, "unpainted_epochs": 2.0}, "at most guide_epochs"),
        ({"guide": 1.0, "loss": "trades"}, "loss must be"),
        ({"guide": 1.0, "replays": 3}, "replays must be left out with a guide"),
        ({"guide": 1.0, "reconstruct_epochs": 1.0}, "reconstruct_epochs must be left out"),
        ({"guide": -1.0}, "guide must be"),
    ],
)
def test_settings_that_mean_nothing_together_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(CarsoError, match=says):
        HardeningSettings(epochs=1, attack_step_size=0.1, **asked)


def test_the_purifier_is_attacked_in_evaluation_mode_and_trained_in_the_other(
    guided_stage: Make, batch: tuple[Tensor, Tensor]
) -> None:
    stage = guided_stage()
    stage.attacked(*batch, Generator().manual_seed(0))
    assert not stage.trained.training
    assert not any(p.requires_grad for p in stage.trained.parameters())
    stage.update(*batch, Generator().manual_seed(0))
    assert stage.trained.training
