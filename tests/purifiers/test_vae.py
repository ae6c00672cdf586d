"""The conditional VAE: the paper's tables, any image size, sampling, deployment and the loss."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.defence.representation import Representation
from carso.errors import CarsoError
from carso.purifiers.reconstruction import reconstruction_cost
from carso.purifiers.vae.conditioning import Conditioning, layer_encoder
from carso.purifiers.vae.decoder import Decoder
from carso.purifiers.vae.loss import kl_to_prior
from carso.purifiers.vae.posterior import Posterior
from carso.purifiers.vae.vae import VAEPurifier

LAYERS = ("conv", "tokens", "vector")
SHAPES = [(5, 7, 6), (9, 4), (10,)]

IMAGES = [(4, 1, 1), (4, 2, 2), (4, 3, 3), (4, 4, 4), (4, 1, 9), (4, 6, 2), (4, 7, 7)]
TOKENS = [(1, 4), (2, 3), (9, 5)]
VECTORS = [(1,), (17,)]


@pytest.fixture(autouse=True)
def same_weights_every_time() -> None:
    torch.manual_seed(0)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def small(image_shape: tuple[int, int, int] = (1, 12, 12), *, latent: int = 4) -> VAEPurifier:
    """A purifier of an image, a token and a vector activation, with random weights and statistics,
    in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        purifier = VAEPurifier(
            image_shape,
            layers=LAYERS,
            shapes=SHAPES,
            condition=6,
            latent=latent,
            decoder_width=16,
            mean=(0.4,),
            std=(0.3,),
        )
        for module in purifier.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.1, 0.1)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
    return purifier.eval()


def activations(count: int = 3) -> list[Tensor]:
    return [torch.randn(count, *shape, generator=seeded(i)) for i, shape in enumerate(SHAPES)]


def full_size(side: int, classes: int, *, condition: int, latent: int) -> VAEPurifier:
    """The paper's purifier on WideResNet-28-10, without memory for its weights."""
    with torch.device("meta"):
        classifier = WideResNet(28, 10, classes=classes)
        representation = Representation(classifier, conditioning_layers(28))
        shapes = representation.shapes((3, side, side))
        return VAEPurifier(
            (3, side, side),
            layers=representation.layers,
            shapes=shapes,
            condition=condition,
            latent=latent,
        )


def millions(module: nn.Module) -> float:
    return sum(p.numel() for p in module.parameters()) / 1e6


@pytest.mark.parametrize(
    ("side", "classes", "condition", "latent", "counts"),
    [
        (32, 10, 512, 128, ("28.44", "75.29", "2.46")),
        (32, 100, 512, 128, ("28.44", "75.29", "2.46")),
        (64, 200, 768, 192, ("28.78", "290.0", "4.91")),
    ],
)
def test_deployed_parts_have_the_published_numbers_of_parameters(
    side: int, classes: int, condition: int, latent: int, counts: tuple[str, str, str]
) -> None:
    purifier = full_size(side, classes, condition=condition, latent=latent)
    parts = (
        purifier.conditioning.layerwise,
        purifier.conditioning.fully_connected,
        purifier.decoder,
    )
    for part, count in zip(parts, counts, strict=True):
        assert f"{millions(part):.{len(count.split('.')[1])}f}" == count


def rows(decoder: nn.Module) -> list[tuple[object, ...]]:
    """A decoder as the paper prints it: a row per layer."""
    table: list[tuple[object, ...]] = []
    for layer in decoder.modules():
        if isinstance(layer, nn.Linear):
            table.append(("linear", layer.in_features, layer.out_features, layer.bias is not None))
        elif isinstance(layer, nn.Unflatten):
            table.append(("unflatten", *layer.unflattened_size))
        elif isinstance(layer, nn.ConvTranspose2d):
            square = [layer.kernel_size, layer.stride, layer.padding, layer.output_padding]
            assert all(len(set(pair)) == 1 for pair in square)
            numbers = [pair[0] for pair in square]
            channels = (layer.in_channels, layer.out_channels)
            table.append(("transposed", *channels, *numbers, layer.bias is not None))
        elif isinstance(layer, nn.BatchNorm2d):
            assert layer.affine
            table.append(("norm", layer.num_features))
        elif isinstance(layer, nn.LeakyReLU):
            table.append(("leaky", layer.negative_slope))
        elif isinstance(layer, nn.Sigmoid):
            table.append(("sigmoid",))
    return table


