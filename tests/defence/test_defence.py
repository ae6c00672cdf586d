"""The defence is its four steps, with noise of its own, whole or in parts."""

import copy
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.defence.aggregation import AGGREGATIONS, aggregation
from carso.defence.defence import Carso
from carso.defence.representation import Representation
from carso.errors import CarsoError
from carso.purifiers.vae.vae import VAEPurifier
from carso.randomness import generator

SHAPE = (1, 12, 12)
CLASSES = 4
SAMPLES = 4
LATENT = 8
"""torch draws normal noise in blocks of 16: SAMPLES * LATENT is a multiple of that."""
VIEWS = ("mean-logits", "logsumexp", "score", "log-prob", "released")


def images(count: int = 5, seed: int = 1) -> Tensor:
    """Away from the ends of [0, 1], so that a small change stays an image."""
    return 0.1 + 0.8 * torch.rand(count, *SHAPE, generator=Generator().manual_seed(seed))


def small_classifier(seed: int = 0) -> WideResNet:
    """With weights and batch-norm statistics under which every image matters."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = WideResNet(10, 1, classes=CLASSES, channels=1, strides=(2, 2, 2))
    settled(network, lambda: network(images(64)))
    return network


def small_purifier(classifier: nn.Module, seed: int = 0) -> VAEPurifier:
    layers = conditioning_layers(10)[::2]
    representation = Representation(classifier, layers)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        purifier = VAEPurifier(
            SHAPE,
            layers=layers,
            shapes=representation.shapes(SHAPE),
            condition=8,
            latent=LATENT,
            decoder_width=16,
        )
    activations = representation(images(64), gradients=False)
    with torch.no_grad():
        purifier.decoder[-2].weight *= 10  # candidates that differ visibly
    settled(purifier, lambda: purifier.reconstruct(images(64), activations, Generator()))
    return purifier.deployed()


@torch.no_grad()
def settled(module: nn.Module, run: object) -> None:
    """Batch-norm statistics of real activations, from one pass in training mode."""
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    module.train()
    run()  # type: ignore[operator]
    module.eval()


@pytest.fixture(scope="module")
def parts() -> tuple[WideResNet, VAEPurifier]:
    classifier = small_classifier()
    return classifier, small_purifier(classifier)


@pytest.fixture
def defence(parts: tuple[WideResNet, VAEPurifier]) -> Carso:
    return Carso(*parts, samples=SAMPLES)


def with_gradient(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Scores, and the gradient of a sum that weighs every one of them differently."""
    x = x.clone().requires_grad_(True)
    scores = module(x)
    weights = torch.linspace(0.5, 2, scores.numel(), dtype=scores.dtype).view_as(scores)
    (gradient,) = torch.autograd.grad((weights * scores).sum(), x)
    return scores.detach(), gradient


