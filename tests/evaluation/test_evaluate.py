"""`carso.evaluate`: repeatable, resumable, and one clear line for a mistake."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyautoattack
import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

import carso
from carso.attacks.autoattack import AutoAttack
from carso.attacks.saved import read_examples
from carso.defence.defence import Carso
from carso.errors import CarsoError
from carso.evaluation.attacked_model import (
    AttackedClassifier,
    AttackedDefence,
    AttackedView,
    verdict,
)
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.planned_attacks import margin
from carso.evaluation.preparation import planned
from carso.evaluation.suites import for_wrapper, suite
from carso.storage import files, tensor_files
from carso.threats.linf import Linf

Timeless = Callable[[Any], Any]
EPS = 0.03


def evaluated(model: nn.Module, images: Tensor, labels: Tensor, **settings: Any) -> dict[str, Any]:
    return carso.evaluate(model, images, labels, **{"eps": EPS, "suite": "tiny", **settings})


class Noisy(nn.Module):
    """A user's own stochastic classifier, which draws from torch's global generator."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(F.dropout(x, 0.2, training=True))  # type: ignore[no-any-return]


# The same seed, the same record.


@pytest.mark.parametrize("kind", ["defence", "classifier", "stochastic classifier"])
def test_a_seed_repeats_a_record_whatever_happened_before(
    kind: str, defence: Carso, classifier: nn.Module, images: Tensor, labels: Tensor,
    timeless: Timeless,
) -> None:  # fmt: skip
    kinds = {"defence": defence, "classifier": classifier}
    model = kinds.get(kind) or Noisy(classifier)
    found = []
    with torch.random.fork_rng():
        for seed in (1, 2):
            torch.manual_seed(seed)
            defence(images[:seed])  # the defence's own noise is elsewhere, too
            state = torch.get_rng_state()
            found.append(evaluated(model, images, labels, seed=3, chunk=7))
            assert torch.equal(torch.get_rng_state(), state)
    assert timeless(found[0]) == timeless(found[1])
    assert found[0]["seed"] == 3
    json.dumps(found[0], allow_nan=False)


def test_another_seed_is_another_experiment(
    defence: Carso, images: Tensor, labels: Tensor, timeless: Timeless
) -> None:
    first, second = (evaluated(defence, images, labels, seed=seed) for seed in (0, 1))
    assert first["images"]["worst_margin"] != second["images"]["worst_margin"]
    assert first["images"]["label"] == second["images"]["label"]


def test_writing_the_record_changes_nothing_in_it(
    defence: Carso, images: Tensor, labels: Tensor, tmp_path: Path, timeless: Timeless
) -> None:
    out = tmp_path / "record.json"
    returned = evaluated(defence, images, labels, out=out)
    assert files.read_json(out) == json.loads(json.dumps(returned))
    assert timeless(returned) == timeless(evaluated(defence, images, labels))
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]  # no parts are left


# Stopped and continued.