@pytest.mark.parametrize(
    ("side", "latent", "condition", "start", "extra", "last_kernel"),
    [(32, 128, 512, 3, 0, 2), (64, 192, 768, 4, 1, 3)],
)
def test_the_decoder_is_the_papers_table_layer_by_layer(
    side: int, latent: int, condition: int, start: int, extra: int, last_kernel: int
) -> None:
    with torch.device("meta"):
        decoder = Decoder((3, side, side), latent=latent, condition=condition)
    expected: list[tuple[object, ...]] = [
        ("linear", latent + condition, 256 * start * start, True),
        ("leaky", 0.2),
        ("unflatten", 256, start, start),
    ]
    for channels in pairwise((256, 256, 128, 64, 32)):
        expected.append(("transposed", *channels, 3, 2, 1, extra, False))
        expected += [("norm", channels[1]), ("leaky", 0.2)]
    expected += [("transposed", 32, 3, last_kernel, 1, 1, 0, True), ("sigmoid",)]
    assert rows(decoder) == expected


@pytest.mark.parametrize(("stages", "widths"), [(3, (160, 80, 40, 20)), (4, (160, 80, 40, 20, 10))])
def test_a_layerwise_encoder_is_the_papers_table(stages: int, widths: tuple[int, ...]) -> None:
    with torch.device("meta"):
        encoder, features = layer_encoder((160, 32, 32), stages=stages)
    assert len(encoder) == stages
    for stage, channels in zip(encoder, pairwise(widths), strict=True):
        conv, norm, leaky = stage
        assert (conv.in_channels, conv.out_channels) == channels
        assert (conv.kernel_size, conv.stride, conv.padding) == ((3, 3), (1, 1), (0, 0))
        assert conv.bias is None
        assert norm.affine
        assert norm.num_features == channels[1]
        assert leaky.negative_slope == 0.2
    assert features == widths[-1] * (32 - 2 * stages) ** 2


def test_odd_channels_are_halved_upwards() -> None:
    encoder, _ = layer_encoder((7, 9, 9), stages=3)
    assert [stage[0].out_channels for stage in encoder] == [4, 2, 1]


def test_the_posterior_is_the_papers_tables() -> None:
    with torch.device("meta"):
        posterior = Posterior((3, 32, 32), latent=128, condition=512)
    for stage, channels in zip(posterior.input_encoder, [(3, 6), (6, 12)], strict=True):
        conv, norm, leaky = stage
        assert (conv.in_channels, conv.out_channels) == channels
        assert (conv.kernel_size, conv.stride, conv.padding) == ((3, 3), (2, 2), (1, 1))
        assert conv.bias is None
        assert norm.affine
        assert leaky.negative_slope == 0.2
    _, linear, norm, leaky = posterior.joint_encoder
    assert (linear.in_features, linear.out_features) == (12 * 8 * 8 + 512, 128)
    assert linear.bias is None
    assert norm.affine
    assert leaky.negative_slope == 0.2
    for head in (posterior.to_mean, posterior.to_logvar):
        assert (head.in_features, head.out_features) == (128, 128)
        assert head.bias is not None


def test_names_are_those_of_the_published_files() -> None:
    state = full_size(32, 10, condition=512, latent=128).state_dict()
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {f"conditioning.layerwise.{i}.{s}.0.weight" for i in range(26) for s in range(3)}
    expected |= {
        f"conditioning.layerwise.{i}.{s}.1.{key}"
        for i in range(26)
        for s in range(3)
        for key in norm
    }
    expected |= {"conditioning.fully_connected.1.0.weight"}
    expected |= {f"conditioning.fully_connected.1.1.{key}" for key in norm}
    expected |= {"decoder.0.1.weight", "decoder.0.1.bias", "decoder.5.weight", "decoder.5.bias"}
    expected |= {f"decoder.{i}.0.weight" for i in range(1, 5)}
    expected |= {f"decoder.{i}.1.{key}" for i in range(1, 5) for key in norm}
    assert {name for name in state if not name.startswith("posterior.")} == expected


def test_the_latent_code_comes_first_in_the_decoder() -> None:
    decoder = Decoder((1, 8, 8), latent=2, condition=3, width=8)
    seen: list[Tensor] = []
    decoder[0][1].register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    decoder(torch.full((2, 2), 5.0), torch.full((2, 3), 7.0))
    assert seen[0].tolist() == [[5, 5, 7, 7, 7]] * 2


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_every_size_are_decoded_to_their_shape(channels: int) -> None:
    sides = range(8, 71)
    shapes = [(channels, side, side) for side in sides]
    shapes += [(channels, 8, 70), (channels, 33, 16), (channels, 31, 65), (channels, 1, 2)]
    for shape in shapes:
        decoder = Decoder(shape, latent=2, condition=3, width=8)
        z, c = 30 * torch.randn(2, 2), 30 * torch.randn(2, 3)
        image = decoder(z, c)
        assert image.shape == (2, *shape)
        assert (image >= 0).all()
        assert (image <= 1).all()
        assert image.std() > 0


