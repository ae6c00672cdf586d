"""Diagnostics catch planted defects, and leave a healthy model in peace."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso import data
from carso.attacks.apgd import APGD
from carso.defence.defence import Carso
from carso.evaluation.attacked_model import AttackedDefence, AttackedView
from carso.evaluation.diagnostics.attack_strength import curve, more_effort
from carso.evaluation.diagnostics.candidates import by_samples, precision
from carso.evaluation.diagnostics.diagnosis import DiagnosticContext
from carso.evaluation.diagnostics.gradient_health import coarse, gradients, health, reasons_against
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.planned_attacks import Effort, PlannedAttack, Suite, apgd, margin
from carso.evaluation.protocol import run_attacks
from carso.evaluation.resume import FinishedResults
from carso.evaluation.suites import suite
from carso.threats.linf import Linf

EPS = 0.03
EFFORT = Effort(images=12, steps=12, queries=150, eps=(0.0, 1.0, 4.0))


def with_attacks(*attacks: PlannedAttack) -> Suite:
    return Suite(name="chosen", attacks=attacks, effort=EFFORT)


def evaluated(model: nn.Module, images: Tensor, labels: Tensor, **settings: Any) -> dict[str, Any]:
    plan = with_attacks(margin(10, 1, AttackedView()), apgd("ce", 10, AttackedView()))
    return carso.evaluate(model, images, labels, **{"eps": EPS, "suite": plan, **settings})


def failed(record: dict[str, Any]) -> set[str]:
    return {found["name"] for found in record["diagnostics"] if found["ok"] is False}


def diagnosis(record: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [found for found in record["diagnostics"] if found["name"] == name]
    return found  # type: ignore[no-any-return]


# Health.


@pytest.mark.parametrize("kind", ["classifier", "defence"])
def test_a_healthy_model_is_left_in_peace(
    kind: str, classifier: nn.Module, defence: Carso, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(classifier if kind == "classifier" else defence, images, labels)
    assert failed(record) == set()
    assert not record["unreliable"]
    assert record["reasons"] == []
    for attack in record["attacks"]:
        assert not attack["unreliable"]
        assert attack["gradients"] == {"nan": 0, "infinite": 0, "zero": 0}
        assert attack["outputs_not_finite"] == 0
    points = diagnosis(record, "curve")["figures"]["points"]
    assert [radius for radius, _ in points] == [0, EPS, 4 * EPS, 0.95]
    assert points[0][1] == record["accuracy"]["clean"]["value"]
    assert points[-1][1] == 0


def test_every_diagnosis_is_made_and_only_some_can_fail(tiny_record: dict[str, Any]) -> None:
    found = {entry["name"]: entry["ok"] for entry in tiny_record["diagnostics"]}
    assert list(found) == [
        "gradients", "curve", "more effort", "noise", "black box", "masking", "slope", "jumps",
        "neighbourhood", "inside", "memory", "same answers", "diversity", "precision",
    ]  # fmt: skip
    assert found["diversity"] is None
    assert all(isinstance(entry["verdict"], str) and entry["verdict"] for entry in
               tiny_record["diagnostics"])  # fmt: skip


def test_a_plain_classifier_has_no_candidates_and_no_aggregation(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(classifier, images, labels)
    assert diagnosis(record, "diversity")["ok"] is None
    assert diagnosis(record, "precision")["ok"] is None


def test_the_worth_of_fewer_candidates_is_that_of_all_groups_of_so_many() -> None:
    """Three of five candidates are right, by leads of 1; the others are wrong by one of 4."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    defence = Carso(network, OneColour(), samples=5, aggregation="mean-logits")
    leads = torch.tensor([1.0, -4.0, 1.0, 1.0, -4.0])
    logits = torch.stack([leads, torch.zeros(5)], dim=1).unsqueeze(1)  # (N, 1, K)
    found = by_samples(defence, logits, torch.tensor([0]))
    # Pairs: (1, -4), (1, 1); the fifth has none. Fours: the first.
    assert found == {"1": 0.6, "2": 0.5, "4": 0.0}


class OneColour:
    """A purifier of images that are all alike."""

    layers = ("0",)
    image_shape = (1, 2, 2)

    def sample(self, activations: Sequence[Tensor], samples: int, _: torch.Generator) -> Tensor:
        return torch.full((samples, len(activations[0]), 1, 2, 2), 0.5)


