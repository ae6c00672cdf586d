"""The aggregation "anchored": the classifier's own logits join those of every candidate."""

from collections import OrderedDict
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.defence.aggregation import VIEWS, join
from carso.defence.around import purifier_around
from carso.defence.defence import Carso
from carso.defence.view import SATURATING
from carso.errors import CarsoError
from carso.randomness import generator, normal

SHAPE = (1, 8, 8)
CLASSES = 4
SAMPLES = 4
WEIGHT = 1.5
NAMES = (*VIEWS, "log-prob")


def images(count: int = 6) -> Tensor:
    return torch.rand(count, *SHAPE, generator=Generator().manual_seed(1))


def classifier(scale: float = 1.0, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = OrderedDict(
            see=nn.Identity(),
            flat=nn.Flatten(),
            hidden=nn.Linear(64, 16),
            smooth=nn.SiLU(),
            out=nn.Linear(16, CLASSES),
        )
        network = nn.Sequential(layers)
    with torch.no_grad():
        network.hidden.weight *= 6  # so that images differ in what it says of them
        network.out.weight *= 0.4 * scale
        network.out.bias *= 0
    return network.eval()


class Gaussian:
    """A purifier that makes another image of the one that the classifier's first layer shows."""

    layers = ("see",)

    def draw(self, count: int, samples: int, generator: Generator, *, like: Tensor) -> Tensor:
        return normal((count, samples, *SHAPE), like, generator).transpose(0, 1)

    def decode(self, activations: Sequence[Tensor], noise: Tensor) -> Tensor:
        return torch.sigmoid(5 * (activations[0].flip(-1) + 0.1 * noise) - 2)

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        noise = self.draw(len(activations[0]), samples, generator, like=activations[0])
        return self.decode(activations, noise)


def anchored(weight: float = WEIGHT, scale: float = 1.0, **settings: object) -> Carso:
    return Carso(
        classifier(scale),
        Gaussian(),
        samples=SAMPLES,
        aggregation="anchored",
        anchor=weight,
        **settings,  # type: ignore[arg-type]
    )


def released(logits: Tensor) -> Tensor:
    probability = logits.exp().sum(dim=0).softmax(dim=-1)
    return (probability / (1 - probability)).log()


REDUCTIONS = {  # as the formulas say it, of logits (N, B, K)
    "mean-logits": lambda logits: logits.mean(dim=0),
    "logsumexp": lambda logits: logits.exp().sum(dim=0).log(),
    "score": lambda logits: logits.exp().sum(dim=0),
    "released": released,
    "log-prob": lambda logits: logits.double().mean(dim=0).log_softmax(dim=-1).float(),
}


def straight_line(
    name: str, x: Tensor, *, draws: int = 1, weight: float = WEIGHT, scale: float = 1.0
) -> Tensor:
    """The scores of the view `name`, with a pass for each candidate and nothing shared."""
    network, purifier = classifier(scale), Gaussian()
    noise = purifier.draw(len(x), draws * SAMPLES, generator(7, "defence"), like=x)
    answers = []
    for part in noise.split(SAMPLES):
        logits = [network(purifier.decode([x], z[None])[0]) for z in part]
        joined = [(one + weight * network(x)) / (1 + weight) for one in logits]
        answers.append(REDUCTIONS[name](torch.stack(joined)))
    return sum(answers) / draws  # type: ignore[return-value]


def way_back(scores: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores, and the gradient of a sum that weighs every one of them differently."""
    weights = torch.linspace(-1, 2, scores.numel(), dtype=scores.dtype).view_as(scores)
    (gradient,) = torch.autograd.grad((weights * scores).sum(), x)
    return scores.detach(), gradient


# The formula.


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0, 3.0])
def test_join_is_the_weighted_mean_of_candidate_and_classifier(weight: float) -> None:
    logits, own = torch.randn(3, 2, 4), torch.randn(2, 4)
    joined = join(logits, own, weight)
    for n in range(3):
        for b in range(2):
            for k in range(4):
                mean = (float(logits[n, b, k]) + weight * float(own[b, k])) / (1 + weight)
                assert float(joined[n, b, k]) == pytest.approx(mean, rel=1e-6, abs=1e-6)


def test_the_defence_says_the_softmax_of_the_weighted_mean() -> None:
    model = anchored(seed=7)
    x = images()
    candidates = model.purify(x)
    model.seed(7)
    with torch.no_grad():
        network = classifier()
        mean = torch.stack([network(candidate) for candidate in candidates]).mean(dim=0)
        expected = ((mean + WEIGHT * network(x)) / (1 + WEIGHT)).softmax(dim=1)
    torch.testing.assert_close(model.predict_proba(x), expected)


def test_a_weight_of_0_is_the_mean_of_the_logits_to_the_bit() -> None:
    plain = Carso(classifier(), Gaussian(), samples=SAMPLES, aggregation="mean-logits")
    assert torch.equal(anchored(0.0)(images()), plain(images()))
    plain.seed(0)
    assert not torch.allclose(anchored(0.5)(images()), plain(images()))


@pytest.mark.parametrize("weight", [1e6, 1e30, 1e39])
def test_a_huge_weight_leaves_the_classifier_alone(weight: float) -> None:
    x = images(40)
    with torch.no_grad():
        own = classifier()(x)
    torch.testing.assert_close(anchored(weight)(x), own.log_softmax(dim=1), atol=1e-5, rtol=1e-5)
    assert torch.equal(anchored(weight).predict(x), own.argmax(dim=1))
    assert not torch.equal(anchored(0.0).predict(x), own.argmax(dim=1))  # else it shows nothing


def test_the_defended_classifier_anchors_also_where_another_one_judges_the_candidates() -> None:
    """The paper's ablation: `final_classifier` sees candidates, the representation's the input."""
    other = classifier(seed=5)
    model = anchored(final_classifier=other)
    x = images()
    candidates = model.purify(x)
    model.seed(0)
    with torch.no_grad():
        logits = torch.stack([other(candidate) for candidate in candidates])
        expected = join(logits, classifier()(x), WEIGHT).mean(dim=0).log_softmax(dim=1)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("weight", [-1e-9, -1.0, float("inf"), float("-inf"), float("nan")])
def test_what_is_no_weight_is_refused(weight: float) -> None:
    with pytest.raises(CarsoError, match="anchor must be a weight of at least 0"):
        anchored(weight)


def test_the_aggregation_may_be_changed_back_and_forth() -> None:
    x = images()
    model = anchored(seed=3)
    fresh = anchored(seed=3)(x)
    for name in ("mean-logits", "double-exponential", "mean-probabilities", "majority-vote"):
        plain = Carso(classifier(), Gaussian(), samples=SAMPLES, aggregation=name, seed=3)
        model.aggregation = name
        model.seed(3)
        assert torch.equal(model(x), plain(x)), name
        assert not torch.allclose(model.view("mean-logits")(x), fresh)
        model.aggregation = "anchored"
        model.seed(3)
        assert torch.equal(model(x), fresh), name


def test_draws_judge_each_other_as_the_defence_would() -> None:
    """`classify` is what evaluations call: (N, B, K), with every candidate anchored."""
    model = anchored()
    x = images()
    candidates = model.purify(x)
    with torch.no_grad():
        logits = model.classify(candidates, model.classifier(x))
    model.seed(0)
    assert logits.shape == (SAMPLES, 6, CLASSES)
    torch.testing.assert_close(logits.mean(dim=0).log_softmax(dim=1), model(x))


# What an attacker differentiates.


@pytest.mark.parametrize("max_batch", [None, 2 * SAMPLES])
@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_every_view_and_its_gradient_are_those_of_a_straight_line(
    name: str, draws: int, max_batch: int | None
) -> None:
    model = anchored(seed=7, max_batch=max_batch)
    module = model.view(name, draws=draws)
    assert module.frugal == (name in SATURATING)
    x = images().requires_grad_(True)
    scores, gradient = way_back(module(x), x)
    expected, wanted = way_back(straight_line(name, x, draws=draws), x)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-6)
    assert wanted.abs().amax(dim=(1, 2, 3)).min() > 1e-4  # of every image


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_flows_through_the_classifiers_own_logits(name: str) -> None:
    """Cut off, they would leave an attacker with a gradient that is wrong everywhere."""
    x = images().requires_grad_(True)
    _, whole = way_back(anchored(seed=7).view(name)(x), x)
    network, purifier = classifier(), Gaussian()
    noise = purifier.draw(len(x), SAMPLES, generator(7, "defence"), like=x)
    logits = torch.stack([network(candidate) for candidate in purifier.decode([x], noise)])
    cut = (logits + WEIGHT * network(x).detach()) / (1 + WEIGHT)
    _, without = way_back(REDUCTIONS[name](cut), x)
    difference = (whole - without).flatten(1).norm(dim=1) / whole.flatten(1).norm(dim=1)
    assert difference.min() > 0.1


@pytest.mark.parametrize(("name", "scale"), [("log-prob", 400.0), ("released", 6.0)])
def test_a_frugal_view_skips_only_images_from_which_nothing_is_learnt(
    name: str, scale: float
) -> None:
    """Bright images saturate, dark ones do not: their gradients agree with the straight line's."""
    brightness = torch.tensor([0.0, 0.02, 0.05, 0.5, 0.8, 1.0]).view(-1, 1, 1, 1)
    gradients = []
    for scores_of in (
        anchored(seed=7, scale=scale).view(name),
        lambda x: straight_line(name, x, scale=scale),
    ):
        x = (images() * brightness).requires_grad_(True)
        scores = scores_of(x)
        (gradient,) = torch.autograd.grad(F.cross_entropy(scores, scores.argmax(dim=1)), x)
        gradients.append(gradient)
    found, wanted = gradients
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=1e-6, equal_nan=True)
    dead = (wanted.isnan() | (wanted == 0)).flatten(1).all(dim=1)
    assert 0 < int(dead.sum()) < 6, "some images saturate and some do not"


def test_the_papers_purifier_and_the_frugal_path_agree_with_the_way_without_it() -> None:
    network = classifier()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        purifier = purifier_around(
            network, SHAPE, layers=["hidden"], condition=8, latent=8, decoder_width=16
        ).deployed()
    found = []
    for frugal in (True, False):
        model = Carso(network, purifier, SAMPLES, "anchored", anchor=WEIGHT, seed=7)
        module = model.view("log-prob", draws=2)
        assert module.frugal
        module.frugal = frugal
        x = images().requires_grad_(True)
        found.append(way_back(module(x), x))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-7)
