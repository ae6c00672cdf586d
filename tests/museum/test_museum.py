"""No broken defence gets past, and no honest one is objected to: the quick part, on few images.

Around the classifier that was trained on clean images an attack leaves next to nothing, so few
images show what a broken defence hides. `scripts/museum.py` runs the whole suite on more.
"""

from dataclasses import replace

import pytest
from exhibits import BROKEN, EPS, EXHIBITS, Exhibit, classifiers
from torch import Tensor, nn

import carso
from carso import data
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import Effort, Suite, apgd, black_box, margin

COUNT = 10
SHORT = Suite(
    name="short",
    attacks=(margin(20, 1, AttackedView(samples=1)), apgd("dlr", 10, AttackedView(samples=1))),
    effort=Effort(images=COUNT, steps=10, queries=20, eps=(0.0, 1.0)),
)

QUERIES = replace(SHORT, name="queries", attacks=(black_box(50),))
"""For what has no gradients."""


@pytest.fixture(scope="module")
def networks() -> dict[str, nn.Module]:
    return classifiers()


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    return data.load("fashion-embedded").test.balanced(COUNT).batch(slice(None))


def shown(
    exhibit: Exhibit, network: nn.Module, batch: tuple[Tensor, Tensor]
) -> tuple[float, set[str]]:
    """What is left under attack, and which diagnoses object."""
    images, labels = batch
    record = carso.evaluate(
        exhibit.build(network, images, labels).eval(),
        images,
        labels,
        eps=EPS,
        suite=SHORT if exhibit.gradients else QUERIES,
        samples=1,
        draws=2,
        classes=[str(i) for i in range(10)],
    )
    failed = {one["name"] for one in record["diagnostics"] if one["ok"] is False}
    assert record["unreliable"] == bool(failed)
    return record["accuracy"]["worst"]["value"], failed


RIGHT = {"quantised": "jumps", "jpeg": "inside", "labels": "inside", "memory": "memory"}
"""The diagnosis that has to object, among others."""


@pytest.mark.parametrize("exhibit", BROKEN, ids=lambda exhibit: exhibit.name)
def test_a_broken_defence_does_not_get_past(
    exhibit: Exhibit, networks: dict[str, nn.Module], batch: tuple[Tensor, Tensor]
) -> None:
    left, failed = shown(exhibit, networks["clean"], batch)
    assert failed or left <= 0.1
    if exhibit.name in RIGHT:
        assert RIGHT[exhibit.name] in failed


def test_a_shattered_gradient_is_no_slope(
    networks: dict[str, nn.Module], batch: tuple[Tensor, Tensor]
) -> None:
    left, failed = shown(EXHIBITS["sine"], networks["robust"], batch)
    assert left > 0.5
    assert "slope" in failed


@pytest.mark.parametrize(
    ("kind", "name"), [("robust", "bare"), ("clean", "bare"), ("robust", "noisy")]
)
def test_an_honest_one_is_not_objected_to(
    kind: str, name: str, networks: dict[str, nn.Module], batch: tuple[Tensor, Tensor]
) -> None:
    assert shown(EXHIBITS[name], networks[kind], batch)[1] == set()