class Counting(nn.Module):
    """Passes images on to `network` and remembers how many came at a time."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.batches: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.batches.append(len(x))
        return self.network(x)


# The method.


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_forward_is_the_four_steps(parts: tuple[WideResNet, VAEPurifier], name: str) -> None:
    classifier, purifier = parts
    x = images()
    noise = generator(7, "defence")
    with torch.no_grad():
        activations = Representation(classifier, purifier.layers)(x)
        candidates = purifier.sample(activations, SAMPLES, noise)
        logits = torch.stack([classifier(candidate) for candidate in candidates])  # (N, B, K)
        if name == "anchored":
            logits = (logits + classifier(x)) / 2
        expected = aggregation(name)(logits)
        defence = Carso(classifier, purifier, samples=SAMPLES, aggregation=name, seed=7)
        torch.testing.assert_close(defence(x), expected)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_outputs_are_log_probabilities(parts: tuple[WideResNet, VAEPurifier], name: str) -> None:
    defence = Carso(*parts, samples=SAMPLES, aggregation=name)
    log_probabilities = defence(images())
    assert log_probabilities.shape == (5, CLASSES)
    torch.testing.assert_close(log_probabilities.exp().sum(dim=1), torch.ones(5))


def test_defaults_are_those_of_the_paper(parts: tuple[WideResNet, VAEPurifier]) -> None:
    defence = Carso(*parts)
    assert defence.samples == 8
    assert defence.aggregation == "double-exponential"
    assert defence.final_classifier is defence.classifier
    assert not defence.training
    assert defence.purify(images(2)).shape == (8, 2, *SHAPE)


def test_the_prediction_depends_on_the_image_and_on_the_noise(defence: Carso) -> None:
    """Otherwise most tests here would show nothing."""
    candidates = defence.purify(images())
    assert candidates.std(dim=0).mean() > 0.01
    assert candidates.std(dim=1).mean() > 0.01
    assert defence(images()).std(dim=0).min() > 0.01


def test_people_who_only_want_answers_get_them(defence: Carso) -> None:
    x = images().requires_grad_(True)
    defence.seed(3)
    log_probabilities = defence(x).detach()
    defence.seed(3)
    labels = defence.predict(x)
    defence.seed(3)
    probabilities = defence.predict_proba(x)
    assert labels.shape == (5,)
    assert labels.dtype == torch.int64
    assert torch.equal(labels, log_probabilities.argmax(dim=1))
    assert torch.equal(probabilities, log_probabilities.exp())
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(5))
    assert not probabilities.requires_grad


def test_purify_gives_the_candidates_that_a_prediction_is_made_from(defence: Carso) -> None:
    defence.seed(3)
    candidates = defence.purify(images())
    assert candidates.shape == (SAMPLES, 5, *SHAPE)
    assert candidates.min() >= 0
    assert candidates.max() <= 1
    assert not candidates.requires_grad
    with torch.no_grad():
        logits = torch.stack([defence.classifier(candidate) for candidate in candidates])
        defence.seed(3)
        torch.testing.assert_close(defence(images()), defence.aggregate(logits))


def test_the_aggregation_may_be_changed(defence: Carso) -> None:
    fresh = {
        name: Carso(defence.classifier, defence.purifier, SAMPLES, name) for name in AGGREGATIONS
    }
    for name, expected in fresh.items():
        defence.aggregation = name
        defence.seed(0)
        assert torch.equal(defence(images()), expected(images()))
    with pytest.raises(CarsoError):
        defence.aggregation = "nothing"
    assert defence.aggregation == name


# Noise.


def test_the_same_seed_gives_the_same_bits(defence: Carso) -> None:
    defence.seed(5)
    first, second = defence(images()), defence(images())
    defence.seed(5)
    assert torch.equal(defence(images()), first)
    assert torch.equal(defence(images()), second)
    defence.seed(6)
    other = defence(images())
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_global_generator_changes_nothing_and_is_not_changed(defence: Carso) -> None:
    with torch.random.fork_rng():
        defence.seed(5)
        torch.manual_seed(0)
        state = torch.get_rng_state()
        first, second = defence(images()), with_gradient(defence, images())[0]
        defence.purify(images())
        assert torch.equal(torch.get_rng_state(), state)
        defence.seed(5)
        torch.manual_seed(1)
        assert torch.equal(defence(images()), first)
        torch.manual_seed(1)
        assert torch.equal(defence(images()), second)


def test_parts_leave_the_global_generator_alone(parts: tuple[WideResNet, VAEPurifier]) -> None:
    state = torch.get_rng_state()
    with_gradient(Carso(*parts, samples=SAMPLES, max_batch=SAMPLES), images())
    assert torch.equal(torch.get_rng_state(), state)


def test_two_defences_do_not_share_noise(parts: tuple[WideResNet, VAEPurifier]) -> None:
    one, other = (Carso(*parts, samples=SAMPLES, seed=2) for _ in range(2))
    one(images())
    one.seed(2)
    assert torch.equal(one(images()), other(images()))


# Memory and modes.


@pytest.mark.parametrize("max_batch", [SAMPLES, 2 * SAMPLES, 3 * SAMPLES + 1, 5 * SAMPLES, 1000])
def test_parts_equal_the_whole(parts: tuple[WideResNet, VAEPurifier], max_batch: int) -> None:
    """In float64, where the rounding of differently sized batches is out of sight."""
    classifier, purifier = (copy.deepcopy(part).double() for part in parts)
    whole = Carso(classifier, purifier, samples=SAMPLES)
    cut = Carso(classifier, purifier, samples=SAMPLES, max_batch=max_batch)
    x = images().double()
    for name in ("log-prob", "log-prob", "mean-logits", "score"):  # the noise advances alike
        expected, expected_gradient = with_gradient(whole.view(name), x)
        got, gradient = with_gradient(cut.view(name), x)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-9)
        with torch.no_grad():
            torch.testing.assert_close(cut(x), whole(x), rtol=1e-9, atol=1e-9)


def test_parts_equal_the_whole_to_rounding_in_float32(
    parts: tuple[WideResNet, VAEPurifier],
) -> None:
    whole = Carso(*parts, samples=SAMPLES)
    for max_batch in (SAMPLES, 2 * SAMPLES):
        cut = Carso(*parts, samples=SAMPLES, max_batch=max_batch)
        whole.seed(0)
        expected, expected_gradient = with_gradient(whole.view("mean-logits"), images())
        got, gradient = with_gradient(cut.view("mean-logits"), images())
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4)


def test_max_batch_bounds_the_candidates_that_are_classified_at_once(
    parts: tuple[WideResNet, VAEPurifier],
) -> None:
    classifier, purifier = parts
    final = Counting(classifier)
    defence = Carso(
        classifier, purifier, SAMPLES, final_classifier=final, max_batch=2 * SAMPLES + 1
    )
    defence.predict(images())
    assert final.batches == [2 * SAMPLES, 2 * SAMPLES, SAMPLES]
    with_gradient(defence, images())
    assert max(final.batches) <= 2 * SAMPLES + 1


def test_the_condition_is_encoded_once_for_all_candidates(
    parts: tuple[WideResNet, VAEPurifier],
) -> None:
    classifier, purifier = parts
    counting = Counting(classifier)
    own = copy.deepcopy(purifier)
    own.layers = tuple(f"network.{name}" for name in purifier.layers)
    encoded: list[int] = []
    own.conditioning.register_forward_hook(lambda _, __, output: encoded.append(len(output)))
    Carso(counting, own, SAMPLES).predict(images())
    assert sorted(counting.batches) == [5, 5 * SAMPLES]
    assert encoded == [5]


@pytest.mark.parametrize("max_batch", [None, SAMPLES])
def test_it_works_without_gradients(
    parts: tuple[WideResNet, VAEPurifier], max_batch: int | None
) -> None:
    defence = Carso(*parts, samples=SAMPLES, max_batch=max_batch)
    expected = defence(images()).detach()
    for mode in (torch.no_grad, torch.inference_mode):
        defence.seed(0)
        with mode():
            got = defence(images().requires_grad_(mode is torch.no_grad))
            assert not got.requires_grad
            assert not got.isnan().any()
            torch.testing.assert_close(got.clone(), expected)
            assert defence.predict(images()).shape == (5,)
            assert defence.purify(images()).shape == (SAMPLES, 5, *SHAPE)
    x = images().requires_grad_(True)  # and nothing of the mode stays behind
    assert defence(x).requires_grad


@pytest.mark.parametrize("max_batch", [None, SAMPLES])
@pytest.mark.parametrize("view", ["log-prob", "mean-logits"])
def test_gradients_to_the_input_match_finite_differences(
    parts: tuple[WideResNet, VAEPurifier], view: str, max_batch: int | None
) -> None:
    classifier, purifier = (copy.deepcopy(part).double() for part in parts)
    defence = Carso(classifier, purifier, samples=SAMPLES, max_batch=max_batch)
    module = defence.view(view)
    x = images(2).double()

    def total(x: Tensor) -> Tensor:
        defence.seed(0)
        return (module(x) * torch.linspace(0.5, 2, 2 * CLASSES).view(2, CLASSES)).sum()

    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(total(leaf), leaf)
    assert gradient.abs().max() > 1e-3
    source = Generator().manual_seed(0)
    for _ in range(8):
        direction = torch.randn(x.shape, generator=source, dtype=torch.float64)
        with torch.no_grad():
            slope = (total(x + 1e-6 * direction) - total(x - 1e-6 * direction)) / 2e-6
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-7)


def test_a_copy_is_the_same_and_separate(defence: Carso) -> None:
    defence.seed(4)
    defence(images())
    twin = copy.deepcopy(defence)
    expected = twin(images())
    twin(images())
    assert torch.equal(defence(images()), expected)
    twin.double()
    assert twin(images().double()).dtype == torch.float64
    assert defence(images()).dtype == torch.float32


def test_weights_survive_a_state_dict(defence: Carso) -> None:
    classifier = small_classifier(seed=9)
    other = Carso(classifier, small_purifier(classifier, seed=9), samples=SAMPLES)
    other.load_state_dict(defence.state_dict())
    defence.seed(0)
    assert torch.equal(other(images()), defence(images()))


# The other parts that fit.


def test_a_final_classifier_classifies_the_candidates_and_nothing_else(
    parts: tuple[WideResNet, VAEPurifier],
) -> None:
    classifier, purifier = parts
    final = Counting(small_classifier(seed=8))
    defence = Carso(classifier, purifier, SAMPLES, final_classifier=final)
    got = defence(images()).detach()
    assert final.batches == [5 * SAMPLES]
    plain = Carso(classifier, purifier, SAMPLES)
    candidates = plain.purify(images())
    with torch.no_grad():
        logits = torch.stack([final.network(candidate) for candidate in candidates])
    torch.testing.assert_close(got, defence.aggregate(logits))
    plain.seed(0)
    assert not torch.allclose(got, plain(images()))


class Blurring:
    """A user's own purifier: no module, any image, one layer."""

    layers = ("features",)
    image_shape = None

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        (features,) = activations  # (B, 2, H, W)
        noise = torch.randn(samples, *features[:, :1].shape, generator=generator)
        return torch.sigmoid(features.mean(dim=1, keepdim=True) + 0.5 * noise)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(1, 2, 3, padding=1)
        self.head = nn.Linear(2, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(torch.relu(self.features(images)).mean(dim=(2, 3)))


def test_a_purifier_and_a_classifier_of_the_users_own() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(2)  # some weights have no gradient anywhere
        network = Plain()
    defence = Carso(network, Blurring(), samples=3, aggregation="mean-logits", seed=2)
    got, gradient = with_gradient(defence, images(2))
    assert gradient.abs().sum() > 0
    noise = torch.randn(3, 2, 1, 12, 12, generator=generator(2, "defence"))
    with torch.no_grad():
        candidates = torch.sigmoid(network.features(images(2)).mean(1, keepdim=True) + 0.5 * noise)
        expected = torch.stack([network(c) for c in candidates]).mean(dim=0).log_softmax(dim=1)
    torch.testing.assert_close(got, expected)
    assert defence.predict(torch.rand(2, 1, 7, 9)).shape == (2,)  # any size, as nothing forbids it


def test_a_purifier_that_reads_a_missing_layer_is_refused() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    with pytest.raises(CarsoError, match="no layer 'features'"):
        Carso(network, Blurring())


# Views.


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_a_module_of_its_own(defence: Carso, name: str) -> None:
    view = defence.view(name)
    assert isinstance(view, nn.Module)
    assert view.eval() is view
    x = images().requires_grad_(True)
    scores = view(x)
    assert scores.shape == (5, CLASSES)
    (gradient,) = torch.autograd.grad(scores.nan_to_num(0, 0, 0).sum(), x)
    assert gradient.shape == x.shape


@pytest.mark.parametrize("name", ["mean-logits", "logsumexp"])
def test_a_view_that_does_not_saturate_has_gradients_on_every_image(
    defence: Carso, name: str
) -> None:
    x = images().requires_grad_(True)
    loss = F.cross_entropy(defence.view(name)(x), torch.arange(5) % CLASSES, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, x)
    assert gradient.isfinite().all()
    assert (gradient.flatten(1).norm(dim=1) > 1e-6).all()


def test_views_are_made_from_the_logits_of_the_candidates(defence: Carso) -> None:
    defence.seed(0)
    with torch.no_grad():
        logits = torch.stack([defence.classifier(c) for c in defence.purify(images())])
    score = logits.exp().sum(dim=0)
    probability = score.softmax(dim=-1)
    expected = {
        "mean-logits": logits.mean(dim=0),
        "logsumexp": score.log(),
        "score": score,
        "log-prob": score.double().log_softmax(dim=-1).float(),
        "released": (probability / (1 - probability)).log(),
    }
    assert set(expected) == set(VIEWS)
    for name, scores in expected.items():
        defence.seed(0)
        with torch.no_grad():
            torch.testing.assert_close(defence.view(name)(images()), scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_the_log_prob_view_is_the_defence(parts: tuple[WideResNet, VAEPurifier], name: str) -> None:
    defence = Carso(*parts, samples=SAMPLES, aggregation=name)
    expected = defence(images())
    defence.seed(0)
    assert torch.equal(defence.view("log-prob")(images()), expected)


def test_a_view_and_its_defence_draw_from_one_stream(defence: Carso) -> None:
    defence.seed(0)
    defence(images())
    expected = defence(images())
    defence.seed(0)
    defence.view("score")(images())
    assert torch.equal(defence(images()), expected)


# Wrong input.

WRONG_IMAGES = {
    "size": (torch.rand(2, 1, 12, 13), r"\(1, 12, 12\).*got \(1, 12, 13\)"),
    "channels": (torch.rand(2, 3, 12, 12), r"\(1, 12, 12\).*got \(3, 12, 12\)"),
    "channels last": (torch.rand(2, 12, 12, 1), r"\(1, 12, 12\).*got \(12, 12, 1\)"),
    "one image": (torch.rand(1, 12, 12), r"\(B, C, H, W\).*got \(1, 12, 12\)"),
    "a video": (torch.rand(1, 2, 1, 12, 12), r"\(B, C, H, W\).*got \(1, 2, 1, 12, 12\)"),
    "a number": (torch.tensor(0.5), r"\(B, C, H, W\).*got \(\)"),
    "nothing": (torch.rand(0, 1, 12, 12), r"\(B, C, H, W\).*got \(0, 1, 12, 12\)"),
    "an array": (torch.rand(2, 1, 12, 12).numpy(), r"tensor \(B, C, H, W\).*got ndarray"),
    "a list": ([[0.5]], r"tensor \(B, C, H, W\).*got list"),
    "bytes": (torch.ones(2, 1, 12, 12, dtype=torch.uint8), r"\[0, 1\].*uint8; divide .* by 255"),
    "whole numbers": (torch.ones(2, 1, 12, 12, dtype=torch.int64), r"floats.*got torch.int64"),
    "booleans": (torch.ones(2, 1, 12, 12, dtype=torch.bool), r"floats.*got torch.bool"),
    "complex": (torch.ones(2, 1, 12, 12, dtype=torch.complex64), r"floats.*got torch.complex64"),
    "float64": (torch.rand(2, 1, 12, 12, dtype=torch.float64), r"float32.*float64"),
    "float16": (torch.rand(2, 1, 12, 12).half(), r"float32.*float16"),
    "bytes as floats": (torch.full((2, 1, 12, 12), 255.0), r"\[0, 1\], got values in \[255, 255\]"),
    "standardised": (torch.linspace(-2, 2, 144).view(1, 1, 12, 12), r"got values in \[-2, 2\]"),
    "infinite": (torch.full((1, 1, 12, 12), torch.inf), r"\[0, 1\], got .*inf"),
}


@pytest.mark.parametrize("wrong", WRONG_IMAGES)
def test_a_wrong_image_gets_one_clear_line(defence: Carso, wrong: str) -> None:
    x, message = WRONG_IMAGES[wrong]
    calls = (defence, defence.predict, defence.predict_proba, defence.purify)
    for call in (*calls, defence.view("score")):
        with pytest.raises(CarsoError, match=message) as caught:
            call(x)
        assert "\n" not in str(caught.value)


def test_one_nan_pixel_is_found(defence: Carso) -> None:
    x = images()
    x[4, 0, 11, 11] = torch.nan
    with pytest.raises(CarsoError, match=r"\[0, 1\], got NaN"):
        defence.predict(x)


@pytest.mark.parametrize("value", [-1e-6, 1 + 1e-6])
def test_a_value_just_out_of_range_is_told_from_one_in_range(defence: Carso, value: float) -> None:
    x = images()
    x[0, 0, 0, 0] = value
    with pytest.raises(CarsoError, match=r"must lie in \[0, 1\]") as caught:
        defence.predict(x)
    found = str(caught.value).split("values in [")[1].rstrip("]").split(", ")
    assert min(map(float, found)) < 0 or max(map(float, found)) > 1


def test_the_ends_of_the_range_are_in_it(defence: Carso) -> None:
    x = torch.zeros(2, *SHAPE)
    x[1] = 1
    assert not defence(x).isnan().any()


def test_a_wrong_image_leaves_the_noise_as_it_was(defence: Carso) -> None:
    defence.seed(0)
    expected = defence(images())
    defence.seed(0)
    with pytest.raises(CarsoError):
        defence(images() + 5)
    assert torch.equal(defence(images()), expected)


def test_images_without_pixels_are_refused_whatever_the_purifier() -> None:
    defence = Carso(Plain(), Blurring(), samples=2)
    with pytest.raises(CarsoError, match=r"\(2, 1, 0, 5\)"):
        defence.predict(torch.rand(2, 1, 0, 5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0}, "at least 1, got 0"),
        ({"samples": -3}, "at least 1, got -3"),
        ({"max_batch": 0}, "max_batch must be at least 1, got 0"),
        ({"aggregation": "mean"}, "no aggregation 'mean'; there are .*double-exponential"),
    ],
)
def test_wrong_settings_get_one_clear_line(
    parts: tuple[WideResNet, VAEPurifier], settings: dict[str, int], message: str
) -> None:
    with pytest.raises(CarsoError, match=message):
        Carso(*parts, **settings)