@pytest.mark.parametrize(
    "shape", [(1, 8, 8), (3, 9, 13), (1, 28, 28), (3, 31, 20), (3, 45, 70), (1, 70, 33)]
)
def test_images_of_any_shape_are_sampled_and_reconstructed(shape: tuple[int, int, int]) -> None:
    purifier = small(shape)
    candidates = purifier.sample(activations(), 2, seeded(0))
    assert candidates.shape == (2, 3, *shape)
    assert ((candidates >= 0) & (candidates <= 1)).all()
    purifier.train()
    result = purifier.reconstruct(torch.rand(3, *shape), activations(), seeded(0))
    assert result.logits.shape == (3, *shape)
    assert result.mean.shape == result.logvar.shape == (3, 4)


@pytest.mark.parametrize("shape", [*IMAGES, *TOKENS, *VECTORS])
@pytest.mark.parametrize("stages", [1, 3, 4])
def test_layers_of_every_size_are_encoded(shape: tuple[int, ...], stages: int) -> None:
    conditioning = Conditioning([shape], features=5, stages=stages)
    condition = conditioning([torch.randn(4, *shape)])
    assert condition.shape == (4, 5)
    encoder, features = layer_encoder(shape, stages=stages)
    # Tokens come as (B, T, C) and are encoded along T.
    x = torch.randn(4, *shape)
    assert encoder(x.transpose(1, 2) if x.ndim == 3 else x).flatten(1).shape == (4, features)
    assert features >= 1


def test_every_activation_reaches_the_condition() -> None:
    purifier, inputs = small(), activations()
    before = purifier.conditioning(inputs)
    for i in range(len(inputs)):
        changed = [a + (j == i) * torch.randn_like(a) for j, a in enumerate(inputs)]
        assert not torch.equal(purifier.conditioning(changed), before)


def test_a_wrong_number_of_layers_is_one_clear_line() -> None:
    with pytest.raises(CarsoError, match="reads 3 layers, got 2"):
        small().sample(activations()[:2], 1, seeded(0))


def test_the_condition_is_encoded_once_for_all_samples() -> None:
    purifier = small()
    calls: list[int] = []
    purifier.conditioning.register_forward_hook(lambda *_: calls.append(1))
    assert len(purifier.sample(activations(), 8, seeded(0))) == 8
    assert calls == [1]


def test_the_number_of_stages_follows_the_image_size() -> None:
    stages = {}
    for side in (28, 32, 33, 64):
        purifier = VAEPurifier((1, side, side), layers=["x"], shapes=[(4,)], condition=2, latent=2)
        stages[side] = len(purifier.conditioning.layerwise[0])
    assert stages == {28: 3, 32: 3, 33: 4, 64: 4}


def test_candidates_differ_with_the_noise_and_repeat_with_the_seed() -> None:
    purifier = small(latent=16)
    first = purifier.sample(activations(), 4, seeded(1))
    assert torch.equal(first, purifier.sample(activations(), 4, seeded(1)))
    assert not torch.equal(first, purifier.sample(activations(), 4, seeded(2)))
    for i in range(4):
        for j in range(i):
            assert not torch.equal(first[i], first[j])
    source = seeded(1)
    assert torch.equal(first, purifier.sample(activations(), 4, source))
    assert not torch.equal(first, purifier.sample(activations(), 4, source)), "it must advance"


