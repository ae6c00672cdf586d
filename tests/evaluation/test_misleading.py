"""What gradients do not show: other ways to look at a model, each on a planted defect."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import carso
from carso.classifiers.frozen import freeze
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.inner_classifier import Within, carried, classifier_within
from carso.evaluation.planned_attacks import Effort, Suite, margin
from carso.evaluation.suites import past_wrappers

EPS = 0.03


def objections(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Any]:
    record = carso.evaluate(model, images, labels, eps=EPS, suite="tiny")
    return {one["name"]: one["ok"] for one in record["diagnostics"]}


class Wrapped(nn.Module):
    """A network behind rounding."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network((images * 10).round() / 10)  # type: ignore[no-any-return]


class Shifted(Wrapped):
    """A change of the scores, with a gradient of its own."""

    def forward(self, images: Tensor) -> Tensor:
        return 3 * self.network(images) + 5  # type: ignore[no-any-return]


class Watchful(Wrapped):
    """Another answer where gradients are asked for."""

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.network(images)
        return scores.roll(1, dims=1) if images.requires_grad else scores


class Sociable(Wrapped):
    """An answer that depends on who else is in the batch."""

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images - 0.5 * images.mean(dim=0))  # type: ignore[no-any-return]


def test_an_honest_network_passes_all(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    found = objections(classifier, images, labels)
    assert found["slope"]
    assert found["jumps"]
    assert found["neighbourhood"]
    assert found["same answers"]
    assert found["inside"] is None
    assert found["memory"] is None  # of noise


class Scaled(Wrapped):
    """The same answers by scores that are hardly any."""

    def forward(self, images: Tensor) -> Tensor:
        return 1e-25 * self.network(images)  # type: ignore[no-any-return]


def test_the_scale_of_scores_is_no_finding(classifier: nn.Module, images: Tensor) -> None:
    smooth = F.interpolate(images[..., :2, :2], images.shape[2:], mode="bilinear")
    plain, scaled = (
        objections(model, smooth, classifier(smooth).argmax(dim=1))
        for model in (classifier, Scaled(classifier))
    )
    assert plain["memory"] is not None
    assert scaled.pop("inside"), "the classifier inside gives away no more"
    assert scaled == {name: ok for name, ok in plain.items() if name != "inside"}


@pytest.mark.parametrize("how", ["negated", "random", "zero"])
def test_a_gradient_that_is_no_slope_is_found(
    how: str, classifier: nn.Module, spoiling: type, images: Tensor, labels: Tensor
) -> None:
    found = objections(spoiling(classifier, how), images, labels)
    assert found["slope"] is False
    assert found["jumps"]  # the answers themselves are smooth


def test_rounding_jumps_and_is_broken_from_inside(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    found = objections(Wrapped(classifier), images, labels)
    assert found["slope"] is False
    assert found["inside"] is False


@pytest.mark.parametrize("kind", [Watchful, Sociable])
def test_answers_that_depend_on_who_asks_are_found(
    kind: type[Wrapped], classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    assert objections(kind(classifier), images, labels)["same answers"] is False


def test_the_classifier_inside_is_differentiated_at_what_it_is_shown(
    classifier: nn.Module, images: Tensor
) -> None:
    whole = Wrapped(classifier)
    found_inside = classifier_within(whole, images[:2])
    assert found_inside == ("network", classifier)
    assert found_inside is not None
    part = found_inside.part
    point = images.clone().requires_grad_(True)
    scores = Within(whole, part)(point)
    assert torch.allclose(scores.detach(), whole(images).detach(), atol=1e-5)
    rounded = ((images * 10).round() / 10).requires_grad_(True)
    (found,) = torch.autograd.grad(scores[:, 0].sum(), point)
    (wanted,) = torch.autograd.grad(classifier(rounded)[:, 0].sum(), rounded)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert classifier_within(classifier, images[:2]) is None


def test_of_wrappers_in_wrappers_the_innermost_is_found(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    whole = Shifted(Wrapped(Shifted(classifier)))
    found = classifier_within(freeze(whole), images[:2])
    assert found == ("network.network.network", classifier)
    assert objections(whole, images, labels)["inside"] is False


def test_the_last_layers_of_a_network_are_no_classifier_of_images(images: Tensor) -> None:
    last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))
    network = nn.Sequential(
        nn.Conv2d(images.shape[1], 6, 3, stride=4, padding=1), nn.ReLU(), last
    ).eval()
    found = classifier_within(Wrapped(network), images[:2])
    assert found is not None
    assert found.part is network


def test_what_is_shown_may_be_of_another_size(images: Tensor) -> None:
    point = images.clone().requires_grad_(True)
    shown = torch.rand(2 * len(images), 3, 6, 6)
    found = carried(shown, point)
    assert torch.allclose(found, shown)
    (gradient,) = torch.autograd.grad(found.sum(), point)
    assert gradient.sum().item() == pytest.approx(shown.numel(), rel=1e-4)


INSIDE_ONLY = Suite(
    name="inside",
    attacks=(margin(10, 1, AttackedView(samples=1)), *past_wrappers(1)),
    effort=Effort(images=8, steps=5, queries=10, eps=(0.0, 1.0)),
)


def test_a_suite_goes_past_a_wrapper_and_the_diagnosis_counts_what_that_broke(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = carso.evaluate(Wrapped(classifier), images, labels, eps=EPS, suite=INSIDE_ONLY)
    before, after, last = record["attacks"]
    assert (before["broken"], after["name"]) == (0, "margin@insidex3")
    assert after["broken"] > 0
    found = {one["name"]: one for one in record["diagnostics"]}
    assert found["inside"]["figures"]["broken"] == after["broken"] + last["broken"]
    assert found["inside"]["ok"] is False
    assert found["gradients"]["ok"] is False, "gradients of a part are no gradients of the whole"


def test_an_honest_network_is_not_attacked_from_inside(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    record = carso.evaluate(classifier, images, labels, eps=EPS, suite=INSIDE_ONLY)
    assert [attack["name"] for attack in record["attacks"]] == ["margin@mean-logits"]