# Planted defects.


class Scaled(nn.Module):
    """Logits so far apart that the cross-entropy is flat in float32."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return 1e6 * self.network(x)


class Rounded(Scaled):
    """Pixels or logits that are rounded have no gradient at all."""

    def forward(self, x: Tensor) -> Tensor:
        return (8 * self.network(x)).round() / 8  # type: ignore[no-any-return]


def test_logits_that_saturate_the_loss_are_found(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    plan = with_attacks(apgd("ce", 10, AttackedView()))
    record = evaluated(Scaled(classifier), images, labels, suite=plan)
    (attack,) = record["attacks"]
    assert attack["gradients"]["zero"] > 0.5
    assert attack["unreliable"]
    assert any("exactly zero" in reason for reason in attack["reasons"])
    assert record["unreliable"]
    assert "gradients" in failed(record)
    assert record["verdict"].startswith("DO NOT TRUST THIS NUMBER.")
    # A short attack on the margin, which does not saturate, goes below its figure.
    assert "masking" in failed(record)


def test_an_attack_that_saturation_does_not_hurt_may_be_trusted(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(Scaled(classifier), images, labels)  # margin descent is part of it
    assert record["attacks"][1]["attacked"] == 0 or record["attacks"][1]["unreliable"]
    assert "gradients" not in failed(record)
    assert record["accuracy"] == evaluated(classifier, images, labels)["accuracy"]


def test_rounding_is_found(classifier: nn.Module, images: Tensor, labels: Tensor) -> None:
    record = evaluated(Rounded(classifier), images, labels)
    assert record["unreliable"]
    assert "gradients" in failed(record)
    assert diagnosis(record, "gradients")["figures"]["sound"] == []
    assert "curve" in failed(record)
    for attack in record["attacks"]:
        assert attack["gradients"]["zero"] == 1


def test_nan_gradients_of_a_defence_are_found(
    classifier: nn.Module, purifier: type, spoiling: type, images: Tensor, labels: Tensor
) -> None:
    model = Carso(classifier, purifier(), samples=2, final_classifier=spoiling(classifier, "nan"))
    record = evaluated(model, images, labels, samples=1)
    assert {"gradients", "curve"} <= failed(record)
    assert "Every attack was handicapped" in diagnosis(record, "gradients")["verdict"]
    assert record["attacks"][0]["gradients"]["nan"] == 1
    assert record["attacks"][0]["gradient_steps"]["nan"] == [11] * 10


@pytest.mark.parametrize("how", ["negated", "random"])
def test_gradients_that_mislead_are_found(
    how: str, classifier: nn.Module, spoiling: type, images: Tensor, labels: Tensor
) -> None:
    """They are finite and not zero: only their use shows what they are worth."""
    record = evaluated(spoiling(classifier, how), images, labels)
    assert record["unreliable"]
    assert "gradients" not in failed(record)
    assert failed(record) & {"noise", "black box", "more effort", "curve"}
    healthy = evaluated(classifier, images, labels)
    assert record["accuracy"]["worst"]["value"] > healthy["accuracy"]["worst"]["value"]


def test_a_defence_whose_own_output_is_masked_is_found(
    make_classifier: Callable[..., nn.Module], purifier: type, images: Tensor
) -> None:
    """As published: attacking the log-odds of saturated probabilities finds nothing."""
    network = make_classifier(scale=40.0)
    with torch.no_grad():
        labels = network(images).argmax(dim=1)
    model = Carso(network, purifier(size=0.01), samples=4)
    plan = with_attacks(apgd("ce", 10, AttackedView(name="released")))
    record = evaluated(model, images, labels, suite=plan)
    (attack,) = record["attacks"]
    assert attack["own_output"]
    assert attack["gradients"]["nan"] > 0.5
    assert {"gradients", "masking"} <= failed(record)
    assert diagnosis(record, "masking")["figures"]["masked"]
    assert diagnosis(record, "precision")["figures"]["released_infinite"] > 0.5
    assert diagnosis(record, "precision")["ok"]  # the defence's own aggregation is exact


class Cancelling(nn.Module):
    """Logits far from zero: float32 has no digits left for what tells the classes apart."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return (self.network(x) + 1e9) - 1e9  # type: ignore[no-any-return]