def test_an_unknown_view_is_an_error_that_lists_them(defence: Carso) -> None:
    with pytest.raises(CarsoError, match="no view 'logits'") as caught:
        defence.view("logits")
    assert all(name in str(caught.value) for name in VIEWS)


def test_training_mode_cannot_be_entered(defence: Carso) -> None:
    """Batch norms of the purifier must not move while someone predicts."""
    before = {name: value.clone() for name, value in defence.state_dict().items()}
    images = torch.rand(4, *defence.purifier.image_shape)  # type: ignore[attr-defined]
    defence.train()
    defence.view("mean-logits").train()(images)
    defence(images)
    after = defence.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_purify_in_parts_gives_the_same_candidates(defence: Carso) -> None:
    images = torch.rand(5, *defence.purifier.image_shape)  # type: ignore[attr-defined]
    defence.seed(1)
    whole = defence.purify(images)
    defence.max_batch = 2 * defence.samples
    defence.seed(1)
    assert torch.allclose(defence.purify(images), whole, atol=1e-5)


@pytest.mark.parametrize("aggregation", ["double-exponential", "anchored"])
@pytest.mark.parametrize("max_batch", [None, SAMPLES])
def test_an_explanation_is_of_the_very_pass(
    parts: tuple[WideResNet, VAEPurifier], aggregation: str, max_batch: int | None
) -> None:
    defence = Carso(*parts, samples=SAMPLES, aggregation=aggregation, max_batch=max_batch)
    images = torch.rand(3, *defence.purifier.image_shape)
    defence.seed(1)
    wanted = defence(images)
    defence.seed(1)
    candidates = defence.purify(images)
    defence.seed(1)
    found = defence.explain(images)
    assert torch.equal(found.log_probabilities, wanted)
    assert torch.equal(found.candidates, candidates)
    assert torch.equal(found.labels, wanted.argmax(dim=1))
    one = images[:1]
    torch.testing.assert_close(found.own[:1], defence.classifier(one))
    alone = defence.final_classifier(found.candidates[0])
    torch.testing.assert_close(found.logits[0], alone)
    assert torch.equal(found.votes[0], alone.argmax(dim=1))
    same = torch.equal(found.aggregated, found.logits)
    assert same == (aggregation != "anchored")
