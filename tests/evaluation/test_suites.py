"""Suites: which attacks, under which names, for defences and for plain classifiers."""

import json
from pathlib import Path

import pytest
from torch import nn

from carso.attacks.apgd import APGD
from carso.attacks.autoattack import AutoAttack
from carso.attacks.fab import FAB
from carso.attacks.margin import Margin
from carso.attacks.pgd import PGD
from carso.attacks.refine import Refine
from carso.attacks.square import Square
from carso.errors import CarsoError
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.inner_classifier import InnerClassifier
from carso.evaluation.planned_attacks import SINGLE, Suite
from carso.evaluation.suites import (
    SUITES,
    by_queries,
    for_classes,
    for_classifier,
    for_wrapper,
    lacking,
    suite,
)
from carso.threats.linf import Linf

ROOT = Path(__file__).parents[2]
SHIPPED = ("quick", "paper", "adaptive", "full", "standard")


def found(name: str, *attacks: str, samples: int = 4, seed: int = 0) -> Suite:
    return suite(name, seed=seed, samples=samples, attacks=attacks)


def names(plan: Suite) -> list[str]:
    return [planned.name for planned in plan.attacks]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_suite_names_its_attacks_once_and_explains_them(name: str) -> None:
    """A name is also that of the finished piece on disk, so that two must not share it."""
    for samples in (1, 2, 64):
        plan = found(name, samples=samples)
        assert plan.name == name
        assert len(set(names(plan))) == len(plan.attacks) > 0
        assert all(planned.what for planned in plan.attacks)
        assert all(set(planned.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789@-")
                   for planned in plan.attacks)  # fmt: skip


def test_the_paper_runs_what_the_paper_ran() -> None:
    plan = found("paper", seed=3)
    assert plan.independent
    assert names(plan) == ["transfer", "randaa-released", "randaa", "pgd-eot"]
    transfer, released, own, pgd = plan.attacks
    assert transfer.attack == AutoAttack(version="standard", seed=3)
    assert transfer.through is None
    assert released.attack == own.attack == AutoAttack(version="rand", seed=3)
    assert (released.through, own.through) == (
        AttackedView(name="released"),
        AttackedView(name="log-prob"),
    )
    assert pgd.attack == PGD(steps=200, step_size=0.007, random_start=False, eot=20)


def test_only_the_paper_attacks_broken_images_again() -> None:
    assert [name for name in SHIPPED if found(name).independent] == ["paper"]


def test_standard_is_autoattack_alone() -> None:
    (planned,) = found("standard", seed=5).attacks
    assert planned.attack == AutoAttack(version="standard", seed=5)


@pytest.mark.parametrize("name", ["adaptive", "full"])
def test_an_adaptive_attacker_tries_every_loss_and_view_and_the_black_box(name: str) -> None:
    plan = found(name)
    kinds = {type(planned.attack) for planned in plan.attacks}
    assert {Margin, APGD, FAB, Square} <= kinds
    losses = {p.attack.loss for p in plan.attacks if isinstance(p.attack, APGD)}
    assert losses == {"ce", "dlr", "dlr-targeted"}
    views = {p.through.name for p in plan.attacks if p.through is not None}
    assert {"mean-logits", "logsumexp", "score", "log-prob"} <= views
    fixed = [p.name for p in plan.attacks if p.through is not None and p.through.fixed]
    assert len(fixed) >= 2
    assert any(p.through is None for p in plan.attacks), "no examples made for the classifier"


def test_a_good_gradient_has_as_many_candidates_as_are_needed() -> None:
    for name in ("quick", "adaptive"):
        for planned in found(name, samples=16).attacks:
            if not planned.black_box and planned.name != "margin@classifier":
                assert planned.through is not None
                assert planned.through.samples == 16


def test_the_last_pass_averages_more_than_the_others() -> None:
    for samples, many in ((1, 2), (2, 4), (8, 16), (64, 64)):
        plan = found("adaptive", samples=samples)
        (last,) = [p for p in plan.attacks if p.name[:6] == "refine" and not p.inside]
        assert last.through is not None
        assert last.through.samples == many


def test_of_one_candidate_the_other_views_would_be_its_logits() -> None:
    others = [
        planned.through.samples
        for planned in found("adaptive", samples=1).attacks
        if planned.through is not None and planned.through.name in ("logsumexp", "score")
    ]
    assert set(others) == {2}


def test_the_black_box_asks_the_defence_itself() -> None:
    for name in ("adaptive", "full"):
        asked = [p for p in found(name).attacks if p.black_box]
        assert asked
        for planned in asked:
            assert isinstance(planned.attack, Square)
            assert planned.through == AttackedView(name="log-prob")


def test_the_last_passes_are_the_longest_and_on_the_weakest() -> None:
    attacks = for_wrapper(found("adaptive"), None).attacks
    first, last = attacks[:5], attacks[-3:]
    assert all(planned.weakest == 1 for planned in first)
    assert all(planned.weakest < 0.2 for planned in last)
    assert {type(planned.attack) for planned in last} == {APGD, Refine, Square}
    queries = [p.attack.queries for p in attacks if isinstance(p.attack, Square)]
    assert queries == sorted(queries)
    steps = [p.attack.steps for p in attacks if isinstance(p.attack, APGD)]
    assert max(steps) == steps[-1] == 100
    widths = [planned.weakest for planned in attacks if not planned.black_box]
    assert widths == sorted(widths, reverse=True)


def test_a_classifier_inside_is_followed_last_and_only_where_there_is_one(
    classifier: nn.Module,
) -> None:
    plan = found("adaptive")
    own = for_wrapper(plan, None).attacks
    assert not any(planned.inside for planned in own)
    assert plan.attacks[: len(own)] == own
    assert for_wrapper(plan, InnerClassifier("network", classifier)) == plan
    assert all(planned.inside for planned in plan.attacks[len(own) :])
    asked = by_queries(plan, Linf(eps=0.1), picked=False)
    assert [planned.inside for planned in asked.attacks] == [False, False, True, True]


def test_an_attack_on_the_own_output_is_marked() -> None:
    marked = [p.name for p in found("paper").attacks if p.own]
    assert marked == ["randaa-released", "randaa", "pgd-eot"]
    assert not any(p.own for p in found("quick").attacks)


def test_attacks_are_chosen_by_name_in_the_order_asked_for() -> None:
    plan = found("quick", "apgd-ce@mean-logits", "pgd-eot", "margin@mean-logits")
    assert names(plan) == ["apgd-ce@mean-logits", "pgd-eot", "margin@mean-logits"]
    assert plan.effort == found("quick").effort
    assert plan.name == "apgd-ce@mean-logits, pgd-eot, margin@mean-logits"


@pytest.mark.parametrize("name", SINGLE)
def test_an_attack_outside_of_the_suite_may_be_chosen(name: str) -> None:
    assert names(found("quick", name)) == [name]


def test_an_attack_named_twice_runs_once() -> None:
    """Their finished pieces would have the same name."""
    assert names(found("quick", "square", "margin@mean-logits", "square")) == [
        "square",
        "margin@mean-logits",
    ]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(CarsoError, match=r"there is no suite 'fast'; there are quick, paper, ad"):
        found("fast")
    with pytest.raises(CarsoError, match=r"has no attack 'pgd'; there are transfer, .*margin@me"):
        found("quick", "margin@mean-logits", "pgd")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_plain_classifier_is_attacked_once_by_each_attack(name: str) -> None:
    plan = found(name)
    left = for_classifier(plan)
    attacks = [repr(planned.attack) for planned in left.attacks]
    assert len(set(attacks)) == len(attacks)
    assert set(attacks) == {repr(planned.attack) for planned in plan.attacks}
    assert (left.name, left.effort, left.independent) == (plan.name, plan.effort, plan.independent)


def test_views_are_what_a_plain_classifier_has_no_more_than_one_of() -> None:
    assert len(for_classifier(found("adaptive")).attacks) < len(found("adaptive").attacks)
    assert names(for_classifier(found("quick"))) == names(found("quick"))
    assert names(for_classifier(found("paper"))) == ["transfer", "randaa-released", "pgd-eot"]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize(
    ("classes", "losses"),
    [(2, {"ce"}), (3, {"ce", "dlr"}), (4, {"ce", "dlr", "dlr-targeted"})],
)
def test_dlr_losses_need_the_classes_that_they_compare(
    name: str, classes: int, losses: set[str]
) -> None:
    plan = found(name)
    left = for_classes(plan, classes)
    kept = [p.attack.loss for p in left.attacks if isinstance(p.attack, APGD)]
    assert set(kept) <= losses
    assert [p for p in plan.attacks if not isinstance(p.attack, APGD)] == [
        p for p in left.attacks if not isinstance(p.attack, APGD)
    ]
    assert for_classes(plan, 10) == plan


def test_through_says_what_it_is() -> None:
    assert str(AttackedView()) == "mean-logits"
    whole = AttackedView(name="score", draws=20, samples=2, fixed=True)
    assert str(whole) == "score, 20 draws, 2 candidates, noise fixed"


def test_the_known_suites() -> None:
    assert set(SHIPPED) <= set(SUITES)


@pytest.mark.parametrize("kind", ["defence", "classifier"])
def test_what_a_record_lacks_of_its_suite_as_it_is_now(kind: str) -> None:
    """The committed records of the suite as it is now lack nothing; picked attacks are no suite."""
    name = {"defence": "fashion-hardened-adaptive", "classifier": "fashion-bare-adaptive"}[kind]
    made = json.loads((ROOT / "docs/results" / f"{name}.json").read_text(encoding="utf-8"))
    assert made["subject"]["kind"] == kind
    assert lacking(made) == []
    gone = made["attacks"].pop()["name"]
    assert lacking(made) == [gone]
    assert lacking({**made, "suite": {"name": "margin@mean-logits"}}) == []
