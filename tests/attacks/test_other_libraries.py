"""foolbox and ART take a view of a defence as they take any module."""

import pytest
import torch
from torch import Tensor

import carso
from carso import data
from carso.attacks.margin import margins
from carso.defence.on_disk import Deployed
from carso.defence.view import View

COUNT = 6
WHY = "one of the attack libraries that the documentation names; `pip install {}`"


@pytest.fixture(scope="module")
def defence() -> Deployed:
    return carso.load("fashion", samples=2)


@pytest.fixture(scope="module")
def batch(defence: Deployed) -> tuple[Tensor, Tensor]:
    """Images that the defence labels right."""
    images, labels = data.load("fashion-embedded").test.balanced(3 * COUNT).batch(slice(None))
    right = defence.predict(images) == labels
    return images[right][:COUNT], labels[right][:COUNT]


def attacked_well(view: View, images: Tensor, labels: Tensor, examples: Tensor, eps: float) -> None:
    """Inside the ball, with lower margins, and at least one mistake of the defence itself."""
    assert examples.shape == images.shape
    assert examples.isfinite().all()
    assert examples.min() >= 0
    assert examples.max() <= 1
    assert (examples - images).abs().max() <= eps + 1e-6
    with torch.no_grad():
        before, after = (margins(view(x), labels) for x in (images, examples))
    assert (after < before).all()
    assert (view.defence.predict(examples) != labels).any()


def test_foolbox_attacks_a_view(defence: Deployed, batch: tuple[Tensor, Tensor]) -> None:
    foolbox = pytest.importorskip("foolbox", reason=WHY.format("foolbox"))
    images, labels = batch
    eps = defence.scenario.threat.eps
    view = defence.view("mean-logits").eval()
    model = foolbox.PyTorchModel(view, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(steps=5, abs_stepsize=eps / 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        _, examples, fooled = attack(model, images, labels, epsilons=eps)
    assert bool(fooled.any())
    attacked_well(view, images, labels, examples, eps)


def test_art_attacks_a_view(defence: Deployed, batch: tuple[Tensor, Tensor]) -> None:
    pytest.importorskip("art", reason=WHY.format("adversarial-robustness-toolbox"))
    from art.attacks.evasion import ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    images, labels = batch
    eps = defence.scenario.threat.eps
    view = defence.view("mean-logits")
    classifier = PyTorchClassifier(
        view,
        loss=torch.nn.CrossEntropyLoss(),
        input_shape=tuple(images.shape[1:]),
        nb_classes=10,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    attack = ProjectedGradientDescentPyTorch(
        classifier, eps=eps, eps_step=eps / 3, max_iter=5, batch_size=COUNT, verbose=False
    )
    found = attack.generate(x=images.numpy(), y=labels.numpy())
    attacked_well(view, images, labels, torch.from_numpy(found), eps)
