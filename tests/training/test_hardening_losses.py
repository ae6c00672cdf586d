"""What hardening minimises is what its formulas say, value and gradient."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.attacks.margin import margins
from carso.attacks.pgd import PGD
from carso.randomness import generator, seeded
from carso.threats.linf import Linf
from carso.training.hardening import HardeningStage
from carso.training.losses import (
    alikeness,
    disagreement_attack,
    divergence,
    feature_distance,
    margin_attack,
)

Make = Callable[..., HardeningStage]
Batch = tuple[Tensor, Tensor]


def attacked_copy(images: Tensor) -> Tensor:
    """What no ball would allow, so that no loss is near 0: half of it is of another class."""
    return 0.5 * images + 0.5 * images.roll(1, dims=0)


def ready(stage: HardeningStage) -> HardeningStage:
    """As `update` has it when the loss is computed, with noise that is known."""
    stage.purifier.requires_grad_(True).train()
    stage.defence.noise = generator(5, "noise")
    return stage


def straight_line(stage: HardeningStage, inputs: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of one candidate per input and the mean cost, written out."""
    settings, classifier = stage.hardening, stage.defence.classifier.classifier

    def read(x: Tensor) -> list[Tensor]:
        return [classifier.norm(classifier.conv(x)), classifier(x)]

    own = classifier(inputs)
    latent = torch.randn(len(inputs), 1, 8, generator=generator(5, "noise"))[:, 0]
    condition = stage.purifier.conditioning(read(inputs))
    candidates = torch.sigmoid(stage.purifier.decoder.logits(latent, condition))
    pixels = candidates.clamp(1e-7, 1 - 1e-7)
    entropy = -(clean * pixels.log() + (1 - clean) * (1 - pixels).log())
    cost = entropy.flatten(1).sum(dim=1).mean()
    if settings.features:
        distances = [
            (a - b).square().sum() / b.square().sum()
            for a, b in zip(read(candidates), read(clean), strict=True)
        ]
        cost = cost + settings.features * sum(distances) / 2
    logits = classifier(candidates)
    if settings.aggregation == "anchored":
        logits = (logits + settings.anchor * own) / (1 + settings.anchor)
    return logits, cost


