"""What may be added to a hardening: mixed images, smoothed labels, clean images, more steps at the
end, and weights that are perturbed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from carso.errors import CarsoError
from carso.randomness import Share, generator, shared
from carso.scenario.hardening_settings import HardeningSettings
from carso.training.hardening import HardeningStage
from carso.training.losses import margin_attack
from carso.training.mixing import cut_mixed, leads, mostly

Make = Callable[..., HardeningStage]
Batch = tuple[Tensor, Tensor]

pytestmark = pytest.mark.usefixtures("short_validation")


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


# CutMix.


def test_a_mixed_image_has_a_box_of_another_and_labels_by_the_pixels() -> None:
    images = torch.arange(40.0).view(40, 1, 1, 1).expand(-1, 2, 8, 12)
    labels = torch.arange(40)
    mixed, shares = cut_mixed(images, labels, classes=40, share=1.0, source=seeded())
    for number, (image, share) in enumerate(zip(mixed, shares, strict=True)):
        found, counts = image.unique(return_counts=True)
        assert len(found) <= 2
        assert torch.equal(image[0], image[1])  # all channels of a pixel come together
        torch.testing.assert_close(share[found.long()], counts / image.numel())
        brought = (image[0] != number).nonzero()
        if len(brought):  # what is brought is one box
            high, wide = brought.amax(dim=0) - brought.amin(dim=0) + 1
            assert high * wide == len(brought)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(40))
    assert 0.35 < float(shares.diagonal().mean()) < 0.75  # the size is uniform, cut at the edge


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_the_batches_is_mixed(share: float, batch: Batch) -> None:
    source = seeded()
    found = [cut_mixed(*batch, classes=4, share=share, source=source)[1] for _ in range(100)]
    assert abs(sum(labels.ndim == 2 for labels in found) - 100 * share) < 12


def test_leads_of_whole_shares_are_those_of_labels_and_of_mixed_images_by_share() -> None:
    scores = torch.randn(6, 5, generator=seeded())
    labels = torch.arange(6) % 5
    whole = F.one_hot(labels, 5).float()
    torch.testing.assert_close(leads(scores, whole), leads(scores, labels))
    assert torch.equal(mostly(whole), labels)
    mixed = torch.tensor([[0.0, 0.75, 0.0, 0.25, 0.0]])
    expected = 0.75 * scores[0, 1] + 0.25 * scores[0, 3] - scores[0, [0, 2, 4]].max()
    torch.testing.assert_close(leads(scores[:1], mixed)[0], expected)


@pytest.mark.parametrize("attack_loss", ["cross-entropy", "margin"])
@pytest.mark.parametrize("replays", [0, 2])
def test_attack_and_loss_know_both_labels(
    attack_loss: str, replays: int, new_stage: Make, batch: Batch
) -> None:
    """Whole shares give what labels give; others give something else."""
    images, labels = batch
    whole = F.one_hot(labels, 4).float()
    halves = 0.6 * whole + 0.4 * whole.roll(1, dims=0)
    found = []
    for given in (labels, whole, halves):
        stage = new_stage(attack_loss=attack_loss, replays=replays, attack_precision="bfloat16")
        figures = [row[:2] for row in stage.updates(images, given, seeded(), weight=1.0)]
        found.append(torch.stack(figures))
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], found[2], rtol=1e-3)


def test_an_epoch_of_mixed_images_trains(new_stage: Make) -> None:
    stage = new_stage(cutmix=1.0)
    taken: list[Tensor] = []
    loss = stage.classification_loss
    stage.classification_loss = lambda logits, labels: (  # type: ignore[method-assign]
        taken.append(labels) or loss(logits, labels)  # type: ignore[func-returns-value]
    )
    row = stage.epoch(0, lambda: None)
    assert {labels.ndim for labels in taken} == {2}
    assert 0 <= row["training_accuracy"] <= 1


def test_a_margin_of_two_classes_cannot_be_mixed(
    new_stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carso.data.ImageData.classes", ("a", "b"), raising=False)
    with pytest.raises(CarsoError, match="three classes"):
        new_stage(cutmix=0.5, loss="margin")


# Label smoothing.


@pytest.mark.parametrize("loss", ["cross-entropy", "trades"])
def test_smoothed_labels_are_of_the_loss_alone(loss: str, new_stage: Make, batch: Batch) -> None:
    images, labels = batch
    found = {}
    for smoothing in (0.0, 0.2):
        stage = new_stage(loss=loss, label_smoothing=smoothing, trades_weight=0.0)
        stage.defence.noise = generator(0)
        attacked = stage.attacked(images, labels, seeded())
        stage.defence.noise = generator(1)
        found[smoothing] = attacked, stage.loss(images, images, labels)
    assert torch.equal(found[0.0][0], found[0.2][0])
    (sharp, _, logits), (smooth, _, _) = found[0.0][1], found[0.2][1]
    if loss == "cross-entropy":
        even = -logits.log_softmax(dim=1).mean()
        torch.testing.assert_close(smooth, 0.8 * sharp + 0.2 * even)
    assert float(smooth) != float(sharp)


# Clean images among the attacked.


def test_the_first_of_a_batch_are_left_clean_and_cost_no_attack(
    new_stage: Make, batch: Batch
) -> None:
    images, labels = batch
    stage = new_stage(clean_share=0.3, attack_steps=3)
    mixed = stage.some_attacked(images, labels, seeded())
    assert torch.equal(mixed[:4], images[:4])  # 0.3 * 16, rounded down
    assert ((mixed[4:] - images[4:]).abs().amax(dim=(1, 2, 3)) > 0.05).all()
    assert stage.passes(16) == 3 * 12 + 16


def test_processes_leave_the_same_images_clean_and_attack_the_others_alike(
    new_stage: Make, batch: Batch
) -> None:
    images, labels = batch
    for clean_share in (0.3, 0.95):  # then there is one image, of one process, to attack
        whole = new_stage(clean_share=clean_share).some_attacked(images, labels, seeded())
        for rank in (0, 1):
            part = slice(rank, 16, 2)
            stage = new_stage(clean_share=clean_share)
            source = seeded()
            with shared(Share(part, 16)):
                own = stage.some_attacked(images[part], labels[part], source)
            torch.testing.assert_close(own, whole[part])
        after = source.get_state()
        alone = seeded()
        new_stage(clean_share=clean_share).some_attacked(images, labels, alone)
        assert torch.equal(alone.get_state(), after)  # and the streams stay together


# More steps at the end.


def test_the_last_epochs_have_more_steps_of_the_same_length_together(
    new_stage: Make, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, float]] = []

    def listening(model: Any, images: Tensor, labels: Tensor, **given: Any) -> Tensor:
        seen.append((given["steps"], given["step_size"]))
        return margin_attack(model, images, labels, **given)

    monkeypatch.setattr("carso.training.hardening_attack.margin_attack", listening)
    settings = {"attack_loss": "margin", "attack_steps_end": 6, "end_epochs": 1.5}
    stage = new_stage(**settings)  # four epochs of three steps; two steps of 0.06
    passes = []
    for step in (0, 7, 8, 11):
        stage.step = step
        stage.attacked(*batch, seeded())
        passes.append(stage.passes(16))
    assert seen == [(2, 0.06), (2, 0.06), (6, pytest.approx(0.02)), (6, pytest.approx(0.02))]
    assert passes == [16 * 3, 16 * 3, 16 * 7, 16 * 7]


# Perturbed weights.


def test_the_gradient_is_taken_where_the_weights_are_worse_and_applied_where_they_were(
    new_stage: Make, batch: Batch
) -> None:
    """Against a perturbation written out."""
    images, labels = batch
    gamma = 0.05
    stage, other = new_stage(weight_perturbation=gamma), new_stage()
    before = [p.detach().clone() for p in stage.purifier.parameters()]
    for each in (stage, other):
        each.some_attacked = lambda *_: images  # type: ignore[method-assign, assignment]
        each.optimiser.step = lambda: None  # type: ignore[method-assign]
    stage.update(images, labels, seeded())
    for weight, value in zip(stage.purifier.parameters(), before, strict=True):
        assert torch.equal(weight, value)  # bit for bit

    other.purifier.requires_grad_(True).train()
    first, *_ = other.loss(images, images, labels)
    weights = list(other.purifier.parameters())
    gradients = torch.autograd.grad(first, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            if weight.ndim > 1:
                weight += gamma * weight.norm() / gradient.norm() * gradient
    other.update(images, labels, seeded())  # its noise goes on after that of the first pass
    for one, two in zip(stage.purifier.parameters(), weights, strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-5)
    assert stage.first_losses[0] > float(first.detach())


def batches_seen(stage: HardeningStage) -> Tensor:
    """By each batch norm of the purifier."""
    state = stage.purifier.state_dict().items()
    return torch.stack([value.clone() for name, value in state if name.endswith("tracked")])


def test_the_pass_that_perturbs_moves_no_statistics_and_is_counted(
    new_stage: Make, batch: Batch
) -> None:
    counted = {}
    for gamma in (0.0, 0.05):
        stage = new_stage(weight_perturbation=gamma)
        before = batches_seen(stage)
        stage.update(*batch, seeded())
        counted[gamma] = batches_seen(stage) - before
        assert stage.passes(16) == 16 * (3 + (gamma > 0))
    assert set(counted[0.0].tolist()) == set(counted[0.05].tolist()) == {1}


def test_nothing_is_perturbed_while_it_only_rebuilds(new_stage: Make, batch: Batch) -> None:
    one, other = (
        new_stage(weight_perturbation=gamma, reconstruct_epochs=1.0) for gamma in (0.0, 0.05)
    )
    assert one.passes(16) == other.passes(16) == 16
    found = [stage.update(*batch, seeded()) for stage in (one, other)]
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"loss": "margin", "label_smoothing": 0.1}, "label_smoothing must be left out"),
        ({"replays": 2, "weight_perturbation": 0.01}, "weight_perturbation must be left out"),
        ({"replays": 2, "attack_steps_end": 5}, "attack_steps_end must be left out"),
        ({"replays": 2, "clean_share": 0.5}, "clean_share must be left out"),
    ],
)
def test_what_means_nothing_beside_another_setting_is_refused(
    settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(CarsoError, match=says):
        HardeningSettings(epochs=1, attack_step_size=0.1, **settings)
