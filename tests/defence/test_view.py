"""Views: many draws from one representation, fixed noise, and gradients without needless work."""

import math

import pytest
import torch
import torch.nn.functional as F
from noisy_defence import CLASSES, NAMES, SAMPLES, SHAPE, classifier, defence, images
from torch import Tensor

from carso.defence.aggregation import view
from carso.defence.around import purifier_around
from carso.defence.defence import Carso
from carso.defence.view import SATURATING, View, averaged
from carso.errors import CarsoError
from carso.randomness import Share, shared


def mixed() -> Tensor:
    """From black to bright: the logits of a bright image are ten times as far apart."""
    brightness = torch.tensor([0.02, 0.05, 0.1, 0.2, 0.6, 0.8, 1.0, 1.0])
    return images(8) * brightness.view(-1, 1, 1, 1)


def paper_defence() -> Carso:
    """With the paper's purifier, small, and logits that saturate on some draws."""
    network = classifier(8.0)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        purifier = purifier_around(
            network, SHAPE, layers=["hidden"], condition=8, latent=8, decoder_width=16
        )
    with torch.no_grad():
        purifier.decoder[-2].weight *= 20
    return Carso(network, purifier.deployed(), samples=SAMPLES)


def seen(module: Carso) -> list[int]:
    return module.get_submodule("classifier.classifier.see").batches  # type: ignore[return-value]


# Draws, samples, fixed noise.


