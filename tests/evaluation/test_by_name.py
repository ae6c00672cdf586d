"""`carso evaluate NAME`: the right images, the right model, the right settings."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import carso
from carso import data
from carso.classifiers.frozen import Frozen
from carso.defence.on_disk import Deployed
from carso.defence.shipped import SHIPPED
from carso.errors import CarsoError
from carso.evaluation import by_name
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.by_name import Images, evaluate_by_name, posterior_kl
from carso.evaluation.planned_attacks import Effort, Suite, margin
from carso.threats.l2 import L2
from carso.threats.linf import Linf

CPU = torch.device("cpu")


def silent(what: str, total: int) -> Callable[[int], None]:
    return lambda done: None


def evaluated(images: Images, *, name: str = "fashion", **settings: Any) -> dict[str, Any]:
    chosen = {
        "bare": False, "aggregation": "", "eps": None, "examples": None, "device": CPU,
        "counted": silent, "seed": 0, **settings,
    }  # fmt: skip
    return evaluate_by_name(name, images, **chosen)


@pytest.fixture(scope="module")
def defence() -> Deployed:
    return carso.load("fashion")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `evaluate` is asked for, instead of evaluating."""
    calls: list[dict[str, Any]] = []

    def evaluate(model: Any, images: Any, labels: Any, **settings: Any) -> dict[str, Any]:
        calls.append({"model": model, "images": images, "labels": labels, **settings})
        return {}

    monkeypatch.setattr(by_name, "evaluate", evaluate)
    return calls


EMBEDDED = Images(count=20, on="fashion-embedded")


def test_images_are_those_of_the_split_in_turn_of_their_classes(defence: Deployed) -> None:
    found, split = EMBEDDED.load(defence)
    assert len(split) == 20
    assert found.classes == defence.classes
    _, labels = split.batch(slice(None))
    assert labels.bincount().tolist() == [2] * 10


@pytest.mark.parametrize(
    ("images", "match"),
    [
        (Images(count=0, on="fashion-embedded"), "between 1 and the"),
        (Images(count=10**6, on="fashion-embedded"), r"test images of .*, got 1000000"),
        (Images(count=5, on="fashion-embedded", split="train"), "test or validation, got 'train'"),
        (Images(count=5, on="no-such-set"), "no-such-set"),
    ],
)
def test_wrong_images_get_one_clear_line(defence: Deployed, images: Images, match: str) -> None:
    with pytest.raises(CarsoError, match=match) as error:
        images.load(defence)
    assert "\n" not in str(error.value)


def test_a_set_of_other_classes_is_refused(
    defence: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defence, "classes", ("cat", "dog"))
    with pytest.raises(CarsoError, match="has other classes than the defence was trained for"):
        EMBEDDED.load(defence)


def test_the_defence_is_evaluated_at_its_own_eps(asked: list[dict[str, Any]]) -> None:
    evaluated(EMBEDDED, seed=3, suite="quick", chunk=10)
    (call,) = asked
    assert isinstance(call["model"], Deployed)
    assert call["threat"] == call["model"].scenario.threat == Linf(eps=0.1)
    assert call["classes"] == call["model"].classes
    assert (call["seed"], call["suite"], call["chunk"]) == (3, "quick", 10)
    assert call["name"] == "fashion"
    assert len(call["images"]) == len(call["labels"]) == 20
    about = call["about"]
    assert about["data"]["set"] == data.load("fashion-embedded").name
    assert about["data"]["fingerprint"] == data.load("fashion-embedded").fingerprint
    assert about["posterior_kl"] == posterior_kl(SHIPPED / "fashion")
    assert isinstance(about["scenario"], dict)


def test_settings_of_the_defence_go_to_the_defence(asked: list[dict[str, Any]]) -> None:
    evaluated(EMBEDDED, eps=0.05, aggregation="majority-vote")
    assert asked[0]["threat"] == Linf(eps=0.05)
    assert asked[0]["model"].aggregation == "majority-vote"


