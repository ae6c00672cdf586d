"""Hardening attacks the whole defence, trains the purifier alone, and keeps the best epoch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.attacks.pgd import PGD
from carso.data import ImageData
from carso.randomness import generator
from carso.threats.linf import Linf
from carso.training import validation_attack
from carso.training.hardening import HardeningStage
from carso.training.loop import Quiet, Row, train_in_memory

Make = Callable[..., HardeningStage]
Batch = tuple[Tensor, Tensor]

pytestmark = pytest.mark.usefixtures("short_validation")

WAYS: list[dict[str, Any]] = [
    {"loss": "cross-entropy"},
    {"loss": "margin", "aggregation": "anchored", "anchor": 0.5},
    {"loss": "trades", "features": 5.0},
    # Of few replays most are of images that are hardly attacked: there is nothing to learn.
    {"loss": "cross-entropy", "replays": 6, "attack_loss": "margin"},
]


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


# What is trained.


@pytest.mark.parametrize("way", WAYS)
def test_the_classifier_keeps_every_bit_and_the_purifier_learns(
    way: dict[str, Any], new_stage: Make, learnt: nn.Module
) -> None:
    stage = new_stage(epochs=10, rate=0.03, **way)
    before = copied(stage.purifier)
    history = train_in_memory(stage, Quiet())
    classifier = stage.defence.classifier
    assert same(copied(classifier.classifier), copied(learnt))
    assert not classifier.training
    assert not any(p.requires_grad or p.grad is not None for p in classifier.parameters())
    for name, value in stage.purifier.state_dict().items():
        assert not torch.equal(value, before[name]), name
    assert sum(row["loss"] for row in history[-2:]) < 0.8 * sum(row["loss"] for row in history[:2])
    assert all(row["validation_adaptive_accuracy"] <= row["validation_accuracy"] for row in history)
    assert not any(name.startswith("posterior") for name in before)


def test_the_result_is_deployed_and_uses_no_posterior(new_stage: Make) -> None:
    stage = new_stage(epochs=1)
    train_in_memory(stage, Quiet())
    purifier = stage.result()
    assert purifier.posterior is None
    assert not purifier.training
    assert not any(p.requires_grad for p in purifier.parameters())


def test_reconstruction_weighs_in_what_is_minimised(new_stage: Make, batch: Batch) -> None:
    """The optimiser sees the gradient of loss + reconstruction * cost, averaged over the batch."""
    gradients = []
    for weight in (0.0, 0.01, 0.02):
        stage = new_stage(reconstruction=weight)
        stage.update(*batch, Generator().manual_seed(0))
        gradients.append(torch.cat([p.grad.flatten() for p in stage.purifier.parameters()]))
    first, second, third = gradients
    assert not torch.allclose(first, second)
    torch.testing.assert_close(third - second, second - first, rtol=1e-3, atol=1e-4)


def test_averaged_weights_follow_the_trained_ones(new_stage: Make) -> None:
    """Also the batch-norm statistics; early on faster, so that the start is soon forgotten."""
    stage = new_stage(average=0.3)
    expected, step, update = copied(stage.purifier), 0, stage.update

    def counted(*given: Any, weight: float) -> Tensor:
        nonlocal step
        row = update(*given, weight=weight)
        step += 1
        decay = min(0.3, (1 + step) / (10 + step))
        for name, value in stage.purifier.state_dict().items():
            if value.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * value
            else:
                expected[name] = value.clone()
        return row

    stage.update = counted  # type: ignore[method-assign]
    for number in range(3):
        stage.epoch(number, lambda: None)
    assert step == 9
    torch.testing.assert_close(dict(stage.averaged.state_dict()), expected)
    assert not same(copied(stage.averaged), copied(stage.purifier))


# The attack.


def straight_attack(stage: HardeningStage, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    """PGD through the four steps, written out; one candidate a step."""
    settings, classifier = stage.hardening, stage.defence.classifier.classifier
    noise = generator(5, "noise")
    source = Generator().manual_seed(0)
    uniform = 2 * torch.rand(images.shape, generator=source) - 1
    current = (images + eps * uniform).clamp(0, 1)
    for _ in range(settings.attack_steps):
        current = current.detach().requires_grad_(True)
        activation = classifier.norm(classifier.conv(current))
        own = classifier(current)
        latent = torch.randn(len(images), 1, 8, generator=noise)[:, 0]
        condition = stage.purifier.conditioning([activation, own])
        logits = classifier(torch.sigmoid(stage.purifier.decoder.logits(latent, condition)))
        if settings.aggregation == "anchored":
            logits = (logits + settings.anchor * own) / (1 + settings.anchor)
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, labels), current)
        moved = current + settings.attack_step_size * eps / 0.1 * gradient.sign()
        current = moved.clamp(images - eps, images + eps).clamp(0, 1).detach()
    return current


@pytest.mark.parametrize("aggregation", ["mean-logits", "anchored"])
@pytest.mark.parametrize("growing", [0.0, 2.0])
def test_the_attack_goes_through_the_whole_defence(
    aggregation: str, growing: float, new_stage: Make, batch: Batch
) -> None:
    images, labels = batch
    stage = new_stage(aggregation=aggregation, eps_epochs=growing)
    stage.step = 2
    eps = 0.1 * (3 / 6 if growing else 1.0)
    stage.defence.noise = generator(5, "noise")
    attacked = stage.attacked(images, labels, Generator().manual_seed(0))
    expected = straight_attack(stage, images, labels, eps)
    assert ((attacked - expected).abs() < 1e-6).float().mean() > 0.99
    difference = (attacked - images).abs()
    assert difference.max() <= eps + 1e-6
    assert (difference > 0.9 * eps).float().mean() > 0.3
    assert attacked.min() >= 0
    assert attacked.max() <= 1
    bare = PGD(steps=2, step_size=0.06 * eps / 0.1)(
        stage.defence.classifier,
        images,
        labels,
        threat=Linf(eps=eps),
        generator=Generator().manual_seed(0),
    )
    assert ((attacked - bare).abs() > 1e-3).float().mean() > 0.1


@pytest.mark.parametrize("loss", ["cross-entropy", "trades"])
def test_the_attack_hurts_and_moves_nothing_of_the_purifier(
    loss: str, new_stage: Make, batch: Batch
) -> None:
    images, labels = batch
    stage = new_stage(loss=loss, attack_steps=10, attack_step_size=0.03)
    for number in range(2):
        stage.epoch(number, lambda: None)
    before = copied(stage.purifier)
    attacked = stage.attacked(images, labels, Generator().manual_seed(0))
    assert same(copied(stage.purifier), before)  # weights and batch-norm statistics
    assert all(p.requires_grad is False for p in stage.purifier.parameters())
    costs = []
    with torch.no_grad():
        for x in (images, attacked):
            stage.defence.seed(0)
            costs.append(F.cross_entropy(stage.defence.view("mean-logits", draws=20)(x), labels))
    assert costs[1] > costs[0] + 0.1
    stage.update(images, labels, Generator().manual_seed(0))
    after = copied(stage.purifier)
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(moved) == len(before)  # the update itself does move both
    assert all(p.requires_grad for p in stage.purifier.parameters())


@pytest.mark.parametrize("loss", ["cross-entropy", "trades"])
def test_only_the_attack_is_in_low_precision(loss: str, new_stage: Make, batch: Batch) -> None:
    """And what it finds is still inside the ball, as float32."""
    seen: dict[str, set[torch.dtype]] = {}
    for precision in ("float32", "bfloat16"):
        stage = new_stage(loss=loss, attack_precision=precision)
        kinds: list[torch.dtype] = []
        conv = stage.defence.classifier.classifier.conv
        conv.register_forward_hook(lambda _, __, out, kinds=kinds: kinds.append(out.dtype))
        attacked = stage.attacked(*batch, Generator().manual_seed(0))
        assert attacked.dtype == torch.float32
        assert Linf(eps=0.1).contains(attacked, batch[0]).all()
        seen[precision] = set(kinds)
        kinds.clear()
        stage.purifier.train()
        values = stage.loss(batch[0], attacked, batch[1])
        assert set(kinds) == {value.dtype for value in values} == {torch.float32}
    assert seen == {"float32": {torch.float32}, "bfloat16": {torch.bfloat16}}


def test_the_ball_grows_over_the_first_epochs_and_steps_with_it(new_stage: Make) -> None:
    stage = new_stage(eps_epochs=1.5, attack_steps=1, attack_step_size=0.1)
    loss, radii = stage.loss, []

    def recorded(images: Tensor, attacked: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        radii.append(float((attacked - images).abs().max()))
        return loss(images, attacked, labels)

    stage.loss = recorded  # type: ignore[assignment, method-assign]
    for number in range(3):
        stage.epoch(number, lambda: None)
    wanted = [0.1 * min(1, (step + 1) / 4.5) for step in range(9)]
    assert radii == pytest.approx(wanted, rel=0.02)


def test_training_has_a_radius_of_its_own_and_validation_that_of_the_threat(
    new_stage: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = new_stage(threat=0.1, eps=0.2)
    assert stage.threat_now().eps == 0.2
    assert new_stage(threat=0.1).threat_now().eps == 0.1
    seen: list[tuple[float, int]] = []

    def attack(model: Any, images: Tensor, *_: Any, threat: Linf, generator: Generator) -> Tensor:
        seen.append((threat.eps, model.samples))
        assert model.defence is stage.judged
        return images

    monkeypatch.setattr(validation_attack, "VALIDATION_ATTACK", attack)
    found = stage.validate()
    assert seen == [(0.1, found["validation_candidates"])]


@pytest.mark.parametrize(("loss", "passes"), [("cross-entropy", 4), ("margin", 4), ("trades", 5)])
def test_gradient_passes_are_counted(loss: str, passes: int, new_stage: Make) -> None:
    """Against what the classifier sees with gradients: an attack's step passes it twice, the loss
    once, since the activations that the purifier reads need none."""
    stage = new_stage(loss=loss, attack_steps=3)
    stage.validate = lambda: {}  # type: ignore[method-assign]
    seen = 0

    def count(_: nn.Module, given: tuple[Tensor]) -> None:
        nonlocal seen
        seen += len(given[0]) * given[0].requires_grad

    stage.defence.classifier.classifier.register_forward_pre_hook(count)
    row = stage.epoch(0, lambda: None)
    assert row["gradient_passes"] == 48 * passes
    assert seen == 48 * (passes + 3)


def test_images_are_augmented_before_they_are_attacked(new_stage: Make, bars: ImageData) -> None:
    seen = []
    for augment in ("none", "flip-shift"):
        stage = new_stage(augment=augment, epochs=1)
        stage.validate = lambda: {}  # type: ignore[method-assign]
        taken: list[Tensor] = []
        stage.update = lambda images, *_, taken=taken, weight: (  # type: ignore[method-assign]
            taken.append(images) or torch.zeros(3)
        )
        stage.epoch(0, lambda: None)
        seen.append(torch.cat(taken))
    known = {image.numpy().tobytes() for image in bars.train.batch(slice(None))[0]}
    plain, changed = ([x.numpy().tobytes() in known for x in images] for images in seen)
    assert all(plain)
    assert sum(changed) < 48 / 2


def test_a_row_says_what_the_epoch_did(new_stage: Make) -> None:
    row: Row = new_stage().epoch(0, lambda: None)
    assert set(row) == {
        *("loss", "reconstruction", "training_accuracy", "gradient_passes", "images_per_second"),
        *("validation_accuracy", "validation_adaptive_accuracy", "validation_candidates"),
    }
    assert row["images_per_second"] > 0
    assert 0 <= row["training_accuracy"] <= 1


# Replays: the pass that trains gives the next step of the attack.


def test_a_replay_goes_one_step_up_the_margin_inside_the_ball(
    new_stage: Make, batch: Batch
) -> None:
    images, labels = batch
    stage = new_stage(replays=3, attack_loss="margin", attack_step_size=0.04)
    noise = stage.defence.noise.get_state()
    found, moved = stage.replay(images, images, labels, weight=1.0)
    assert bool(stage.threat.contains(moved, images).all())
    assert 0 <= float(found[2]) <= 1
    again = new_stage(replays=3, attack_loss="margin")  # the very pass, by hand
    again.defence.noise.set_state(noise)
    again.purifier.train()
    pixels = images.clone().requires_grad_(True)
    activations, own = again.defence.representation.seen(pixels, logits=False)
    logits, _ = again.classified(activations, own, images)
    right = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
    best = logits.scatter(1, labels.unsqueeze(1), -torch.inf).amax(dim=1)
    (gradient,) = torch.autograd.grad((best - right).sum(), pixels)
    wanted = stage.threat.project(images + 0.04 * gradient.sign(), images)
    torch.testing.assert_close(moved, wanted)


def test_a_replay_trains_on_what_it_was_given(new_stage: Make, batch: Batch) -> None:
    """Its update is that of an ordinary one whose attack stays where it is."""
    images, labels = batch
    one, other = new_stage(replays=1), new_stage()
    other.attacked = lambda *_: images  # type: ignore[method-assign, assignment]
    one.replay(images, images, labels, weight=1.0)
    other.update(images, labels, Generator().manual_seed(0))
    for first, second in zip(one.purifier.parameters(), other.purifier.parameters(), strict=True):
        torch.testing.assert_close(first.grad, second.grad)


def test_an_epoch_of_replays_has_as_many_updates(new_stage: Make) -> None:
    stage = new_stage(replays=3, epochs=1)
    train_in_memory(stage, Quiet())
    assert stage.step == 3 * stage.steps()
