"""Evaluations in L2, by threats and attacks of a user's own, and records that never mix norms."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyautoattack
import pytest
import torch
from torch import Generator, Tensor, nn

import carso
from carso import data
from carso.attacks.attack import AttackFacts, Model, warn
from carso.attacks.autoattack import AutoAttack
from carso.attacks.saved import read_examples
from carso.defence.defence import Carso
from carso.distributed.processes import ALONE
from carso.errors import CarsoError
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import Effort, PlannedAttack, Suite, standard
from carso.evaluation.preparation import planned, prepared
from carso.evaluation.suites import suite
from carso.report.record_tables import difference, summary
from carso.threats.l2 import L2
from carso.threats.linf import Linf
from carso.threats.norms import threat_of
from carso.threats.threat import Threat


def evaluated(model: nn.Module, images: Tensor, labels: Tensor, **settings: Any) -> dict[str, Any]:
    return carso.evaluate(model, images, labels, **{"suite": "tiny", **settings})


def test_a_defence_is_evaluated_in_l2(
    defence: Carso, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "worst.safetensors"
    record = evaluated(defence, images, labels, norm="L2", eps=0.5, save_examples=path)
    assert record["threat"] == {"norm": "L2", "eps": 0.5}
    assert "within eps = 0.5 in L2" in record["verdict"]
    kept = read_examples(path)
    sizes = (kept.examples - images).flatten(1).norm(dim=1)
    assert (kept.norm, kept.eps) == ("L2", 0.5)
    assert record["images"]["worst_size"] == pytest.approx(sizes.tolist(), abs=1e-5)
    assert 0.4 < sizes.max() <= 0.5 + 1e-5
    curve = next(d for d in record["diagnostics"] if d["name"] == "curve")
    radii = [eps for eps, _ in curve["figures"]["points"]]
    assert radii == [0.0, 0.5, 2.0, 7.6]  # 0.95 of the way from black to white: sqrt(64) = 8
    assert curve["ok"]
    with pytest.raises(CarsoError, match="made in L2, and Linf is evaluated"):
        carso.evaluate(defence, images, labels, eps=0.5, examples=path)


def test_an_object_is_the_same_as_its_norm_and_eps(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    first = evaluated(classifier, images, labels, threat=L2(eps=0.5))
    second = evaluated(classifier, images, labels, norm="L2", eps=0.5)
    assert first["images"] == second["images"]
    with pytest.raises(CarsoError, match="eps is missing"):
        evaluated(classifier, images, labels)


def test_a_record_of_one_norm_does_not_pass_for_another(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    flat = evaluated(classifier, images, labels, eps=0.1, out=path)
    with pytest.raises(CarsoError, match="an evaluation with other norm; write this one elsewhere"):
        evaluated(classifier, images, labels, norm="L2", eps=0.1, out=path)
    wide = evaluated(classifier, images, labels, norm="L2", eps=0.1)
    assert difference(wide, flat) == "other norm"
    header, rows = summary([flat, wide])
    assert [row[header.index("eps")] for row in rows] == ["0.1 (Linf)", "0.1 (L2)"]


def test_what_was_begun_in_one_norm_does_not_go_on_in_another(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    calls = 0

    def stopping(what: str, total: int) -> Any:
        def advance(done: int) -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise KeyboardInterrupt

        return advance

    with pytest.raises(KeyboardInterrupt):
        evaluated(classifier, images, labels, eps=0.1, out=path, counted=stopping)
    with pytest.raises(CarsoError, match="unfinished evaluation that differs in threat"):
        evaluated(classifier, images, labels, norm="L2", eps=0.1, out=path)
    evaluated(classifier, images, labels, eps=0.1, out=path)


def test_the_shipped_classifier_in_l2_is_what_pyautoattack_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published = pyautoattack.AutoAttack._set_version

    def shorter(ensemble: Any, version: str) -> None:
        published(ensemble, version)
        ensemble.square.n_queries, ensemble.fab.n_iter, ensemble.apgd.n_iter = 20, 2, 10
        ensemble.apgd_targeted.n_iter = 3

    monkeypatch.setattr(pyautoattack.AutoAttack, "_set_version", shorter)
    classifier = carso.load("fashion").classifier
    images, labels = data.load("fashion-embedded").test.balanced(6).batch(slice(None))
    with torch.random.fork_rng():
        direct = pyautoattack.AutoAttack(classifier, norm="L2", eps=1.0, version="standard", seed=3)
        _, answers = direct.run_standard_evaluation(images, labels, batch_size=len(images))
    little = Effort(images=1, steps=1, queries=1, eps=(0.0, 1.0))
    quick_look = Suite(name="standard", attacks=(standard(3, 1),), effort=little)
    record = carso.evaluate(
        classifier, images, labels, norm="L2", eps=1.0, suite=quick_look, seed=3
    )
    assert record["images"]["worst_right"] == (answers == labels).int().tolist()
    assert 0 < sum(record["images"]["worst_right"]) < sum(record["images"]["clean_right"])


@dataclass(frozen=True, kw_only=True)
class Own:
    """An attack that needs many classes, and has something to say."""

    size: float = 1.0
    facts = AttackFacts(classes=4, period=2)

    def identity(self) -> dict[str, Any]:
        return {"attack": "Own", "size": self.size}

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor:
        warn("of my own")
        start = threat.random_start(images, generator)
        for _ in range(2):
            z = start.detach().requires_grad_(True)
            with torch.enable_grad():
                loss = model(z).gather(1, labels.unsqueeze(1)).sum()
            (gradient,) = torch.autograd.grad(loss, z)
            start = threat.project(z.detach() - threat.ascend(gradient, self.size), images)
        return start


def with_own(attack: Any) -> Suite:
    plan = suite("tiny", seed=0, samples=1)
    mine = PlannedAttack(name="own", what="my own", attack=attack, through=AttackedView())
    return replace(plan, name="own", attacks=(mine, *plan.attacks))


@pytest.mark.parametrize("threat", [Linf(eps=0.1), L2(eps=0.5)])
def test_an_attack_of_ones_own_is_one_of_a_suite(
    threat: Threat, classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(classifier, images, labels, threat=threat, suite=with_own(Own()))
    mine = record["attacks"][0]
    assert (mine["name"], mine["settings"]) == ("own", "Own(size=1.0)")
    assert mine["library_warnings"] == ["of my own"]
    assert mine["broken"] > 0
    assert mine["gradient_steps"]["images"] == [mine["attacked"]] * 2


def test_ones_own_attack_is_told_apart_by_what_it_says_of_itself(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"

    def stopping(what: str, total: int) -> Any:
        def advance(done: int) -> None:
            raise KeyboardInterrupt

        return advance

    with pytest.raises(KeyboardInterrupt):
        evaluated(
            classifier, images, labels, eps=0.1, suite=with_own(Own()), out=path, counted=stopping
        )
    with pytest.raises(CarsoError, match="differs in attacks"):
        evaluated(classifier, images, labels, eps=0.1, suite=with_own(Own(size=0.5)), out=path)
    evaluated(classifier, images, labels, eps=0.1, suite=with_own(Own(size=1.0)), out=path)


def test_what_an_attack_needs_is_asked_of_it(
    make_classifier: Any, images: Tensor, labels: Tensor
) -> None:
    small = make_classifier(classes=3)
    record = evaluated(small, images, labels % 3, eps=0.1, suite=with_own(Own()))
    assert "own" not in [attack["name"] for attack in record["attacks"]]


@dataclass(frozen=True, kw_only=True)
class Renamed(Own):
    facts = AttackFacts(norms=("Linf",))


def test_an_attack_that_was_picked_and_cannot_run_says_so(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    with pytest.raises(CarsoError, match="Own runs in Linf only, not in 'L2': leave it out"):
        evaluated(classifier, images, labels, norm="L2", eps=0.5, suite=with_own(Renamed()))


class Noisy(nn.Module):
    """`network` of an image with noise on it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images + 0.3 * torch.randn_like(images))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.02), ("L2", 0.1)])