def test_sampling_leaves_the_global_generator_alone() -> None:
    purifier = small()
    before = torch.get_rng_state()
    purifier.sample(activations(), 2, seeded(0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("samples", "latent"), [(1, 16), (2, 8), (8, 64), (4, 12)])
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_batch_cut_in_two_draws_what_the_whole_draws(samples: int, latent: int, cut: int) -> None:
    purifier = small(latent=latent)
    drawn: list[Tensor] = []
    purifier.decoder.register_forward_pre_hook(lambda _, inputs: drawn.append(inputs[0]))
    inputs = activations(6)
    whole = purifier.sample(inputs, samples, seeded(3))
    source = seeded(3)
    parts = [
        purifier.sample([a[part] for a in inputs], samples, source)
        for part in (slice(0, cut), slice(cut, 6))
    ]
    noise = [z.unflatten(0, (samples, -1)) for z in drawn]  # (N, B, latent)
    assert torch.equal(noise[0], torch.cat(noise[1:], dim=1))
    assert torch.allclose(whole, torch.cat(parts, dim=1), atol=1e-6)


def test_candidates_are_what_the_decoder_makes_of_prior_noise_and_condition() -> None:
    purifier = small(latent=16)
    inputs = activations(2)
    noise = torch.randn(2, 3, 16, generator=seeded(9))
    candidates = purifier.sample(inputs, 3, seeded(9))
    condition = purifier.conditioning(inputs)
    for sample in range(3):
        expected = purifier.decoder(noise[:, sample], condition)
        assert torch.allclose(candidates[sample], expected, atol=1e-6)


def test_the_noise_is_standard_normal() -> None:
    purifier = small(latent=16)
    drawn: list[Tensor] = []
    purifier.decoder.register_forward_pre_hook(lambda _, inputs: drawn.append(inputs[0]))
    purifier.sample(activations(100), 20, seeded(0))
    z = torch.cat(drawn).double()  # large batches are decoded in slices
    assert z.numel() == 32000
    assert abs(z.mean()) < 5 / math.sqrt(z.numel())
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / z.numel())


def test_a_deployed_purifier_samples_the_same_and_has_no_posterior() -> None:
    purifier = small()
    before = purifier.sample(activations(), 2, seeded(0))
    state = purifier.deployed_state()
    assert any(name.startswith("posterior.") for name in purifier.state_dict())
    assert not any(name.startswith("posterior.") for name in state)
    deployed = purifier.train().deployed()
    assert not deployed.training
    assert state.keys() == deployed.state_dict().keys()
    assert torch.equal(deployed.sample(activations(), 2, seeded(0)), before)
    with pytest.raises(CarsoError, match=r"deployed, without its posterior"):
        deployed.reconstruct(torch.rand(3, 1, 12, 12), activations(), seeded(0))


def test_a_deployed_state_fills_a_deployed_purifier() -> None:
    purifier = small()
    other = VAEPurifier(
        (1, 12, 12), layers=LAYERS, shapes=SHAPES, condition=6, latent=4, decoder_width=16
    ).deployed()
    other.load_state_dict(purifier.deployed_state())
    inputs = activations()
    assert torch.equal(other.sample(inputs, 2, seeded(0)), purifier.sample(inputs, 2, seeded(0)))


def test_the_posterior_sees_standardised_images() -> None:
    shift = small()
    assert shift.posterior is not None
    seen: list[Tensor] = []
    shift.posterior.input_encoder.register_forward_hook(lambda _, i, __: seen.append(i[0]))
    images = torch.rand(3, 1, 12, 12, generator=seeded(0))
    shift.reconstruct(images, activations(), seeded(0))
    assert torch.allclose(seen[0], (images - 0.4) / 0.3)


def test_reconstruction_is_the_decoded_reparameterised_posterior() -> None:
    purifier = small(latent=16)
    assert purifier.posterior is not None
    images, inputs = torch.rand(3, 1, 12, 12, generator=seeded(0)), activations()
    result = purifier.reconstruct(images, inputs, seeded(5))
    condition = purifier.conditioning(inputs)
    mean, logvar = purifier.posterior(images, condition)
    noise = torch.randn(3, 16, generator=seeded(5))
    latent = mean + logvar.exp().sqrt() * noise
    assert torch.allclose(result.mean, mean)
    assert torch.allclose(result.logvar, logvar)
    image = purifier.decoder(latent, condition)
    assert torch.allclose(torch.sigmoid(result.logits), image, atol=1e-6)


def test_reparameterisation_has_the_gradients_of_finite_differences() -> None:
    """Through mean and log-variance to the loss, with the noise held fixed, in float64."""
    purifier = small(latent=3).double()
    assert purifier.posterior is not None
    images = torch.rand(2, 1, 12, 12, generator=seeded(0), dtype=torch.float64)
    inputs = [a.double() for a in activations(2)]
    heads = [purifier.posterior.to_mean.bias, purifier.posterior.to_logvar.bias]

    def loss() -> Tensor:
        result = purifier.reconstruct(images, inputs, seeded(7))
        cost = reconstruction_cost(result.logits, images)
        return (cost + kl_to_prior(result.mean, result.logvar)).sum()

    gradients = torch.autograd.grad(loss(), heads)
    h = 1e-5
    for parameter, gradient in zip(heads, gradients, strict=True):
        assert gradient.abs().min() > 1e-6
        for i in range(3):
            with torch.no_grad():
                parameter[i] += h
                up = loss()
                parameter[i] -= 2 * h
                down = loss()
                parameter[i] += h
            assert torch.isclose((up - down) / (2 * h), gradient[i], rtol=1e-5, atol=1e-7)