def straight_loss(
    stage: HardeningStage, images: Tensor, attacked: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss and cost by the definitions."""
    rows = range(len(labels))
    if stage.hardening.loss == "trades":
        both = torch.cat([images, attacked])
        logits, cost = straight_line(stage, both, torch.cat([images, images]))
        clean, bad = logits[: len(images)].softmax(dim=1), logits[len(images) :].softmax(dim=1)
        natural = -clean[rows, labels].log().mean()
        away = (clean * (clean / bad).log()).sum(dim=1).mean()
        return natural + stage.hardening.trades_weight * away, cost
    logits, cost = straight_line(stage, attacked, images)
    if stage.hardening.loss == "cross-entropy":
        return -logits.softmax(dim=1)[rows, labels].log().mean(), cost
    losses = []
    for row, label in enumerate(labels.tolist()):
        others = [logits[row, k] for k in range(4) if k != label]
        margin = logits[row, label] - torch.stack(others).max()
        losses.append((1 + (-margin).exp()).log())
    return torch.stack(losses).mean(), cost


def gradient_of(stage: HardeningStage, value: Tensor) -> Tensor:
    parameters = list(stage.purifier.parameters())
    found = torch.autograd.grad(value, parameters, allow_unused=True, retain_graph=True)
    pairs = zip(found, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


@pytest.mark.parametrize("aggregation", ["mean-logits", "anchored"])
@pytest.mark.parametrize("features", [0.0, 20.0])
@pytest.mark.parametrize("loss", ["cross-entropy", "margin", "trades"])
def test_a_loss_is_its_definition_and_so_is_its_gradient(
    loss: str, features: float, aggregation: str, new_stage: Make, batch: Batch
) -> None:
    images, labels = batch
    settings: dict[str, Any] = {"loss": loss, "features": features, "aggregation": aggregation}
    stage = ready(new_stage(**settings, anchor=0.7, trades_weight=3.0))
    attacked = attacked_copy(images)
    value, cost, logits = stage.loss(images, attacked, labels)
    wanted, expected = straight_loss(stage, images, attacked, labels)
    torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(cost, expected, rtol=1e-4, atol=1e-4)
    assert logits.shape == (16, 4)
    assert not logits.requires_grad
    for one, other in ((value, wanted), (cost, expected)):
        found, right = gradient_of(stage, one), gradient_of(stage, other)
        assert right.norm() > 1e-2
        assert (found - right).norm() < 1e-3 * right.norm()


def test_losses_differ_from_each_other(new_stage: Make, batch: Batch) -> None:
    """Otherwise the test above would show less than it says."""
    images, labels = batch
    values = [
        float(ready(new_stage(**way)).loss(images, attacked_copy(images), labels)[0].detach())
        for way in (
            {"loss": "cross-entropy"},
            {"loss": "cross-entropy", "aggregation": "anchored"},
            {"loss": "cross-entropy", "aggregation": "anchored", "anchor": 3.0},
            {"loss": "margin"},
            {"loss": "trades"},
            {"loss": "trades", "trades_weight": 1.0},
        )
    ]
    assert all(abs(a - b) > 1e-3 for i, a in enumerate(values) for b in values[:i])


def test_features_change_the_gradient_that_the_purifier_gets(new_stage: Make, batch: Batch) -> None:
    images, labels = batch
    gradients = []
    for features in (0.0, 20.0):
        stage = ready(new_stage(features=features))
        gradients.append(gradient_of(stage, stage.loss(images, images, labels)[1]))
    plain, changed = gradients
    assert (changed - plain).norm() > 0.1 * plain.norm()


def test_candidates_that_are_alike_cost_what_they_lack_of_the_spread() -> None:
    one = torch.full((2, 1, 4, 4), 0.5)
    other = one + torch.tensor([0.3, -0.05]).view(2, 1, 1, 1)
    assert float(alikeness(one, other, wanted=0.1)) == pytest.approx(10 * 16 * 0.05 / 2, rel=1e-5)
    assert float(alikeness(one, other, wanted=0.04)) == 0


def test_a_spread_is_wanted_of_two_draws_of_the_same_image(new_stage: Make, batch: Batch) -> None:
    images, labels = batch
    costs = []
    for spread in (0.0, 0.6):
        stage = ready(new_stage(spread=spread))
        costs.append(stage.loss(images, images, labels)[1])
    noise, purifier = generator(5, "noise"), stage.purifier
    condition = purifier.conditioning(stage.defence.representation(images, gradients=False))
    one, other = (
        purifier.decoder.logits(
            torch.randn(len(images), 1, 8, generator=noise)[:, 0], condition
        ).sigmoid()
        for _ in range(2)
    )
    lacking = 0.6 - (one - other).abs().mean(dim=(1, 2, 3))
    assert (lacking > 0).all()
    expected = 10 * images[0].numel() * lacking.mean()
    torch.testing.assert_close(costs[1] - costs[0], expected, rtol=1e-3, atol=1e-3)
    assert gradient_of(stage, costs[1]).norm() > 0


@pytest.mark.parametrize("features", [0.0, 5.0])
def test_another_final_classifier_judges_the_candidates(
    features: float, new_stage: Make, batch: Batch, network: nn.Module
) -> None:
    """The paper's ablation; `features` are still those of the classifier that is represented."""
    images, labels = batch
    with torch.no_grad():
        network.out.weight.neg_()  # says the contrary
    logits = [
        ready(new_stage(features=features, final=final)).loss(images, images, labels)[2]
        for final in (None, network)
    ]
    bias = network.out.bias.detach()
    torch.testing.assert_close(logits[1] - bias, bias - logits[0], rtol=1e-4, atol=1e-4)


def test_the_distance_of_features_is_in_units_of_each_layer() -> None:
    wanted = [torch.randn(4, 3, 2, 2), torch.randn(4, 5)]
    seen = [torch.randn(4, 3, 2, 2), torch.randn(4, 5)]
    whole = float(feature_distance(seen, wanted))
    scaled = feature_distance([seen[0], 1000 * seen[1]], [wanted[0], 1000 * wanted[1]])
    assert float(scaled) == pytest.approx(whole, rel=1e-5)
    assert float(feature_distance(wanted, wanted)) == 0
    nothing = [torch.zeros_like(value) for value in wanted]
    assert float(feature_distance(nothing, wanted)) == pytest.approx(1)
    assert math.isfinite(float(feature_distance(seen, nothing)))  # a dead layer


def test_divergence_is_zero_only_between_equal_predictions() -> None:
    clean, attacked = torch.randn(5, 3), torch.randn(5, 3)
    p, q = clean.softmax(dim=1), attacked.softmax(dim=1)
    expected = (p * (p / q).log()).sum() / 5
    torch.testing.assert_close(divergence(clean, attacked), expected)
    assert not torch.allclose(divergence(attacked, clean), expected)
    assert float(divergence(clean, clean + 2)) == pytest.approx(0, abs=1e-6)


def test_the_attack_of_trades_goes_away_from_the_clean_prediction() -> None:
    """One step from a known start: it is a projected step along the sign of the gradient."""
    with seeded(0, "test"):
        network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
        images, threat = torch.rand(4, 1, 4, 4), Linf(eps=0.1)
    start = threat.random_start(images, torch.Generator().manual_seed(2))
    moving = start.clone().requires_grad_(True)
    p, q = network(images).softmax(dim=1).detach(), network(moving).softmax(dim=1)
    (gradient,) = torch.autograd.grad((p * (p / q).log()).sum(), moving)
    expected = threat.project(start + 0.04 * gradient.sign(), images)
    found = disagreement_attack(
        network,
        images,
        threat=threat,
        steps=1,
        step_size=0.04,
        generator=torch.Generator().manual_seed(2),
    )
    torch.testing.assert_close(found, expected)
    assert F.cross_entropy(network(found), p) > F.cross_entropy(network(start), p)


def test_a_margin_attack_of_few_steps_beats_a_tempered_cross_entropy() -> None:
    """Of ten classes one is near: at a high temperature the cross-entropy spreads its effort."""
    source = torch.Generator().manual_seed(0)
    weights = torch.randn(10, 16, generator=source)
    weights[1] = weights[0] + 0.4 * torch.randn(16, generator=source)
    images = torch.rand(200, 1, 4, 4, generator=source)
    labels = torch.zeros(200, dtype=torch.int64)

    def model(x: Tensor) -> Tensor:
        return x.flatten(1) @ weights.T

    settings = {"threat": Linf(eps=0.05), "steps": 2, "step_size": 0.03}

    def seed() -> torch.Generator:
        return torch.Generator().manual_seed(1)

    found = margin_attack(model, images, labels, **settings, generator=seed())  # type: ignore[arg-type]
    assert bool(Linf(eps=0.05).contains(found, images).all())
    tempered = PGD(steps=2, step_size=0.03)(
        lambda x: model(x) / 50, images, labels, threat=Linf(eps=0.05), generator=seed()
    )
    lead, other = (margins(model(x), labels).mean() for x in (found, tempered))
    assert lead < other