class Stopping:
    """Counts the attacks and verdicts of a run, and stops it at the one it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.at: int | None = None
        for kind in ("run_attack", "judge"):
            monkeypatch.setattr(Evaluation, kind, self.watched(kind, getattr(Evaluation, kind)))

    def watched(self, kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(evaluation: Evaluation, *given: Any, **named: Any) -> Any:
            if len(self.calls) == self.at:
                raise KeyboardInterrupt
            result = method(evaluation, *given, **named)
            path = [str(value) for value in given if isinstance(value, str | int)]
            self.calls.append(" ".join([kind, *path]))
            return result

        return call


@pytest.mark.parametrize("kind", ["defence", "stochastic classifier"])
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(
    kind: str, defence: Carso, classifier: nn.Module, images: Tensor, labels: Tensor,
    tmp_path: Path, timeless: Timeless, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    model = defence if kind == "defence" else Noisy(classifier)
    stopping = Stopping(monkeypatch)
    whole = evaluated(model, images, labels, chunk=5, out=tmp_path / "whole.json")
    pieces = list(stopping.calls)
    assert len(set(pieces)) == len(pieces) > 20
    out = tmp_path / "stopped.json"
    stopping.calls.clear()
    for at in (0, 3, 4, 11, len(pieces) - 3):  # also twice in the same piece
        stopping.at = at
        with pytest.raises(KeyboardInterrupt):
            evaluated(model, images, labels, chunk=5, out=out)
        assert not out.exists()
        assert (tmp_path / "stopped.parts").is_dir()
    stopping.at = None
    resumed = evaluated(model, images, labels, chunk=5, out=out)
    assert timeless(resumed) == timeless(whole)
    assert timeless(files.read_json(out)) == timeless(files.read_json(tmp_path / "whole.json"))
    assert not (tmp_path / "stopped.parts").exists()
    # Only a piece (an attack on a chunk, and its verdicts) that was cut off is made again.
    assert set(stopping.calls) == set(pieces)
    again = [call.split()[1:3] for call in pieces if stopping.calls.count(call) > 1]
    assert len({tuple(piece) for piece in again if piece[0] != "diagnosis"}) <= 5
    assert len(stopping.calls) <= len(pieces) + 5 * 8  # at worst a whole diagnosis per stop


def test_finished_pieces_are_not_made_again(
    defence: Carso, images: Tensor, labels: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop between chunks costs nothing at all."""
    stopping = Stopping(monkeypatch)
    evaluated(defence, images, labels, chunk=5, out=tmp_path / "whole.json")
    pieces, out = list(stopping.calls), tmp_path / "stopped.json"
    stopping.calls.clear()
    stopping.at = pieces.index("judge clean 1")
    with pytest.raises(KeyboardInterrupt):
        evaluated(defence, images, labels, chunk=5, out=out)
    stopping.at = None
    evaluated(defence, images, labels, chunk=5, out=out)
    assert stopping.calls == pieces


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"eps": 0.04}, "threat"),
        ({"draws": 3}, "suite"),
        ({"chunk": 6}, "suite"),
        ({"suite": "tiny-independent"}, "suite"),
        ({"attacks": ("square",)}, "attacks"),
        ({"name": "other"}, "subject"),
        ({"images": 11}, "data"),
    ],
    ids=str,
)
def test_parts_of_another_evaluation_are_refused(
    change: dict[str, Any], named: str, defence: Carso, images: Tensor, labels: Tensor,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = tmp_path / "record.json"
    with monkeypatch.context() as patch:
        Stopping(patch).at = 2
        with pytest.raises(KeyboardInterrupt):
            evaluated(defence, images, labels, chunk=5, out=out)
    count = change.pop("images", len(images))
    settings = {"chunk": 5, "out": out, **change}
    with pytest.raises(CarsoError, match="unfinished evaluation that differs in") as error:
        evaluated(defence, images[:count], labels[:count], **settings)
    assert named in str(error.value).split("differs in")[1]
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_other_weights_are_another_evaluation(
    classifier: nn.Sequential, images: Tensor, labels: Tensor, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        Stopping(patch).at = 2
        with pytest.raises(KeyboardInterrupt):
            evaluated(classifier, images, labels, out=tmp_path / "record.json")
    with torch.no_grad():
        classifier.out.bias += 1e-3
    with pytest.raises(CarsoError, match="differs in subject; delete it or write"):
        evaluated(classifier, images, labels, out=tmp_path / "record.json")


def test_a_finished_evaluation_returns_its_record(
    classifier: nn.Sequential, images: Tensor, labels: Tensor, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "record.json"
    first = evaluated(classifier, images, labels, out=path)
    before = path.read_bytes()
    calls = Stopping(monkeypatch).calls
    assert evaluated(classifier, images, labels, out=path) == json.loads(json.dumps(first))
    assert calls == []
    assert path.read_bytes() == before
    with pytest.raises(CarsoError, match="other seed"):
        evaluated(classifier, images, labels, seed=1, out=path)
    with pytest.raises(CarsoError, match="with other attacks, samples, chunk"):
        evaluated(classifier, images, labels, samples=3, chunk=2, out=path)
    with torch.no_grad():
        classifier.out.bias += 1e-3
    with pytest.raises(CarsoError, match="other subject"):
        evaluated(classifier, images, labels, out=path)
    assert (path.read_bytes(), calls) == (before, [])


def test_it_is_made_again_where_that_is_asked_for_or_needed(
    defence: Carso, images: Tensor, labels: Tensor, tmp_path: Path, timeless: Timeless,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path, examples = tmp_path / "record.json", tmp_path / "worst.safetensors"
    attacks = ("margin@mean-logits",)
    settings: dict[str, Any] = {"attacks": attacks, "draws": 2, "out": path}
    first = evaluated(defence, images, labels, **settings)
    assert first["suite"]["gradient_cosine"] is not None
    calls = Stopping(monkeypatch).calls
    further: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"again": True}, True),
        ({"save_examples": examples}, True),  # they are not there yet
        ({"save_examples": examples}, False),
    ]
    for asked, made in further:
        calls.clear()
        record = evaluated(defence, images, labels, **settings, **asked)
        assert bool(calls) == made, asked
        assert timeless(json.loads(json.dumps(record))) == timeless(json.loads(json.dumps(first)))
    evaluated(defence, images, labels, attacks=attacks, draws=2, seed=5, save_examples=examples)
    calls.clear()
    evaluated(defence, images, labels, **settings, save_examples=examples)  # those are others
    assert calls


def test_a_record_from_before_models_had_an_identity_is_known(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "record.json"
    evaluated(classifier, images, labels, out=path, attacks=("square",))
    old = files.read_json(path)
    del old["subject"]["model"]
    path.write_text(json.dumps(old))
    calls = Stopping(monkeypatch).calls
    assert evaluated(classifier, images, labels, out=path, attacks=("square",)) == old
    assert calls == []


# Worst case, examples.


def test_the_worst_case_is_that_of_fresh_draws_of_the_worst_examples(
    defence: Carso, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "worst.safetensors"
    record = evaluated(defence, images, labels, save_examples=path)
    kept = read_examples(path)
    assert torch.equal(kept.images, images)
    assert torch.equal(kept.labels, labels)
    assert (kept.norm, kept.eps) == ("Linf", EPS)
    sizes = (kept.examples - images).abs().amax(dim=(1, 2, 3))
    assert sizes.max() <= EPS + 1e-6
    assert record["images"]["worst_size"] == pytest.approx(sizes.tolist(), abs=1e-5)
    fresh = verdict(
        AttackedDefence(defence), kept.examples, labels, draws=5, seed=0, path=("final", 0)
    )
    assert record["images"]["worst_right"] == fresh.right.tolist()
    untouched = [name == "" for name in record["images"]["worst_attack"]]
    assert torch.equal(kept.examples[untouched], images[untouched])


def test_examples_are_tried_on_another_defence(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "worst.safetensors"
    made = evaluated(classifier, images, labels, eps=0.1, save_examples=path)
    assert made["accuracy"]["worst"]["value"] < 0.5
    again = carso.evaluate(classifier, images, labels, eps=0.1, examples=path)
    assert again["images"]["worst_right"] == made["images"]["worst_right"]
    assert again["suite"]["name"] == "examples"
    other = Carso(classifier, purifier(size=0.02), samples=2)
    order = torch.arange(len(images)).flip(0)  # found by image, not by place
    record = carso.evaluate(other, images[order], labels[order], eps=0.1, examples=str(path))
    (attack,) = record["attacks"]
    assert attack["name"] == "saved-examples"
    assert "worst.safetensors" in attack["what"]
    assert record["accuracy"]["worst"]["value"] < record["accuracy"]["clean"]["value"]
    sizes = [made["images"]["worst_size"][i] for i in order]
    for size, expected, tried in zip(attack["size"], sizes, attack["right"], strict=True):
        assert tried is None or size == pytest.approx(expected)


def test_examples_for_other_images_are_refused(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "worst.safetensors"
    evaluated(classifier, images[:6], labels[:6], save_examples=path)
    with pytest.raises(CarsoError, match=r"worst\.safetensors has no example for 6 of 11 images"):
        carso.evaluate(classifier, images, labels, eps=EPS, examples=path)
    for settings in ({"suite": "quick"}, {"attacks": ("square",)}):
        with pytest.raises(CarsoError, match="give no suite or attacks beside"):
            carso.evaluate(classifier, images, labels, eps=EPS, examples=path, **settings)  # type: ignore[arg-type]


def test_examples_of_a_larger_ball_are_refused_in_one_line(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "worst.safetensors"
    evaluated(classifier, images, labels, eps=0.1, save_examples=path)
    with pytest.raises(CarsoError, match=r"eps = 0\.1") as error:
        carso.evaluate(classifier, images, labels, eps=0.05, examples=path)
    assert "\n" not in str(error.value)
    carso.evaluate(classifier, images, labels, eps=0.2, examples=path)  # a smaller one will do


def test_other_examples_under_the_same_name_are_another_evaluation(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path, out = tmp_path / "worst.safetensors", tmp_path / "record.json"
    evaluated(classifier, images, labels, save_examples=path)
    with monkeypatch.context() as patch:
        Stopping(patch).at = 2
        with pytest.raises(KeyboardInterrupt):
            carso.evaluate(classifier, images, labels, eps=EPS, examples=path, out=out)
    evaluated(classifier, images, labels, seed=5, save_examples=path)
    with pytest.raises(CarsoError, match="unfinished evaluation that differs in"):
        carso.evaluate(classifier, images, labels, eps=EPS, examples=path, out=out)


# A user's own module.


def test_standard_breaks_what_pyautoattack_breaks(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Image by image, whatever was wrong before; here with fewer steps than it takes."""
    published = pyautoattack.AutoAttack._set_version

    def shorter(ensemble: Any, version: str) -> None:
        published(ensemble, version)
        ensemble.square.n_queries, ensemble.fab.n_iter = 300, 10

    monkeypatch.setattr(pyautoattack.AutoAttack, "_set_version", shorter)
    weight = torch.randn(10, 64, generator=Generator().manual_seed(1))

    class Linear(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) @ weight.T

    x = images[:4]
    y = Linear()(x).argmax(dim=1)
    y[0] = (y[0] + 1) % 10
    with torch.random.fork_rng():
        direct = pyautoattack.AutoAttack(Linear(), eps=0.02, version="standard", seed=4)
        _, labels = direct.run_standard_evaluation(x, y, batch_size=len(x))
    record = carso.evaluate(Linear(), x, y, eps=0.02, suite="standard", seed=4)
    assert record["images"]["worst_right"] == (labels == y).int().tolist()
    assert 0 < sum(record["images"]["worst_right"]) < 3
    assert record["suite"]["draws"] == 1
    assert not record["unreliable"]


@pytest.mark.parametrize("name", ["quick", "adaptive"])
def test_a_module_of_ones_own_is_attacked_once_by_each_attack(
    name: str, classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(classifier, images[:6], labels[:6], suite=name)
    settings = [attack["settings"] for attack in record["attacks"]]
    plan = for_wrapper(suite(name, seed=0, samples=1), None)
    assert len(settings) == len(set(settings)) == len({repr(p.attack) for p in plan.attacks})
    assert record["suite"]["name"] == name
    assert record["accuracy"]["worst"]["value"] < record["accuracy"]["clean"]["value"]
    assert record["accuracy"]["clean"]["value"] == pytest.approx(5 / 6)


def test_the_default_is_autoattack_for_a_classifier_and_quick_for_a_defence(
    classifier: nn.Module, defence: Carso, images: Tensor, labels: Tensor
) -> None:
    wrong = (classifier(images).argmax(dim=1) + 1) % 5  # so that nothing is left to attack
    record = carso.evaluate(classifier, images, wrong, eps=EPS)
    assert [attack["name"] for attack in record["attacks"]] == ["autoattack"]
    record = carso.evaluate(defence, images[3:4], labels[3:4], eps=EPS)
    assert record["suite"]["name"] == "quick"


@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes_are_evaluated_by_the_attacks_that_suit_them(
    classes: int, make_classifier: Callable[..., nn.Module], images: Tensor
) -> None:
    model = make_classifier(classes=classes)
    with torch.no_grad():
        labels = model(images).argmax(dim=1)
    record = evaluated(model, images[:4], labels[:4], suite="quick")
    names = [attack["name"] for attack in record["attacks"]]
    assert names == ["margin@mean-logits", "apgd-ce@mean-logits"]


def test_attacks_that_suit_no_such_classifier_are_refused(
    make_classifier: Callable[..., nn.Module], images: Tensor
) -> None:
    with pytest.raises(CarsoError, match="class") as error:
        evaluated(
            make_classifier(classes=3), images, torch.zeros(12, dtype=torch.int64),
            suite="quick", attacks=("apgd-t@mean-logits",),
        )  # fmt: skip
    assert "\n" not in str(error.value)


def test_a_suite_of_ones_own_is_taken_as_it_is(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    own = replace(suite("tiny", seed=0, samples=1), name="mine")
    record = carso.evaluate(classifier, images, labels, eps=EPS, suite=own)
    assert record["suite"]["name"] == "mine"
    assert [attack["name"] for attack in record["attacks"]] == [p.name for p in own.attacks]
    with pytest.raises(CarsoError, match="attacks"):
        carso.evaluate(classifier, images, labels, eps=EPS, suite=own, attacks=("square",))


def test_two_attacks_of_one_name_are_refused(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """The second would be taken to be finished when the first is."""
    tiny = suite("tiny", seed=0, samples=1)
    twice = (margin(5, 1, AttackedView()), margin(10, 1, AttackedView()))
    with pytest.raises(CarsoError, match="margin@mean-logits") as error:
        carso.evaluate(classifier, images, labels, eps=EPS, suite=replace(tiny, attacks=twice))
    assert "\n" not in str(error.value)


def test_another_effort_of_the_diagnostics_is_another_evaluation(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    tiny, out = suite("tiny", seed=0, samples=1), tmp_path / "record.json"
    with monkeypatch.context() as patch:
        Stopping(patch).at = 2
        with pytest.raises(KeyboardInterrupt):
            evaluated(classifier, images, labels, suite=tiny, out=out)
    longer = replace(tiny, effort=replace(tiny.effort, steps=tiny.effort.steps + 1))
    with pytest.raises(CarsoError, match="differs in suite"):
        evaluated(classifier, images, labels, suite=longer, out=out)


def test_a_module_in_double_precision_is_refused_in_one_line(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    with pytest.raises(CarsoError, match="float32") as error:
        evaluated(classifier.double(), images.double(), labels)
    assert "\n" not in str(error.value)


class Odd(nn.Module):
    """A classifier that gives what is no scores, or raises."""

    def __init__(self, output: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.output = output

    def forward(self, images: Tensor) -> Any:
        return self.output(images)


def unhappy(images: Tensor) -> Tensor:
    raise RuntimeError("no such images\nand more of that")


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (lambda images: (images, images), "a tensor of scores, got tuple"),
        (lambda images: images, r"one score per class, \(B, K\)"),
        (unhappy, r"Odd takes no images of shape \(\d, \d+, \d+\) \(C, H, W\): no such images$"),
    ],
)
def test_a_module_that_is_no_classifier_of_these_images_is_refused_in_one_line(
    output: Callable[[Tensor], Any], says: str, images: Tensor, labels: Tensor
) -> None:
    with pytest.raises(CarsoError, match=says):
        evaluated(Odd(output), images, labels)


def test_examples_of_two_radii_are_refused(images: Tensor, labels: Tensor, tmp_path: Path) -> None:
    path = tmp_path / "two.safetensors"
    whole = {"images": images, "examples": images, "labels": labels}
    tensor_files.save(path, {**whole, "eps": torch.tensor([0.1, 0.2])})
    with pytest.raises(CarsoError, match="holds no adversarial examples"):
        read_examples(path)


def test_examples_are_saved_where_they_can_be_read(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    with pytest.raises(CarsoError, match=r"\.safetensors"):
        evaluated(classifier, images, labels, save_examples=tmp_path / "worst.bin")


def test_a_stochastic_module_is_judged_on_several_draws(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = evaluated(Noisy(classifier), images, labels, draws=7)
    assert record["suite"]["draws"] == 7
    right = record["images"]["clean_right"]
    assert max(right) <= 7
    assert any(0 < value < 7 for value in right)  # it does waver
    plain = evaluated(classifier, images, labels, draws=7)
    assert plain["suite"]["draws"] == 1
    assert set(plain["images"]["clean_right"]) == {0, 1}


class Doubtful(nn.Module):
    """A noisy classifier whose single gradients say little."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        noisy = (x + 0.4 * torch.randn_like(x)).clamp(0, 1)
        return self.network(noisy)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["quick", "adaptive"])
def test_a_stochastic_module_is_attacked_through_the_mean_of_draws(
    name: str, classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """As many as its gradients need, which is measured."""
    attacks = ("margin@mean-logits",)
    noisy, x, y = Doubtful(classifier), images[:4], labels[:4]
    record = evaluated(noisy, x, y, suite=name, attacks=attacks, draws=1)
    assert record["subject"]["stochastic"]
    assert -1 <= record["suite"]["gradient_cosine"] < 0.9
    samples = record["suite"]["samples"]
    assert samples > 1
    (attack,) = record["attacks"]
    assert f"{samples} candidates" in attack["through"]
    plain = evaluated(classifier, x, y, suite=name, attacks=attacks)
    assert plain["suite"]["samples"] == 1
    assert plain["suite"]["gradient_cosine"] is None  # nothing was measured
    assert "stochastic" not in plain["subject"]


def test_the_view_of_a_stochastic_module_is_a_mean_over_draws(
    classifier: nn.Module, images: Tensor
) -> None:
    noisy = AttackedClassifier(Doubtful(classifier), stochastic=True)
    with torch.random.fork_rng():
        found = []
        for view in (
            noisy.view(AttackedView(draws=2, samples=3)),
            lambda x: torch.stack([noisy.classifier(x) for _ in range(6)]).mean(dim=0),
        ):
            torch.manual_seed(1)
            point = images.clone().requires_grad_(True)
            scores = view(point)
            found.append((scores.detach(), torch.autograd.grad(scores.sum(), point)[0]))
        torch.testing.assert_close(found[0], found[1])
        fixed = noisy.view(AttackedView(samples=2, fixed=True))
        state = torch.get_rng_state()
        assert torch.equal(fixed(images), fixed(images))
        assert torch.equal(torch.get_rng_state(), state)
    steady = AttackedClassifier(classifier)
    assert steady.view(AttackedView(draws=2, samples=3)) is steady.classifier


def test_standard_for_a_stochastic_module_is_autoattacks_answer_to_noise(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """Version rand: twenty passes are averaged in a step of APGD-CE and APGD-DLR."""
    noisy, steady = (
        Evaluation(
            model=AttackedClassifier(model, stochastic=stochastic), images=images, labels=labels,
            threat=Linf(eps=EPS), seed=4, draws=5, samples=1, classes=5,
        )
        for model, stochastic in ((Doubtful(classifier), True), (classifier, False))
    )  # fmt: skip
    (attack,) = planned(noisy, "", (), None).attacks
    assert attack.attack == AutoAttack(version="rand", seed=4)
    assert "20 EoT" in attack.what
    (attack,) = planned(steady, "standard", (), None).attacks
    assert attack.attack == AutoAttack(version="standard", seed=4)
    names = [
        {attack.name for attack in planned(evaluation, "adaptive", (), None).attacks}
        for evaluation in (noisy, steady)
    ]
    assert names[0] - names[1] == {"apgd-ce@mean-logits-fixed"}  # there is noise to hold fixed


def test_a_stochastic_module_meets_other_noise_than_its_attacker(
    classifier: nn.Module, images: Tensor, labels: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, list[float]] = {"run_attack": [], "judge": []}
    occasion = ["elsewhere"]

    class Listening(Noisy):
        def forward(self, x: Tensor) -> Tensor:
            state = torch.get_rng_state()
            drawn.setdefault(occasion[0], []).append(float(torch.rand(1)))
            torch.set_rng_state(state)
            return super().forward(x)

    def watched(kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(evaluation: Evaluation, *given: Any, **named: Any) -> Any:
            occasion[0] = kind
            try:
                return method(evaluation, *given, **named)
            finally:
                occasion[0] = "elsewhere"

        return call

    for kind in ("run_attack", "judge"):
        monkeypatch.setattr(Evaluation, kind, watched(kind, getattr(Evaluation, kind)))
    evaluated(Listening(classifier), images, labels)
    assert len(set(drawn["judge"])) == len(drawn["judge"]) > 20
    assert not set(drawn["judge"]) & set(drawn["run_attack"])


class WithNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.out = nn.BatchNorm2d(1), nn.Dropout(), nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.drop(self.norm(x)).flatten(1))  # type: ignore[no-any-return]


def test_the_module_is_left_as_it_was(images: Tensor, labels: Tensor) -> None:
    """Evaluated in the middle of its training, it can be trained on."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = WithNorm()
    model.drop.eval()  # a part that its owner froze
    model.norm.bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    record = evaluated(model, images, labels)
    assert record["suite"]["draws"] == 1  # no dropout, and batch-norm statistics as trained
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training
    assert model.norm.training
    assert not model.drop.training
    assert model.out.weight.requires_grad
    assert not model.norm.bias.requires_grad


def test_a_defence_is_left_with_its_weights(defence: Carso, images: Tensor, labels: Tensor) -> None:
    before = {name: value.clone() for name, value in defence.state_dict().items()}
    evaluated(defence, images, labels)
    after = defence.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


class Mute(nn.Module):
    """It answers every image of the lower half of brightness, and has no answer to the others."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        bright = x.mean(dim=(1, 2, 3)) > 0.5
        return torch.where(bright.unsqueeze(1), torch.nan, self.network(x))


@pytest.mark.parametrize("wrapped", ["classifier", "defence"])
def test_a_model_without_answers_gets_a_record_that_says_so(
    wrapped: str, classifier: nn.Sequential, purifier: type, images: Tensor, labels: Tensor,
    tmp_path: Path,
) -> None:  # fmt: skip
    """NaN is what an evaluation is to find: it must not fall over it, and JSON has none."""
    model: nn.Module = Mute(classifier)
    if wrapped == "defence":
        model = Carso(classifier, purifier(), samples=2, final_classifier=model)
    record = evaluated(model, images, labels, out=tmp_path / "record.json")
    assert record["unreliable"]
    assert record["suite"]["draws"] == (1 if wrapped == "classifier" else 5)  # NaN is no noise
    assert "NaN" in record["diagnostics"][0]["verdict"]
    json.loads((tmp_path / "record.json").read_text())


def test_gradients_that_are_nan_get_a_record_that_says_so(
    classifier: nn.Sequential, purifier: type, spoiling: type, images: Tensor, labels: Tensor,
    tmp_path: Path,
) -> None:  # fmt: skip
    model = Carso(classifier, purifier(), samples=2, final_classifier=spoiling(classifier, "nan"))
    record = evaluated(model, images, labels, out=tmp_path / "record.json")
    assert record["unreliable"]
    assert record["attacks"][0]["gradients"]["nan"] == 1
    json.loads((tmp_path / "record.json").read_text())


def test_a_vote_is_evaluated(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor
) -> None:
    """Its ties leave the black box with margins of exactly zero."""
    model = Carso(classifier, purifier(size=0.3), samples=2, aggregation="majority-vote")
    record = evaluated(model, images, labels, chunk=1, attacks=("square",))
    assert record["attacks"][0]["attacked"] >= 8


# Mistakes.


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"images": "nan"}, "without NaN"),
        ({"images": "bytes"}, "float tensor"),
        ({"images": "three"}, r"float tensor \(B, C, H, W\)"),
        ({"images": "large"}, r"in \[0, 1\]"),
        ({"images": "none"}, "at least one"),
        ({"images": "list"}, "float tensor"),
        ({"labels": "short"}, "12 class numbers, one per image"),
        ({"labels": "columns"}, "12 class numbers, one per image"),
        ({"labels": "list"}, "12 class numbers, one per image"),
        ({"labels": "high"}, "class numbers from 0 to 4, got"),
        ({"labels": "negative"}, "class numbers from 0 to 4, got"),
        ({"model": "function"}, "a defence or a torch.nn.Module from images to logits, got"),
        ({"model": "scores"}, r"one score per class, \(B, K\), got"),
        ({"eps": 8}, "pixel scale"),
        ({"eps": 0}, "pixel scale"),
        ({"suite": "fast"}, "there is no suite 'fast'"),
        ({"attacks": ("pgd",)}, "has no attack 'pgd'"),
        ({"draws": 0}, "draws"),
        ({"chunk": 0}, "chunk"),
        ({"chunk": -5}, "chunk"),
        ({"examples": "missing.safetensors"}, "there is no"),
    ],
    ids=str,
)
def test_a_mistake_gets_one_clear_line(
    wrong: dict[str, Any], match: str, defence: Carso, images: Tensor, labels: Tensor
) -> None:
    spoiled = images.clone()
    spoiled[2, 0, 0, 0] = torch.nan
    table: dict[str, Any] = {
        "nan": spoiled,
        "bytes": (255 * images).byte(),
        "three": images[:, 0],
        "large": images * 255,
        "none": images[:0],
        "short": labels[:5],
        "columns": labels.unsqueeze(1),
        "high": labels + 5,
        "negative": labels - 5,
        "function": lambda x: x,
        "scores": nn.Conv2d(1, 5, 3),
    }
    settings: dict[str, Any] = {"model": defence, "images": images, "labels": labels, "eps": EPS}
    if "examples" not in wrong:
        settings["suite"] = "tiny"
    for key, value in wrong.items():
        settings[key] = settings[key].tolist() if value == "list" else table.get(value, value)
    if wrong.get("images") == "none":
        settings["labels"] = labels[:0]
    with pytest.raises(CarsoError, match=match) as error:
        carso.evaluate(**settings)
    assert "\n" not in str(error.value)


# What is shown.


def test_the_gallery_shows_images_and_what_became_of_them(
    tiny_record: dict[str, Any], images: Tensor
) -> None:
    shown = tiny_record["gallery"]
    assert 0 < len(shown) <= 8
    assert len({entry["image"] for entry in shown}) == len(shown)
    for entry in shown:
        assert entry["why"] in ("most damaging", "as they come")
        assert entry["truth"] == str(tiny_record["images"]["label"][entry["image"]])
        assert len(entry["candidates"]) == 4
        assert {"clean", "attacked", "difference", "mean_candidate"} == set(entry["pictures"])


@pytest.mark.parametrize("channels", [1, 3])
def test_classes_have_names_where_they_are_given(channels: int, images: Tensor) -> None:
    x = images.expand(-1, channels, -1, -1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, 3))
    labels = model(x).argmax(dim=1)
    record = evaluated(model, x, labels, classes=("cat", "dog"), suite="tiny")
    names = {entry["truth"] for entry in record["gallery"]}
    assert names <= {"cat", "dog", "2"}
