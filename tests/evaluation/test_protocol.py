"""Who wins: the worst example, fresh draws for every verdict, enough candidates in a step."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

import carso
from carso.attacks.attack import AttackFacts, verified
from carso.attacks.averaging import GOOD_COSINE
from carso.attacks.margin import Margin
from carso.defence.defence import Carso
from carso.evaluation.assemble import attack_table
from carso.evaluation.attacked_model import (
    AttackedClassifier,
    AttackedDefence,
    AttackedModel,
    AttackedView,
    Verdict,
    under_test,
    verdict,
)
from carso.evaluation.eot import candidates_needed
from carso.evaluation.evaluation import Evaluation, Outcome, WorstExamples
from carso.evaluation.planned_attacks import PlannedAttack, Suite
from carso.evaluation.protocol import chunks_of, run_attacks
from carso.evaluation.resume import FinishedResults, as_tensor
from carso.evaluation.suites import suite
from carso.threats.linf import Linf


def evaluation_of(
    model: AttackedModel, images: Tensor, labels: Tensor, **settings: Any
) -> Evaluation:
    chosen = {
        "threat": Linf(eps=0.02),
        "seed": 0,
        "draws": 5,
        "samples": 1,
        "classes": 5,
        **settings,
    }
    return Evaluation(model=model, images=images, labels=labels, **chosen)


def silent(what: str, total: int) -> Callable[[int], None]:
    return lambda done: None


def tiny_plan(**settings: Any) -> Suite:
    return suite("tiny", seed=0, samples=1, **settings)


# The worst example.


def outcome(index: list[int], right: list[int], margin: list[float], pixel: float) -> Outcome:
    return Outcome(
        chunk=torch.tensor(0),
        index=torch.tensor(index),
        examples=torch.full((len(index), 1, 2, 2), pixel),
        right=torch.tensor(right),
        confirmed=torch.tensor(right) == 0,
        margin=torch.tensor(margin),
        gradients=torch.zeros(4, 0, dtype=torch.int64),
        counts=torch.zeros(4, dtype=torch.int64),
        seconds=torch.tensor(0.0),
        library_warnings=as_tensor([]),
        fooled=torch.zeros(len(index), dtype=torch.bool),
    )


def test_fewer_draws_right_are_worse_then_the_smaller_margin() -> None:
    clean = Verdict(right=torch.tensor([5, 5, 5, 0]), margin=torch.tensor([3.0, 3, 3, -1]))
    worst = WorstExamples.of(torch.zeros(4, 1, 2, 2), clean, clean.right == 0)
    assert worst.standing.tolist() == [0, 1, 2]
    worst.update(outcome([0, 1, 2], [5, 3, 5], [2.0, 9.0, 4.0], 0.1), "first")
    worst.update(outcome([0, 1, 2], [5, 4, 0], [2.5, -9.0, 1.0], 0.2), "second")
    worst.update(outcome([1], [3], [math.nan], 0.3), "third")
    assert worst.attack == ["first", "first", "second", ""]
    assert worst.right.tolist() == [5, 3, 0, 0]
    torch.testing.assert_close(worst.examples[:, 0, 0, 0], torch.tensor([0.1, 0.1, 0.2, 0.0]))
    assert worst.standing.tolist() == [0, 1]


def test_the_weakest_are_those_that_stand_by_least() -> None:
    images = torch.zeros(6, 1, 2, 2)
    clean = Verdict(right=torch.tensor([5, 5, 0, 5, 5, 5]), margin=torch.tensor(
        [3.0, 0.5, -1.0, 2.0, math.nan, 0.1]))  # fmt: skip
    worst = WorstExamples.of(images, clean, clean.right == 0)
    assert worst.weakest(1.0).tolist() == worst.standing.tolist() == [0, 1, 3, 4, 5]
    assert worst.weakest(0.4).tolist() == [4, 5]
    assert worst.weakest(0.5).tolist() == [1, 4, 5]  # rounded up
    assert worst.weakest(0.01).tolist() == [4]


def test_the_clean_images_are_not_written_to() -> None:
    images = torch.zeros(1, 1, 2, 2)
    clean = Verdict(right=torch.tensor([5]), margin=torch.tensor([1.0]))
    worst = WorstExamples.of(images, clean, clean.right == 0)
    worst.update(outcome([0], [0], [-1.0], 0.5), "attack")
    assert images.sum() == 0
    assert (clean.right.tolist(), clean.margin.tolist()) == ([5], [1.0])


def test_chunks_cover_every_image_once() -> None:
    for count in (1, 9, 10, 11):
        covered = [i for span in chunks_of(count, 5) for i in range(span.start, span.stop)]
        assert covered == list(range(count))


# Verdicts.


def test_a_verdict_counts_draws_and_averages_margins(
    defence: Carso, images: Tensor, labels: Tensor
) -> None:
    model = AttackedDefence(defence)
    found = verdict(model, images, labels, draws=7, seed=3, path=("here",))
    again = verdict(model, images, labels, draws=7, seed=3, path=("here",))
    assert torch.equal(found.right, again.right)
    assert torch.equal(found.margin, again.margin)
    assert found.right.dtype == torch.int64
    assert (found.right <= 7).all()
    assert found.right[3] == 0  # the one that is labelled otherwise
    other = verdict(model, images, labels, draws=7, seed=3, path=("there",))
    assert not torch.equal(found.margin, other.margin)
    both = verdict(model, images, labels, draws=1, seed=3, path=("here",))
    assert not torch.equal(found.margin, both.margin)  # its draws differ from one another


class Coin(nn.Module):
    """Right one time in four on images of zeros, never on others."""

    def forward(self, images: Tensor) -> Tensor:
        right = (torch.rand(len(images)) < 0.25) & (images.flatten(1).amax(dim=1) == 0)
        return torch.stack([right.double(), torch.full((len(images),), 0.5)], dim=1)


def test_an_image_that_is_right_now_and_then_does_not_count_as_broken() -> None:
    images = torch.zeros(200, 1, 2, 2)
    images[100:] = 1
    model = AttackedClassifier(Coin(), stochastic=True)
    evaluation = evaluation_of(model, images, torch.zeros(200, dtype=torch.int64))
    judged = evaluation.judge(images, evaluation.labels, "here")
    once = judged.right == 0
    found = evaluation.confirm(judged, images, evaluation.labels, "here")
    assert once[100:].all()
    assert found[100:].all()
    assert once[:100].sum() > 10  # about 24 of 100
    assert found[:100].sum() < 4
    assert (found <= once).all()


def test_a_clean_image_that_is_right_now_and_then_is_attacked() -> None:
    """Though by chance no draw of the first verdict was right."""
    images = torch.zeros(60, 1, 2, 2)
    images[50:] = 1
    model = AttackedClassifier(Coin(), stochastic=True)
    evaluation = evaluation_of(model, images, torch.zeros(60, dtype=torch.int64), classes=2)
    plan = tiny_plan(attacks=("square",))
    results = run_attacks(evaluation, plan, FinishedResults(None, {}), chunk=60, counted=silent)
    (found,) = results.outcomes[0]
    unlucky = (results.clean.right == 0).nonzero().flatten()
    again = evaluation.confirm(results.clean, images, evaluation.labels, "clean", 0)
    assert found.index.tolist() == [i for i in range(60) if not again[i]]
    assert set(unlucky[unlucky < 50].tolist()) & set(found.index.tolist())
    assert not set(range(50, 60)) & set(found.index.tolist())
    table = attack_table(evaluation, plan, results, 0)
    assert table["broken"] == found.confirmed.sum() < (found.right == 0).sum()


def test_an_image_that_may_be_right_is_attacked_on() -> None:
    clean = Verdict(right=torch.tensor([5, 5, 0]), margin=torch.tensor([3.0, 3, -1]))
    worst = WorstExamples.of(torch.zeros(3, 1, 2, 2), clean, clean.right == 0)
    unsure = outcome([0, 1], [0, 0], [-2.0, -2.0], 0.1)
    unsure.confirmed[1] = False
    worst.update(unsure, "first")
    assert worst.standing.tolist() == [1]
    worst.update(outcome([1], [0], [-1.0], 0.2), "second")  # surely wrong goes before the margin
    assert worst.attack == ["first", "second", ""]
    assert worst.standing.tolist() == []


def test_an_answer_is_the_defences_own_and_its_scale_that_of_logits(
    defence: Carso, images: Tensor
) -> None:
    model = AttackedDefence(defence)
    defence.seed(1)
    labels, scores = model.answers(images)
    defence.seed(1)
    assert torch.equal(labels, defence.predict(images))
    defence.seed(1)
    torch.testing.assert_close(scores, defence.view("mean-logits")(images).detach())


def test_the_global_generator_is_left_alone(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    model, state = AttackedClassifier(classifier), torch.get_rng_state()
    verdict(model, images, labels, draws=2, seed=0, path=())
    assert torch.equal(torch.get_rng_state(), state)
    evaluation_of(model, images, labels).run_attack(
        Margin(steps=2), AttackedView(), images, labels, "here"
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_an_unknown_view_is_refused(defence: Carso) -> None:
    with pytest.raises(carso.CarsoError, match="there is no view 'softmax'"):
        under_test(defence).view(AttackedView(name="softmax"))


class Listening:
    """The small purifier, which writes down the first of the noise of every call."""

    layers = ("see",)
    image_shape = None

    def __init__(self, purifier: Any) -> None:
        self.purifier = purifier
        self.heard: dict[str, list[float]] = defaultdict(list)
        self.occasion = "elsewhere"

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        copy = Generator().manual_seed(0)
        copy.set_state(generator.get_state())
        self.heard[self.occasion].append(float(torch.rand(1, generator=copy)))
        return self.purifier.sample(activations, samples, generator)  # type: ignore[no-any-return]


def test_no_verdict_sees_noise_that_an_attack_or_another_verdict_saw(
    monkeypatch: pytest.MonkeyPatch,
    classifier: nn.Module,
    purifier: type,
    images: Tensor,
    labels: Tensor,
) -> None:
    listening = Listening(purifier())
    defence = Carso(classifier, listening, samples=4)

    @contextmanager
    def occasion(name: str) -> Iterator[None]:
        listening.occasion = name
        yield
        listening.occasion = "elsewhere"

    def watched(kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(evaluation: Evaluation, *given: Any, **named: Any) -> Any:
            path = [str(value) for value in given if isinstance(value, str | int)]
            with occasion(" ".join([kind, *path])):
                return method(evaluation, *given, **named)

        return call

    for kind in ("judge", "run_attack"):
        monkeypatch.setattr(Evaluation, kind, watched(kind, getattr(Evaluation, kind)))
    carso.evaluate(defence, images, labels, eps=0.02, suite="tiny", chunk=6)
    verdicts = {k: v for k, v in listening.heard.items() if k.startswith("judge ")}
    attacks = {k: v for k, v in listening.heard.items() if k.startswith("run_attack ")}
    assert {"judge clean 0", "judge clean 1", "judge final 0", "judge square 1"} <= set(verdicts)
    assert {"run_attack margin@mean-logits 0", "run_attack square 1"} <= set(attacks)
    for occasion, draws in verdicts.items():
        assert len(draws) == (20 if occasion.startswith("judge tries") else 5)
    drawn = [value for draws in verdicts.values() for value in draws]
    assert len(set(drawn)) == len(drawn)  # every draw of every verdict is its own
    seen = {value for draws in attacks.values() for value in draws}
    assert not seen & set(drawn)


def test_the_worst_case_is_judged_on_draws_that_chose_nothing(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor
) -> None:
    """A defence that guesses: what was chosen for bad luck is no worse on fresh draws."""
    guessing = Carso(classifier, purifier(size=1.0), samples=1)
    record = carso.evaluate(
        guessing, images.repeat(4, 1, 1, 1), labels.repeat(4), eps=0.001, suite="tiny"
    )
    chosen = record["attacks"][-1]["accuracy_after"]["value"]
    assert record["accuracy"]["worst"]["value"] > chosen + 0.05
    clean = record["accuracy"]["clean"]["value"]
    assert abs(record["accuracy"]["worst"]["value"] - clean) < 0.15


# The attacks.


def standing_before(record: dict[str, Any], number: int) -> list[bool]:
    """Whether each image stood when attack `number` came."""
    found = []
    for place, clean in enumerate(record["images"]["clean_right"]):
        earlier = [attack["right"][place] for attack in record["attacks"][:number]]
        found.append(clean > 0 and 0 not in earlier)
    return found


def test_broken_images_are_not_attacked_again(
    defence: Carso, images: Tensor, labels: Tensor
) -> None:
    record = carso.evaluate(defence, images, labels, eps=0.05, suite="tiny", chunk=5)
    assert 0 < record["attacks"][0]["broken"] < len(images)
    for number, attack in enumerate(record["attacks"]):
        assert [value is not None for value in attack["right"]] == standing_before(record, number)


def test_an_independent_suite_attacks_every_image_that_is_right(
    defence: Carso, images: Tensor, labels: Tensor
) -> None:
    record = carso.evaluate(defence, images, labels, eps=0.05, suite="tiny-independent")
    right = [value > 0 for value in record["images"]["clean_right"]]
    for attack in record["attacks"]:
        assert [value is not None for value in attack["right"]] == right
        counts = [value or 0 for value in attack["right"]]
        assert attack["accuracy_alone"]["value"] == pytest.approx(sum(counts) / 5 / len(images))
    assert record["suite"]["independent"]


def test_where_all_images_are_wrong_there_is_nothing_to_attack(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    with torch.no_grad():
        wrong = (classifier(images).argmax(dim=1) + 1) % 5
    record = carso.evaluate(classifier, images, wrong, eps=0.02, suite="tiny")
    assert record["accuracy"]["clean"]["value"] == record["accuracy"]["worst"]["value"] == 0
    assert all(attack["attacked"] == 0 for attack in record["attacks"])
    assert set(record["images"]["worst_attack"]) == {""}


def test_one_image_is_enough(defence: Carso, images: Tensor, labels: Tensor) -> None:
    record = carso.evaluate(defence, images[:1], labels[:1], eps=0.05, suite="tiny")
    assert len(record["images"]["worst_right"]) == 1


def test_what_an_attack_returns_is_not_trusted(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    class Cheating:
        facts = AttackFacts()

        def identity(self) -> dict[str, Any]:
            return {"attack": "Cheating"}

        def __call__(self, model: nn.Module, x: Tensor, y: Tensor, **named: Any) -> Tensor:
            return (x + 0.5).clamp(0, 1)

    planned = PlannedAttack(name="cheat", what="cheats", attack=Cheating(), through=AttackedView())
    plan = Suite(name="cheats", attacks=(planned,), effort=tiny_plan().effort)
    evaluation = evaluation_of(AttackedClassifier(classifier), images, labels, draws=1)
    with pytest.raises(RuntimeError, match="left its threat model on 11 of 11 images"):
        run_attacks(evaluation, plan, FinishedResults(None, {}), chunk=100, counted=silent)


def test_progress_is_counted_to_its_end(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    totals: dict[str, list[int]] = {}

    def counted(what: str, total: int) -> Callable[[int], None]:
        totals[what] = [total, 0]

        def advance(done: int) -> None:
            totals[what][1] += done

        return advance

    carso.evaluate(
        classifier, images, labels, eps=0.02, suite="tiny", chunk=5, name="net", counted=counted
    )
    assert set(totals) == {"net: tiny", "net: diagnostics"}
    assert all(total == done > 0 for total, done in totals.values())


def test_the_ledger_of_an_attack_counts_what_it_spent(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    attacks = ("margin@mean-logits",)
    evaluation = evaluation_of(AttackedClassifier(classifier), images, labels, draws=1)
    results = run_attacks(
        evaluation, tiny_plan(attacks=attacks), FinishedResults(None, {}), chunk=100, counted=silent
    )
    ((found,),) = results.outcomes
    assert found.counts.tolist() == [11 * (5 + 3), 11 * 5, 11 * (5 + 3), 0]
    assert found.gradients.tolist() == [[11] * 5, [0] * 5, [0] * 5, [0] * 5]
    assert torch.equal(
        found.examples, verified(found.examples, images[found.index], evaluation.threat)
    )


# How many candidates.


def needed(defence: Carso, images: Tensor, labels: Tensor) -> tuple[int, float]:
    return candidates_needed(AttackedDefence(defence), images, labels, seed=0)


def test_a_collapsed_latent_needs_one_candidate(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor
) -> None:
    samples, alike = needed(Carso(classifier, purifier(size=0.0)), images, labels)
    assert samples == 1
    assert alike == pytest.approx(1, abs=1e-5)


def test_noisier_gradients_need_more(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor
) -> None:
    found = [
        needed(Carso(classifier, purifier(size=size)), images, labels)
        for size in (0.05, 0.3, 1.0, 3.0)
    ]
    counts = [samples for samples, _ in found]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] <= 64
    for samples, alike in found:
        if not 1 < samples < 64:
            continue
        reached = [math.sqrt(n * alike / (n * alike + 1 - alike)) for n in (samples, samples / 2)]
        assert reached[0] >= GOOD_COSINE > reached[1]  # the smallest power of two that does


def test_gradients_that_say_nothing_need_the_most(
    classifier: nn.Module, purifier: type, spoiling: type, images: Tensor, labels: Tensor
) -> None:
    for how in ("random", "zero", "nan"):

        class Spoiled(purifier):  # type: ignore[valid-type, misc]
            how: str

            def sample(self, activations: Any, *given: Any) -> Tensor:
                spoiled = spoiling(nn.Identity(), self.how)
                return super().sample([spoiled(activations[0])], *given)  # type: ignore[no-any-return]

        broken = Spoiled()
        broken.how = how
        samples, _ = needed(Carso(classifier, broken), images, labels)
        assert samples == 64


def test_measuring_it_is_repeatable_and_leaves_the_global_generator_alone(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor
) -> None:
    defence = Carso(classifier, purifier(size=0.5))
    state = torch.get_rng_state()
    first = needed(defence, images, labels)
    defence(images)
    assert needed(defence, images, labels) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_a_plain_classifier_needs_one(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    model = AttackedClassifier(classifier)
    assert candidates_needed(model, images, labels, seed=0) == (1, None)