def test_another_norm_can_be_asked_for_with_its_eps(asked: list[dict[str, Any]]) -> None:
    evaluated(EMBEDDED, norm="L2", eps=0.5)
    evaluated(EMBEDDED, norm="Linf")
    assert [call["threat"] for call in asked] == [L2(eps=0.5), Linf(eps=0.1)]
    with pytest.raises(CarsoError, match=r"--norm L2 needs an --eps: 0\.1 is meant in Linf"):
        evaluated(EMBEDDED, norm="L2")
    with pytest.raises(CarsoError, match="norm must be one of Linf, L2, got 'L1'"):
        evaluated(EMBEDDED, norm="L1", eps=1.0)


def test_of_a_hardened_run_the_papers_purifier_can_be_asked_for(
    asked: list[dict[str, Any]], defence: Deployed, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(SHIPPED / "fashion-hardened", run)
    for name in ("purifier.safetensors", "purifier.json"):
        shutil.copy(SHIPPED / "fashion" / name, run / name)
    for hardened in (None, False):
        evaluated(EMBEDDED, name=str(run), hardened=hardened)
    first, second = asked
    assert first["model"].aggregation == "anchored"
    assert first["about"]["posterior_kl"] is None  # it has learnt without one
    assert second["model"].aggregation == "double-exponential"
    assert second["about"]["posterior_kl"] == posterior_kl(SHIPPED / "fashion")
    weights, shipped = (m.purifier.state_dict() for m in (second["model"], defence))
    assert all(torch.equal(weights[key], value) for key, value in shipped.items())


def test_bare_is_the_classifier_alone(asked: list[dict[str, Any]]) -> None:
    evaluated(EMBEDDED, bare=True)
    assert isinstance(asked[0]["model"], Frozen)


def test_an_unknown_defence_is_refused() -> None:
    with pytest.raises(CarsoError, match="no defence 'nothing'"):
        evaluate_by_name(
            "nothing", EMBEDDED, bare=False, aggregation="", eps=None, examples=None, device=CPU,
            counted=silent, seed=0,
        )  # fmt: skip


def test_the_shipped_defence_is_evaluated_and_its_examples_tried_on_its_classifier(
    tmp_path: Path,
) -> None:
    """A few images under one short attack, from the name to the record and back."""
    path = tmp_path / "worst.safetensors"
    speck = Suite(
        name="speck",
        attacks=(margin(5, 1, AttackedView(samples=1)),),
        effort=Effort(images=3, steps=2, queries=5, eps=(0.0, 1.0)),
    )
    images = Images(count=2, on="fashion-embedded")
    record = evaluated(images, suite=speck, eps=0.3, draws=2, samples=1, save_examples=path)
    assert record["subject"]["name"] == "fashion"
    assert record["subject"]["kind"] == "defence"
    assert record["data"]["count"] == 2
    assert record["scenario"]["name"] == "fashion"
    assert record["accuracy"]["worst"]["value"] < record["accuracy"]["clean"]["value"]
    again = evaluated(Images(count=1), bare=True, examples=path)
    assert again["images"]["label"] == record["images"]["label"]
    assert again["threat"] == record["threat"]
    assert again["data"]["set"] == "the images in worst.safetensors"
    sizes = zip(again["attacks"][0]["size"], record["images"]["worst_size"], strict=True)
    assert all(size is None or size == pytest.approx(first, abs=1e-5) for size, first in sizes)


def test_the_posterior_of_a_run_without_a_record_is_unknown(tmp_path: Path) -> None:
    assert posterior_kl(tmp_path) is None
    note = {"what": "purifier", "sha256": "", "history": []}
    (tmp_path / "purifier.json").write_text(json.dumps(note), encoding="utf-8")
    assert posterior_kl(tmp_path) is None
    note["history"] = [{"kl": 3}, {"kl": 0.5}]
    (tmp_path / "purifier.json").write_text(json.dumps(note), encoding="utf-8")
    assert posterior_kl(tmp_path) == 0.5