@pytest.mark.parametrize("name", NAMES)
def test_many_draws_take_one_representation_pass(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = defence()
    passes: list[int] = []
    represent = model.representation.seen

    def counted(x: Tensor, *, logits: bool) -> tuple[list[Tensor], Tensor | None]:
        passes.append(len(x))
        return represent(x, logits=logits)

    monkeypatch.setattr(model.representation, "seen", counted)
    seen(model).clear()
    model.view(name, draws=20)(images())
    assert passes == [6]
    assert seen(model)[0] == 6
    assert sum(seen(model)[1:]) == 6 * 20 * SAMPLES  # then the candidates


@pytest.mark.parametrize("name", NAMES)
def test_many_draws_are_the_mean_of_the_reduction_over_them(name: str) -> None:
    model = defence()
    model.seed(3)
    many = model.view(name, draws=20)(images())
    model.seed(3)
    with torch.no_grad():
        candidates = model.purifier.sample([images()], 20 * SAMPLES, model.noise)
        logits = model.classifier(candidates.flatten(0, 1)).unflatten(0, candidates.shape[:2])
    reduction = view(name, model.aggregate)
    parts = [reduction(logits[i : i + SAMPLES]) for i in range(0, 20 * SAMPLES, SAMPLES)]
    assert len(parts) == 20
    torch.testing.assert_close(many, torch.stack(parts).mean(dim=0))


def test_one_draw_is_the_reduction_itself() -> None:
    reduction = view("logsumexp", defence().aggregate)
    assert averaged(reduction, 1) is reduction


def test_more_draws_are_nearer_to_the_expectation() -> None:
    model = defence()
    expected = model.view("mean-logits", draws=500)(images())
    errors = [
        float((model.view("mean-logits", draws=draws)(images()) - expected).abs().mean())
        for draws in (1, 50)
    ]
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize(("samples", "draws"), [(1, 1), (7, 1), (2, 3), (None, 2)])
def test_samples_are_candidates_per_draw(samples: int | None, draws: int) -> None:
    model = defence()
    seen(model).clear()
    model.view("mean-logits", samples=samples, draws=draws)(images(2))
    assert seen(model) == [2, 2 * draws * (samples or SAMPLES)]
    assert model.samples == SAMPLES


@pytest.mark.parametrize("name", NAMES)
def test_fixed_noise_is_the_same_at_every_call(name: str) -> None:
    model = defence()
    fixed = model.view(name, fixed=True)
    first = fixed(images())
    model(images())  # other calls draw on
    assert torch.equal(fixed(images()), first)
    with_gradients = fixed(images().requires_grad_(True))
    assert torch.equal(with_gradients.detach(), first)
    free = model.view(name)
    assert not torch.equal(free(images()), free(images()))


def test_fixed_noise_is_that_of_the_moment_when_the_view_was_made() -> None:
    model = defence()
    model.seed(1)
    first = model.view("mean-logits", fixed=True)
    model.seed(2)
    second = model.view("mean-logits", fixed=True)
    model.seed(1)
    assert torch.equal(model.view("mean-logits")(images()), first(images()))
    assert not torch.equal(first(images()), second(images()))


@pytest.mark.parametrize("settings", [{"draws": 0}, {"draws": -1}, {"samples": 0}])
def test_bad_numbers_get_one_clear_line(settings: dict[str, int]) -> None:
    with pytest.raises(CarsoError, match="of a view must be at least 1, got") as error:
        defence().view("mean-logits", **settings)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_an_unknown_view_is_named() -> None:
    with pytest.raises(CarsoError, match="there is no view 'logits'; there are mean-logits"):
        defence().view("logits")


# The frugal way back.


def way_back(module: View, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, the gradient of a weighted cross-entropy, and the noise afterwards."""
    module.defence.seed(5)
    x = x.clone().requires_grad_(True)
    scores = module(x)
    labels = torch.arange(len(x)) % CLASSES
    loss = (F.cross_entropy(scores, labels, reduction="none") * weights).sum()
    (gradient,) = torch.autograd.grad(loss, x)
    return scores.detach(), gradient, module.defence.noise.get_state()


def compared(model: Carso, name: str, x: Tensor, weights: Tensor, **settings: int) -> Tensor:
    """The gradient of a view, after a check that it is that of the ordinary way."""
    frugal, ordinary = model.view(name, **settings), model.view(name, **settings)  # type: ignore[arg-type]
    assert frugal.frugal
    ordinary.frugal = False
    scores, gradient, noise = way_back(frugal, x, weights)
    expected, plain, after = way_back(ordinary, x, weights)
    torch.testing.assert_close(scores, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(noise, after)
    assert torch.equal(gradient.isnan(), plain.isnan())
    assert torch.equal(gradient == 0, plain == 0)
    torch.testing.assert_close(gradient, plain, rtol=1e-4, atol=1e-9, equal_nan=True)
    return gradient


def kinds(gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each image: NaN all over, zero all over, neither."""
    nan = gradient.isnan().flatten(1).all(dim=1)
    zero = (gradient == 0).flatten(1).all(dim=1)
    return nan, zero, ~nan & ~zero


@pytest.mark.parametrize("name", SATURATING)
@pytest.mark.parametrize("draws", [1, 5])
def test_the_frugal_way_back_changes_nothing(name: str, draws: int) -> None:
    weights = torch.ones(8)
    weights[0], weights[1] = 0.0, math.nan
    gradient = compared(defence(30.0), name, mixed(), weights, draws=draws)
    nan, zero, live = kinds(gradient)
    assert nan[1]
    assert zero[0]
    assert live.sum() >= 2  # all three kinds in one batch
    assert (nan | zero)[4:].any()  # and the bright images are saturated by themselves


@pytest.mark.parametrize("name", SATURATING)
def test_the_frugal_way_back_with_the_papers_purifier(name: str) -> None:
    weights = torch.tensor([1, 1, 0, 1, math.nan, 1, 1, 1])
    nan, zero, live = kinds(compared(paper_defence(), name, images(8), weights))
    assert nan[4]
    assert zero[2]
    assert live.any()


@pytest.mark.parametrize("name", SATURATING)
@pytest.mark.parametrize("spoiled", [0.0, math.nan])
def test_where_there_is_nothing_to_learn_there_is_no_way_back(name: str, spoiled: float) -> None:
    model = defence()
    weights = torch.tensor([spoiled, 1, spoiled, spoiled])
    seen(model).clear()
    way_back(model.view(name), mixed()[:4], weights)
    assert seen(model) == [4, 4 * SAMPLES, 1, SAMPLES]  # once more for the second image only


def test_the_way_back_may_be_gone_twice() -> None:
    x = images().requires_grad_(True)
    scores = defence().view("log-prob")(x)
    first = torch.autograd.grad(scores[:, 0].sum(), x, retain_graph=True)[0]
    second = torch.autograd.grad(scores[:, 0].sum(), x)[0]
    assert torch.equal(first, second)
    assert first.abs().sum() > 0


@pytest.mark.parametrize("name", SATURATING)
def test_without_gradients_the_scores_are_the_same(name: str) -> None:
    model = defence(30.0)
    model.seed(2)
    bare = model.view(name)(mixed())
    model.seed(2)
    graded = model.view(name)(mixed().requires_grad_(True))
    torch.testing.assert_close(graded.detach(), bare, rtol=0, atol=0, equal_nan=True)


def test_only_views_that_saturate_are_frugal() -> None:
    assert [name for name in NAMES if defence().view(name).frugal] == ["released", "log-prob"]


@pytest.mark.parametrize("name", NAMES)
def test_the_frugal_way_back_is_the_plain_one(name: str) -> None:
    plain, frugal = defence(5.0).view(name), defence(5.0).view(name)
    plain.frugal, frugal.frugal = False, True
    weights = torch.ones(8)
    scores, gradient, noise = way_back(plain, mixed(), weights)
    expected, other, after = way_back(frugal, mixed(), weights)
    torch.testing.assert_close(scores, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-9, equal_nan=True)
    assert torch.equal(noise, after)


@pytest.mark.parametrize("name", SATURATING)
def test_a_process_among_many_goes_the_frugal_way_back_with_its_own_noise(name: str) -> None:
    weights = torch.tensor([1.0, 0.0, math.nan, 1.0])
    for part in (slice(0, 8, 2), slice(1, 8, 2)):
        with shared(Share(part, 8)):
            nan, zero, live = kinds(compared(defence(5.0), name, mixed()[part], weights))
        assert nan[2]
        assert zero[1]
        assert live.any()


@pytest.mark.parametrize("name", SATURATING)
def test_a_wrong_image_is_refused_before_noise_is_drawn(name: str) -> None:
    model = defence()
    state = model.noise.get_state()
    with pytest.raises(CarsoError, match="images must lie in"):
        model.view(name)((images() + 1).requires_grad_(True))
    assert torch.equal(model.noise.get_state(), state)


@pytest.mark.parametrize("name", NAMES)
def test_max_batch_holds_on_the_way_there_and_back(name: str) -> None:
    """Memory is what it is for: also a frugal view must not take more candidates at once."""
    model = defence(max_batch=2 * SAMPLES)
    module = model.view(name)
    seen(model).clear()
    scores, gradient, noise = way_back(module, images(), torch.ones(6))
    assert max(seen(model)) <= 2 * SAMPLES
    whole = way_back(defence().view(name), images(), torch.ones(6))
    torch.testing.assert_close((scores, gradient), whole[:2], equal_nan=True)
    assert torch.equal(noise, whole[2])