def test_answers_that_float32_decides_are_found(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor
) -> None:
    rounding = Carso(classifier, purifier(), samples=2, final_classifier=Cancelling(classifier))
    found = precision(context_of(rounding, images, labels))
    assert found.ok is False
    assert found.figures["labels_changed"] > 0.3
    assert "decided by rounding" in found.verdict
    before = {name: value.dtype for name, value in rounding.state_dict().items()}
    assert set(before.values()) == {torch.float32}  # it is left as it was
    exact = precision(context_of(Carso(classifier, purifier(), samples=2), images, labels))
    assert exact.ok
    assert exact.figures["labels_changed"] == 0
    assert 0 < exact.figures["largest_error"] < 1e-3  # another arithmetic, not the same once more


class Single(nn.Module):
    """It turns images to float32 itself, so that there is no more precise reference."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.float())  # type: ignore[no-any-return]


def test_a_classifier_without_float64_is_not_judged_by_it(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor
) -> None:
    defence = Carso(classifier, purifier(), samples=2, final_classifier=Single(classifier))
    found = precision(context_of(defence, images, labels))
    assert found.ok is None
    assert "does not compute in float64" in found.verdict


def context_of(defence: Carso, images: Tensor, labels: Tensor) -> DiagnosticContext:
    """Where nothing has been attacked."""
    evaluation = Evaluation(
        model=AttackedDefence(defence), images=images, labels=labels, threat=Linf(eps=EPS),
        seed=0, draws=1, samples=1, classes=5,
    )  # fmt: skip
    plan = with_attacks()
    results = run_attacks(
        evaluation, plan, FinishedResults(None, {}), chunk=12, counted=lambda *_: lambda done: None
    )
    return DiagnosticContext(evaluation=evaluation, plan=plan, results=results, training_kl=None)


def test_an_attack_that_is_too_weak_is_found(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(classifier, images, labels, suite=with_attacks(margin(1, 1, AttackedView())))
    assert {"more effort", "masking"} & failed(record)


def test_later_attacks_look_at_the_images_that_stand_by_least(
    defence: Carso, images: Tensor, labels: Tensor
) -> None:
    context = context_of(defence, images, labels)
    final = context.results.final
    standing = {i for i in range(9) if final.right[i] > 0}
    chosen = context.weaker_half(first=9).tolist()
    assert 1 < len(chosen) == (len(standing) + 1) // 2
    leads = [float(final.margin[i]) for i in chosen]
    assert leads == sorted(leads)
    assert set(chosen) < standing
    assert all(max(leads) <= float(final.margin[i]) for i in standing - set(chosen))
    assert more_effort(context).figures["attacked"] == len(context.weaker_half(len(images)))


def test_the_curve_and_the_comparison_of_views_share_their_descent(
    defence: Carso, images: Tensor, labels: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(defence, images, labels)
    points = dict(curve(context).figures["points"])

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("made anew")

    monkeypatch.setattr(Evaluation, "run_attack", refused)
    assert context.after_descent(context.evaluation.threat) == points[EPS]


def test_the_shipped_defence_attacked_as_published_had_no_gradients() -> None:
    """More than nine of ten gradients of the released log-odds are NaN."""
    defence = carso.load("fashion")
    images, labels = data.load("fashion-embedded").test.balanced(10).batch(slice(None))
    evaluation = Evaluation(
        model=AttackedDefence(defence), images=images, labels=labels,
        threat=Linf(eps=defence.scenario.threat.eps), seed=0, draws=2, samples=1, classes=10,
    )  # fmt: skip
    plan = with_attacks(
        apgd("ce", 4, AttackedView(name="released")),
        replace(apgd("ce", 4, AttackedView(samples=1)), name="healthy"),
    )
    plan = replace(plan, independent=True)
    results = run_attacks(
        evaluation, plan, FinishedResults(None, {}), chunk=10, counted=lambda *_: lambda done: None
    )
    released, healthy = (health(results, number) for number in range(2))
    assert released["shares"]["nan"] > 0.9
    assert healthy["shares"] == {"nan": 0, "infinite": 0, "zero": 0}
    (reason, *_) = reasons_against(plan.attacks[0], released)
    assert reason.startswith("nearly all gradients were NaN")
    context = DiagnosticContext(evaluation=evaluation, plan=plan, results=results, training_kl=None)
    assert gradients(context).figures["sound"] == ["healthy"]
    alone = replace(plan, attacks=plan.attacks[:1])
    only = replace(results, outcomes=results.outcomes[:1], after=results.after[:1])
    spoiled = DiagnosticContext(evaluation=evaluation, plan=alone, results=only, training_kl=None)
    assert gradients(spoiled).ok is False


# The black box.


def test_a_black_box_that_comes_first_beats_nobody(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """What it breaks before the others had their turn says nothing of their gradients."""
    attacks = ("square", "margin@mean-logits")
    record = carso.evaluate(classifier, images, labels, eps=0.15, suite="tiny", attacks=attacks)
    assert record["attacks"][0]["broken"] > 2
    assert diagnosis(record, "black box")["ok"] is not False
    assert not record["unreliable"]


def test_a_black_box_among_independent_attacks_beats_nobody(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = carso.evaluate(classifier, images, labels, eps=0.15, suite="tiny-independent")
    assert record["attacks"][2]["broken"] > 2
    assert diagnosis(record, "black box")["ok"] is not False


def test_the_black_box_of_the_suite_is_the_one_that_is_judged(
    classifier: nn.Module, spoiling: type, images: Tensor, labels: Tensor
) -> None:
    record = carso.evaluate(spoiling(classifier, "negated"), images, labels, eps=0.15, suite="tiny")
    figures = diagnosis(record, "black box")["figures"]
    assert figures["broken"] == record["attacks"][2]["broken"] > 2
    assert figures["tried"] == record["attacks"][2]["attacked"]
    assert "black box" in failed(record)


def test_so_it_is_where_attacks_come_after_it(
    classifier: nn.Module, spoiling: type, images: Tensor, labels: Tensor
) -> None:
    attacks = ("margin@mean-logits", "square", "apgd-ce@mean-logits")
    spoiled = spoiling(classifier, "negated")
    record = carso.evaluate(spoiled, images, labels, eps=0.15, suite="tiny", attacks=attacks)
    figures = diagnosis(record, "black box")["figures"]
    assert figures["broken"] == record["attacks"][1]["broken"] > 2
    assert figures["tried"] == record["attacks"][1]["attacked"]
    assert "black box" in failed(record)


# Pieces.


def planned(through: AttackedView | None = None) -> PlannedAttack:
    attack = APGD(loss="ce")
    return PlannedAttack(name="attack", what="", attack=attack, through=through or AttackedView())


def found(
    nan: float = 0, infinite: float = 0, zero: float = 0, outputs: float = 0
) -> dict[str, Any]:
    return {
        "shares": {"nan": nan, "infinite": infinite, "zero": zero},
        "outputs_not_finite": outputs,
        "passes": {"forward": 100, "backward": 100},
    }


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (found(nan=0.005, infinite=0.005), []),
        (found(nan=0.006, infinite=0.006), ["NaN or infinite (1.2%)"]),
        (found(nan=0.97), ["nearly all gradients were NaN or infinite (97.0%)"]),
        (found(zero=0.09), []),
        (found(zero=0.4), ["exactly zero (40.0%)"]),
        (found(outputs=0.02), ["2.0% of the outputs were not finite"]),
        (found(nan=0.5, zero=0.5), ["NaN or infinite (50.0%)", "exactly zero (50.0%)"]),
    ],
)
def test_reasons_against_an_attack(measured: dict[str, Any], words: list[str]) -> None:
    reasons = reasons_against(planned(), measured)
    assert len(reasons) == len(words)
    for reason, part in zip(reasons, words, strict=True):
        assert part in reason


def test_an_attack_without_gradients_has_none_to_lose() -> None:
    measured = found(nan=1.0)
    measured["passes"]["backward"] = 0
    assert reasons_against(planned(), measured) == []
    attacks = suite("adaptive", seed=0, samples=1).attacks
    square = next(attack for attack in attacks if attack.black_box)
    assert reasons_against(square, found(zero=1.0)) == []


def test_many_steps_are_added_up_in_equal_spans() -> None:
    counts = torch.arange(250)
    spans = coarse(counts)
    assert len(spans) <= 101
    assert sum(spans) == int(counts.sum())
    assert coarse(torch.arange(101)) == list(range(101))
    assert coarse(torch.zeros(0, dtype=torch.int64)) == []


def test_a_curve_is_cut_where_nothing_can_hold(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(classifier, images, labels, eps=0.5)
    points = diagnosis(record, "curve")["figures"]["points"]
    assert [radius for radius, _ in points] == [0, 0.5, 0.95]
