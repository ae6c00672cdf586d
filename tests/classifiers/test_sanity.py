"""A classifier that only guesses is refused before it is defended, with the likely reason."""

import math
import runpy
from pathlib import Path

import pytest
import torch
from support import fails, run
from torch import Tensor, nn

import carso
from carso import data
from carso.classifiers.sanity import at_least, refuse_chance, renamed
from carso.data import ImageData
from carso.errors import CarsoError

CPU = torch.device("cpu")
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_classifier.py"


@pytest.fixture(scope="module")
def clothes() -> ImageData:
    return data.load("fashion-embedded")


class Prototypes(nn.Module):
    """Answers the class whose mean training image is nearest, about seven in ten right."""

    means: Tensor

    def __init__(self, clothes: ImageData) -> None:
        super().__init__()
        images, labels = clothes.train.batch(slice(None))
        means = torch.stack([images[labels == k].mean(dim=0).flatten() for k in range(10)])
        self.register_buffer("means", means)

    def forward(self, images: Tensor) -> Tensor:
        return -torch.cdist(images.flatten(1), self.means)


class Through(nn.Module):
    """A classifier behind something that is done to its images or to its logits."""

    def __init__(self, classifier: nn.Module, before: object = None, after: object = None) -> None:
        super().__init__()
        self.classifier, self.before, self.after = classifier, before, after

    def forward(self, images: Tensor) -> Tensor:
        images = self.before(images) if callable(self.before) else images
        logits: Tensor = self.classifier(images)
        return self.after(logits) if callable(self.after) else logits


def test_a_classifier_that_knows_the_images_is_let_through(clothes: ImageData) -> None:
    refuse_chance(Prototypes(clothes), clothes, CPU)
    refuse_chance(carso.load("fashion").classifier, clothes, CPU)


def test_a_guess_is_refused_and_told_how_to_go_on(clothes: ImageData) -> None:
    constant = Through(Prototypes(clothes), after=lambda logits: torch.eye(10)[[3] * len(logits)])
    with pytest.raises(CarsoError) as error:
        refuse_chance(constant, clothes, CPU)
    message = str(error.value)
    assert message.startswith("the classifier labels 50 of 500 clean validation images")
    for word in ("normalised", "another order", "data set", "--allow-any-accuracy", "check_accur"):
        assert word in message
    assert "\n" not in message


def test_classes_in_another_order_are_named(clothes: ImageData) -> None:
    rolled = Through(Prototypes(clothes), after=lambda logits: logits.roll(1, dims=1))
    with pytest.raises(CarsoError, match=r"would label [5-7]\d% right if .* another order"):
        refuse_chance(rolled, clothes, CPU)


@pytest.mark.parametrize(
    ("undo", "says"),
    [
        (lambda x: x * 0.353 + 0.286, "normalised by the data set's mean and std"),
        (lambda x: x / 255, r"in \[0, 255\]"),
    ],
)
def test_images_on_another_scale_are_named(undo: object, says: str, clothes: ImageData) -> None:
    wanting = Through(Prototypes(clothes), before=undo)

    class OnlyThere(nn.Module):
        """Guesses unless images are on the scale that it wants."""

        def forward(self, images: Tensor) -> Tensor:
            back = undo(images)  # type: ignore[operator]
            inside = bool((back.amin() >= -1e-4) & (back.amax() <= 1 + 1e-4))
            whole = back.amax() > 0.9
            return wanting(images) if inside and whole else torch.eye(10)[[0] * len(images)]

    with pytest.raises(CarsoError, match=rf"labels [67]\d% right if images are {says}"):
        refuse_chance(OnlyThere(), clothes, CPU)


def test_few_images_refuse_nobody(clothes: ImageData) -> None:
    few = clothes.train.balanced(200)
    small = data.from_tensors(few.images, few.labels)
    assert len(small.validation) < 50
    refuse_chance(Through(Prototypes(clothes), after=torch.zeros_like), small, CPU)


def test_the_tail_of_the_binomial_is_exact() -> None:
    wanted = sum(math.comb(20, k) * 0.3**k * 0.7 ** (20 - k) for k in range(9, 21))
    assert at_least(9, 20, 0.3) == pytest.approx(wanted, rel=1e-12)
    assert at_least(0, 20, 0.3) == pytest.approx(1)


def test_a_renaming_is_one_to_one() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    assert renamed(torch.tensor([1, 2, 0, 1, 2, 0]), labels) == 1
    assert renamed(torch.zeros(6, dtype=torch.int64), labels) == pytest.approx(1 / 3)
    assert renamed(
        torch.tensor([0, 1, 1, 0, 2, 2]), torch.tensor([0, 0, 0, 0, 0, 0])
    ) == pytest.approx(1 / 3)


def test_fit_and_harden_refuse_before_anything_is_trained(clothes: ImageData) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    nn.init.zeros_(network[1].weight)  # type: ignore[arg-type]
    for make in (carso.fit, carso.harden):
        with pytest.raises(CarsoError, match="clean validation images"):
            make(network, clothes, layers=["0"], eps=0.1)


@pytest.fixture
def example(clothes: ImageData, tmp_path: Path) -> Path:
    """The documented file, beside weights that a training script would have made."""
    path = tmp_path / "my_classifier.py"
    text = EXAMPLE.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    architecture = tmp_path / "architecture.py"
    loading = next(line for line in text.splitlines() if "load_state_dict" in line)
    architecture.write_text(text.replace(loading, ""), encoding="utf-8")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = runpy.run_path(str(architecture))["classifier"]()
        optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
        for batch in torch.randperm(len(clothes.train)).split(128)[:40]:
            images, labels = clothes.train.batch(batch)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.save(model.network.state_dict(), tmp_path / "my_weights.pt")
    return path


SCENARIO = """
name = "mini"
summary = "as small as it gets"
[data]
set = "fashion-embedded"
[threat]
eps = 0.1
[purifier]
condition = 8
latent = 8
decoder_width = 16
[classifier]
[hardening]
epochs = 1
batch_size = 2048
attack_steps = 1
attack_step_size = 0.1
validation_images = 10
"""


def test_the_documented_classifier_is_hardened_and_a_guessing_one_is_not(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mini.toml").write_text(SCENARIO)
    words = ("harden", tmp_path / "mini.toml", "--classifier", example, "--run", tmp_path / "run")
    words = (*words, "--layers", "network.0,network.2")
    weights = torch.load(tmp_path / "my_weights.pt", weights_only=True)
    torch.save({name: 0 * value for name, value in weights.items()}, tmp_path / "my_weights.pt")
    fails(capsys, *words, says=["50 of 500", "--allow-any-accuracy"])
    assert not (tmp_path / "run").exists()
    torch.save(weights, tmp_path / "my_weights.pt")
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert f"--classifier {example}" in out