def test_every_part_learns_from_the_loss() -> None:
    purifier = small().train()
    images = torch.rand(3, 1, 12, 12, generator=seeded(0))
    result = purifier.reconstruct(images, activations(), seeded(0))
    cost = reconstruction_cost(result.logits, images)
    (cost + kl_to_prior(result.mean, result.logvar)).sum().backward()
    for name, parameter in purifier.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_kl_is_that_of_the_distributions() -> None:
    mean = 3 * torch.randn(4, 6, dtype=torch.float64, generator=seeded(0))
    logvar = 3 * torch.randn(4, 6, dtype=torch.float64, generator=seeded(1))
    posterior = torch.distributions.Normal(mean, (logvar / 2).exp())
    prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = torch.distributions.kl_divergence(posterior, prior).sum(dim=1)
    assert torch.allclose(kl_to_prior(mean, logvar), expected, rtol=1e-12)
    assert torch.equal(kl_to_prior(torch.zeros(2, 5), torch.zeros(2, 5)), torch.zeros(2))
    assert (kl_to_prior(mean, logvar) > 0).all()


def test_free_bits_are_not_driven_down() -> None:
    """A feature below its free nats costs just these and has no gradient; the others are as they
    were."""
    mean = torch.zeros(4, 3, dtype=torch.float64)
    mean[:, 1] = torch.tensor([2.0, -2.0, 1.0, 3.0])  # 0.5 * 18 / 4 = 2.25 nats on average
    mean[:, 2] = 0.1
    mean.requires_grad_(True)
    logvar = torch.zeros(4, 3, dtype=torch.float64)
    cost = kl_to_prior(mean, logvar, free_bits=0.5)
    own = 0.5 * mean.detach()[:, 1].square()
    assert torch.allclose(cost, 0.5 + own + 0.5, rtol=1e-12)
    cost.sum().backward()  # type: ignore[no-untyped-call]
    assert mean.grad is not None
    assert torch.equal(mean.grad[:, 1], mean.detach()[:, 1])
    assert (mean.grad[:, [0, 2]] == 0).all()
    assert torch.equal(kl_to_prior(mean, logvar, free_bits=0.0), kl_to_prior(mean, logvar))


@pytest.mark.parametrize(
    ("ratio", "widths"), [(0.5, (4, 2, 1)), (1.0, (7, 7, 7)), (0.8, (6, 5, 4))]
)
def test_encoders_keep_the_share_of_channels_that_is_asked_for(
    ratio: float, widths: tuple[int, ...]
) -> None:
    encoder, features = layer_encoder((7, 9, 9), stages=3, ratio=ratio)
    found = tuple(stage[0].out_channels for stage in encoder)  # type: ignore[index, union-attr]
    assert found == widths
    assert features == widths[-1] * 3 * 3
    assert encoder(torch.zeros(2, 7, 9, 9)).flatten(1).shape == (2, features)


def test_reconstruction_cost_is_the_summed_binary_cross_entropy() -> None:
    logits = 4 * torch.randn(3, 2, 5, 4, dtype=torch.float64, generator=seeded(0))
    clean = torch.rand(3, 2, 5, 4, dtype=torch.float64, generator=seeded(1))
    p = torch.sigmoid(logits)
    direct = -(clean * p.log() + (1 - clean) * (1 - p).log()).sum(dim=(1, 2, 3))
    assert torch.allclose(reconstruction_cost(logits, clean), direct, rtol=1e-12)
    assert torch.allclose(reconstruction_cost(logits.float(), clean.float()).double(), direct)


def test_reconstruction_cost_stays_exact_where_a_sigmoid_would_saturate() -> None:
    logits = torch.tensor([200.0, -200.0]).view(2, 1, 1, 1)
    wrong = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
    assert reconstruction_cost(logits, wrong).tolist() == [200, 200]
    assert reconstruction_cost(logits, 1 - wrong).tolist() == [0, 0]
    logits.requires_grad_(True)
    reconstruction_cost(logits, wrong).sum().backward()
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == [1, -1]
    assert F.binary_cross_entropy(torch.sigmoid(logits), wrong).item() < 200  # what is avoided