def test_a_noisy_module_is_attacked_by_the_mean_of_measured_draws_in_any_norm(
    norm: str, eps: float, classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = carso.evaluate(
        Noisy(classifier), images[:4], labels[:4], eps=eps, norm=norm, suite="tiny"
    )
    suite = record["suite"]
    assert record["subject"]["stochastic"] is True
    assert 0 < suite["gradient_cosine"] < 1
    assert suite["samples"] > 1
    assert suite["draws"] == 5
    assert len(record["tries"]["accuracy"]) == 20
    for attack in record["attacks"]:
        if not attack["black_box"]:
            assert f"{suite['samples']} candidates" in attack["through"]


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("name", ["quick", "adaptive", "full", "standard"])
def test_every_suite_averages_for_a_noisy_module(
    norm: str, name: str, classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    evaluation, _ = prepared(
        Noisy(classifier), images, labels, threat=threat_of(norm=norm, eps=0.1), name=None, named=0,
        seed=0, draws=5, samples=16, device=torch.device("cpu"), processes=ALONE,
    )  # fmt: skip
    attacks = planned(evaluation, name, (), None).attacks
    following = [p for p in attacks if not p.black_box and p.through is not None]
    assert following
    for one in following:
        assert one.through is not None
        draws = one.attack.facts.eot * one.through.draws * (one.through.samples or 1)
        assert draws >= 16, one.name
    if name == "standard":
        assert [p.attack for p in attacks] == [AutoAttack(version="rand")]
