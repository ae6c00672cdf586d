"""BPDA: the scores and verdicts of one model, the gradients of another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso.defence.defence import Carso
from carso.errors import CarsoError
from carso.evaluation import suites
from carso.evaluation.attacked_model import AttackedView, under_test
from carso.evaluation.backward import SubstituteGradient, WithBackward
from tests.support import run


class Steps(nn.Module):
    """`network` behind a quantisation whose gradient is zero nearly everywhere."""

    def __init__(self, network: nn.Module, noise: float = 0.0) -> None:
        super().__init__()
        self.network, self.noise = network, noise

    def forward(self, images: Tensor) -> Tensor:
        seen = images + self.noise * torch.randn_like(images)
        return self.network((seen * 256).round() / 256)  # type: ignore[no-any-return]


class ThroughSteps(Steps):
    """The same with the gradient of the identity in place of the quantisation's."""

    def forward(self, images: Tensor) -> Tensor:
        seen = images + self.noise * torch.randn_like(images)
        quantised = (seen * 256).round() / 256
        return self.network(seen + (quantised - seen).detach())  # type: ignore[no-any-return]


def gradient(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    point = images.clone().requires_grad_(True)
    loss = nn.functional.cross_entropy(model(point), labels)
    return torch.autograd.grad(loss, point)[0]


def test_scores_are_of_the_one_and_gradients_of_the_other(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    model, other = Steps(classifier), ThroughSteps(classifier)
    both = SubstituteGradient(model, other)
    assert torch.equal(both(images), model(images))
    assert torch.equal(both(images.clone().requires_grad_(True)), model(images))
    assert torch.equal(gradient(both, images, labels), gradient(other, images, labels))
    assert not gradient(model, images, labels).any()


def test_the_gradient_is_taken_where_the_model_was(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """The same noise: a pass that saw other noise would have another gradient."""
    model, other = Steps(classifier, 0.1), ThroughSteps(classifier, 0.1)
    torch.manual_seed(3)
    expected = gradient(other, images, labels)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(gradient(SubstituteGradient(model, other), images, labels), expected)
    assert torch.equal(torch.get_rng_state(), after)


def test_an_infinite_score_of_the_other_spoils_nothing(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    class Infinite(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return classifier(x) + torch.inf  # type: ignore[no-any-return]

    both = SubstituteGradient(classifier, Infinite())
    assert gradient(both, images, labels).isfinite().all()


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_it_breaks_what_hides_its_gradient(
    noise: float, classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    model, images, labels = Steps(classifier, noise), images[:4], labels[:4]
    settings: dict[str, Any] = {"eps": 0.1, "suite": "tiny", "draws": 3, "samples": 4}
    plain = carso.evaluate(classifier, images, labels, **settings)
    masked = carso.evaluate(model, images, labels, attacks=["apgd-ce@mean-logits"], **settings)
    found = carso.evaluate(
        model, images, labels, backward=ThroughSteps(classifier, noise), **settings
    )
    assert found["accuracy"]["clean"] == masked["accuracy"]["clean"]
    reached = found["accuracy"]["worst"]["value"]
    assert reached <= plain["accuracy"]["worst"]["value"] + 1 / 4
    assert reached < masked["accuracy"]["clean"]["value"]
    following = [attack for attack in found["attacks"] if not attack["black_box"]]
    assert all(attack["gradients"]["zero"] == 0 for attack in following)
    assert found["subject"]["backward"] == "ThroughSteps"
    assert "followed the gradients of ThroughSteps" in found["verdict"]


def test_every_attack_of_the_suite_that_follows_gradients_follows_those(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    calls = 0

    class Counting(ThroughSteps):
        def forward(self, images: Tensor) -> Tensor:
            nonlocal calls
            calls += torch.is_grad_enabled() and images.requires_grad
            return super().forward(images)

    model, other = Steps(classifier), Counting(classifier)
    images, labels = images[:4], labels[:4]
    record = carso.evaluate(model, images, labels, eps=1e-3, suite="adaptive", backward=other)
    passes = sum(attack["passes"]["backward"] for attack in record["attacks"])
    assert calls > 100
    assert passes > 1000
    for attack in record["attacks"]:
        if not attack["black_box"]:
            assert attack["gradients"]["zero"] < 0.1, attack["name"]


def test_verdicts_are_of_the_model_itself(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """A backward that is always wrong changes no clean answer, one that lies breaks nothing."""

    class Lying(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return -classifier(x)  # type: ignore[no-any-return]

    record = carso.evaluate(
        classifier, images, labels, eps=0.02, suite="tiny", backward=Lying(),
        attacks=["margin@mean-logits"],
    )  # fmt: skip
    assert record["accuracy"]["clean"]["value"] == pytest.approx(11 / 12)
    assert record["accuracy"]["worst"]["value"] == record["accuracy"]["clean"]["value"]


def test_a_model_without_gradients_gets_some(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    class Labels(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return classifier(x).argmax(dim=1)  # type: ignore[no-any-return]

    record = carso.evaluate(
        Labels(), images, labels, eps=0.3, suite="tiny", backward=classifier,
        classes=[str(i) for i in range(5)],
    )  # fmt: skip
    assert "gradients" not in record["subject"]
    assert record["attacks"][0]["name"] == "margin@mean-logits"


def test_a_defence_may_be_attacked_through_another(
    defence: Carso, classifier: nn.Module, purifier: Callable[..., Any], images: Tensor
) -> None:
    """A module gives its gradient whatever the view, another defence that of the same view."""
    labels = classifier(images).argmax(dim=1)
    through = AttackedView(samples=4)
    alone = WithBackward(under_test(defence), under_test(classifier)).view(through)
    expected = SubstituteGradient(defence.view("mean-logits", samples=4), classifier)
    for model in (alone, expected):
        defence.seed(0)
        point = images.clone().requires_grad_(True)
        model(point)[:, 0].sum().backward()
        assert torch.allclose(point.grad, jacobian_row(classifier, images))  # type: ignore[arg-type]
    other = Carso(classifier, purifier(0.0), samples=4)
    record = carso.evaluate(defence, images, labels, eps=0.05, suite="tiny", backward=other)
    assert record["subject"]["backward"] == "Carso"


def jacobian_row(model: nn.Module, images: Tensor) -> Tensor:
    point = images.clone().requires_grad_(True)
    return torch.autograd.grad(model(point)[:, 0].sum(), point)[0]


def test_another_backward_is_another_evaluation(
    classifier: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"eps": 0.02, "suite": "tiny", "out": tmp_path / "record.json"}
    carso.evaluate(classifier, images, labels, **settings)
    with pytest.raises(CarsoError, match="other subject"):
        carso.evaluate(classifier, images, labels, backward=classifier, **settings)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda classifier: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), "gives 3 scores"),
        (lambda classifier: Steps(classifier).requires_grad_(False) and NoGradient(classifier),
         "have no gradient"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_clear_line(
    make: Callable[[nn.Module], nn.Module], words: str, classifier: nn.Module, images: Tensor,
    labels: Tensor,
) -> None:  # fmt: skip
    with pytest.raises(CarsoError, match=words):
        carso.evaluate(classifier, images, labels, eps=0.02, backward=make(classifier))
    with pytest.raises(CarsoError, match="backward takes"):
        carso.evaluate(classifier, images, labels, eps=0.02, backward="my.py")  # type: ignore[arg-type]


class NoGradient(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self.network(images)  # type: ignore[no-any-return]


def test_the_command_takes_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(suites.SUITES, "quick", suites.SUITES["tiny"])
    Path("my.py").write_text(
        "import carso\n\ndef classifier():\n    return carso.load('fashion').classifier\n"
    )
    code, out, err = run(
        capsys, "evaluate", "fashion", "--bare", "--suite", "quick", "--images", "4", "--on",
        "fashion-embedded", "--backward", "my.py", "--quiet",
    )  # fmt: skip
    assert code == 0, err
    assert "followed the gradients of" in out
    assert (
        tmp_path / "records" / "fashion-bare-fashion-embedded-backward-my-quick-4.json"
    ).exists()
