"""No broken defence gets past, and no honest one is objected to: the quick part, on few images.

Around the classifier that was trained on clean images an attack leaves next to nothing, so few
images show what a broken defence hides. `scripts/museum.py` runs the whole suite on more.
"""


import pytest
from exhibits import BROKEN, EPS, EXHIBITS, HONEST, Exhibit, classifiers
from torch import Tensor, nn

import carso
from carso import data
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.planned_attacks import Effort, Suite, apgd, margin

COUNT = 10
SHORT = Suite(
    name="short",
    attacks=(margin(10, 1, AttackedView(samples=2)), apgd("ce", 10, AttackedView(samples=2))),
    effort=Effort(images=COUNT, steps=10, queries=20, eps=(0.0, 1.0)),
)


@pytest.fixture(scope="module")
def networks() -> dict[str, nn.Module]:
    return classifiers()


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    return data.load("fashion-embedded").test.balanced(COUNT).batch(slice(None))


def shown(exhibit: Exhibit, network: nn.Module, batch: tuple[Tensor, Tensor]) -> dict:  # type: ignore[type-arg]
    images, labels = batch
    return carso.evaluate(
        exhibit.build(network, images, labels).eval(), images, labels, eps=EPS, suite=SHORT,
        samples=2, draws=2, classes=[str(i) for i in range(10)],
    )  # fmt: skip


@pytest.mark.parametrize("exhibit", BROKEN, ids=lambda exhibit: exhibit.name)
def test_a_broken_defence_does_not_get_past(
    exhibit: Exhibit, networks: dict[str, nn.Module], batch: tuple[Tensor, Tensor]
) -> None:
    record = shown(exhibit, networks["clean"], batch)
    assert record["unreliable"] or record["accuracy"]["worst"]["value"] <= 0.1


@pytest.mark.parametrize("kind", ["robust", "clean"])
@pytest.mark.parametrize(
    "exhibit", [one for one in HONEST if not one.robust_only], ids=lambda exhibit: exhibit.name
)
def test_an_honest_one_is_not_objected_to(
    kind: str, exhibit: Exhibit, networks: dict[str, nn.Module], batch: tuple[Tensor, Tensor]
) -> None:
    record = shown(exhibit, networks[kind], batch)
    assert record["reasons"] == []


@pytest.mark.parametrize(
    ("name", "diagnosis"),
    [
        ("sine", "slope"),
        ("quantised", "jumps"),
        ("jpeg", "inside"),
        ("memory", "memory"),
        ("labels", "inside"),
    ],
)
def test_the_reason_is_the_right_one(
    name: str, diagnosis: str, networks: dict[str, nn.Module], batch: tuple[Tensor, Tensor]
) -> None:
    record = shown(EXHIBITS[name], networks["robust" if name == "sine" else "clean"], batch)
    assert diagnosis in {one["name"] for one in record["diagnostics"] if one["ok"] is False}
