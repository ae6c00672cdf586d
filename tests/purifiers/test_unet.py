"""The U-Net purifier: any image size with one set of weights, any activation, its noise."""

import itertools

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.errors import CarsoError
from carso.purifiers.unet.entry import token_grid
from carso.purifiers.unet.network import UNet, level_sizes
from carso.purifiers.unet.unet import UNetPurifier
from carso.randomness import Share, shared

WIDTHS, BLOCKS = (4, 6, 8), (1, 1, 1)
SIZES = [(28, 28), (32, 32), (33, 47), (5, 3)]


class Eye(nn.Module):
    """Activations of an image as a small classifier has them: its own size, a half, a quarter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 5, 3, stride=2, padding=1)
        self.third = nn.Conv2d(5, 7, 3, stride=2, padding=1)

    def forward(self, images: Tensor) -> list[Tensor]:
        first = self.first(images)
        second = self.second(first)
        return [first, second, self.third(second)]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture
def eye() -> Eye:
    torch.manual_seed(0)
    return Eye().requires_grad_(False)


def built(shapes: list[tuple[int, ...]], image: tuple[int, int, int] = (1, 28, 28)) -> UNetPurifier:
    torch.manual_seed(1)
    layers = [str(number) for number in range(len(shapes))]
    purifier = UNetPurifier(image, layers=layers, shapes=shapes, widths=WIDTHS, blocks=BLOCKS)
    return purifier.deployed()


@pytest.fixture
def purifier() -> UNetPurifier:
    return built([(3, 28, 28), (5, 14, 14), (7, 7, 7)])


@pytest.mark.parametrize("size", SIZES)
def test_one_set_of_weights_serves_every_size(
    size: tuple[int, int], eye: Eye, purifier: UNetPurifier
) -> None:
    candidates = purifier.sample(eye(torch.rand(2, 1, *size)), 3, seeded())
    assert candidates.shape == (3, 2, 1, *size)
    assert float(candidates.min()) >= 0
    assert float(candidates.max()) <= 1
    assert purifier.pixel_logits(eye(torch.rand(2, 1, *size)), seeded()).shape == (2, 1, *size)


@pytest.mark.parametrize(
    ("seen", "wanted"), [((14, 14), (28, 28)), ((16, 16), (32, 32)), ((17, 24), (34, 48))]
)
def test_the_size_follows_from_an_activation_of_half_the_resolution(
    seen: tuple[int, int], wanted: tuple[int, int]
) -> None:
    purifier = built([(5, 14, 14), (9,)])
    activations = [torch.rand(2, 5, *seen), torch.rand(2, 9)]
    assert purifier.sample(activations, 1, seeded()).shape == (1, 2, 1, *wanted)


def test_an_odd_size_it_was_built_for_comes_back_exactly() -> None:
    purifier = built([(5, 17, 24)], (1, 33, 47))
    assert purifier.sample([torch.rand(2, 5, 17, 24)], 1, seeded()).shape == (1, 2, 1, 33, 47)


def test_levels_are_halves_rounded_up() -> None:
    assert level_sizes((33, 47), 4) == [(33, 47), (17, 24), (9, 12), (5, 6)]


def test_every_activation_moves_the_image(eye: Eye, purifier: UNetPurifier) -> None:
    activations = eye(torch.rand(2, 1, 28, 28))
    before = purifier.sample(activations, 1, seeded())
    for index in range(3):
        changed = list(activations)
        changed[index] = changed[index] + 1
        assert not torch.allclose(purifier.sample(changed, 1, seeded()), before)


@pytest.mark.parametrize(
    ("count", "grid"), [(49, ((7, 7), 0)), (50, ((7, 7), 1)), (12, ((3, 4), 0)), (13, ((3, 4), 1))]
)
def test_tokens_are_a_map_with_or_without_a_class_token(
    count: int, grid: tuple[tuple[int, int], int]
) -> None:
    assert token_grid(count, [(6, 8), (3, 4)]) == grid
    assert token_grid(15, [(6, 8), (3, 4)]) is None


def test_tokens_stand_where_the_map_that_they_are_would() -> None:
    tokens, maps = built([(50, 5)]), built([(5, 7, 7)])
    activation = torch.rand(2, 5, 7, 7)
    class_token = torch.rand(2, 1, 5)
    sequence = torch.cat([class_token, activation.flatten(2).transpose(1, 2)], dim=1)
    torch.testing.assert_close(
        tokens.sample([sequence], 2, seeded()), maps.sample([activation], 2, seeded())
    )


def test_tokens_of_a_larger_image_give_a_larger_one() -> None:
    purifier = built([(50, 5)])
    assert purifier.sample([torch.rand(2, 65, 5)], 1, seeded()).shape == (1, 2, 1, 32, 32)
    with pytest.raises(CarsoError, match="no square"):
        purifier.sample([torch.rand(2, 60, 5)], 1, seeded())


def test_vectors_alone_have_the_size_it_was_built_for() -> None:
    purifier = built([(9,), (15, 4)])  # fifteen tokens are no map
    activations = [torch.rand(2, 9), torch.rand(2, 15, 4)]
    assert purifier.sample(activations, 2, seeded()).shape == (2, 2, 1, 28, 28)


def test_noise_at_every_level_moves_the_image(eye: Eye, purifier: UNetPurifier) -> None:
    entries = purifier.enter(eye(torch.rand(1, 1, 28, 28)))
    noise = torch.zeros(1, purifier.draw(entries, 1, seeded()).shape[2])
    still = purifier.decode(entries, noise)
    start = 0
    for size in level_sizes((28, 28), len(WIDTHS)):
        moved = noise.clone()
        moved[0, start] = 5
        assert not torch.allclose(purifier.decode(entries, moved), still)
        start += 4 * size[0] * size[1]


def test_samples_differ_and_a_seed_gives_them_again(eye: Eye, purifier: UNetPurifier) -> None:
    activations = eye(torch.rand(2, 1, 28, 28))
    candidates = purifier.sample(activations, 3, seeded())
    for one, other in itertools.combinations(candidates, 2):
        assert not torch.equal(one, other)
    assert torch.equal(purifier.sample(activations, 3, seeded()), candidates)


def test_without_noise_all_candidates_are_the_same(eye: Eye) -> None:
    quiet = UNetPurifier((1, 28, 28), layers=["a"], shapes=[(8, 28, 28)], noise=0).eval()
    found = quiet.sample([torch.randn(3, 8, 28, 28)], 4, seeded())  # (4, 3, 1, 28, 28)
    assert found.shape == (4, 3, 1, 28, 28)
    torch.testing.assert_close(found[1:], found[:1].expand(3, -1, -1, -1, -1))
    assert not quiet.noises


def test_one_sample_is_the_sigmoid_of_its_logits(eye: Eye, purifier: UNetPurifier) -> None:
    activations = eye(torch.rand(2, 1, 28, 28))
    logits = purifier.pixel_logits(activations, seeded())
    torch.testing.assert_close(purifier.sample(activations, 1, seeded())[0], logits.sigmoid())


@pytest.mark.parametrize("size", [(28, 28), (9, 7)])
def test_a_batch_cut_in_two_draws_what_it_would_have_drawn_whole(
    size: tuple[int, int], eye: Eye, purifier: UNetPurifier
) -> None:
    images = torch.rand(5, 1, *size)
    whole = purifier.sample(eye(images), 2, seeded())
    source = seeded()
    parts = [purifier.sample(eye(part), 2, source) for part in images.split(2)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_processes_draw_what_one_would(eye: Eye, purifier: UNetPurifier) -> None:
    images = torch.rand(5, 1, 28, 28)
    whole = purifier.sample(eye(images), 2, seeded())
    for part in (slice(0, 2), slice(2, 5)):
        with shared(Share(part, 5)):
            own = purifier.sample(eye(images[part]), 2, seeded())
        torch.testing.assert_close(own, whole[:, part])


def test_it_learns_to_rebuild_an_image(eye: Eye) -> None:
    purifier = built([(3, 28, 28), (5, 14, 14), (7, 7, 7)]).train().requires_grad_(True)
    images = (torch.rand(8, 1, 28, 28, generator=seeded()) > 0.5).float()
    optimiser = torch.optim.Adam(purifier.parameters(), lr=1e-2)
    costs = []
    for _ in range(30):
        loss = purifier.loss(images, images, eye(images), seeded(), beta=1.0, free_bits=0.0)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        costs.append(loss.terms["reconstruction"].item())
    assert costs[-1] < costs[0] / 2


def test_deployed_it_learns_no_more(purifier: UNetPurifier) -> None:
    deployed = purifier.train().requires_grad_(True).deployed()
    assert not deployed.training
    assert not any(parameter.requires_grad for parameter in deployed.parameters())


def test_another_number_of_layers_or_of_blocks_is_one_clear_line(purifier: UNetPurifier) -> None:
    with pytest.raises(CarsoError, match="reads 3 layers, got 1"):
        purifier.sample([torch.rand(1, 3, 28, 28)], 1, seeded())
    with pytest.raises(CarsoError, match="blocks must be one number per level"):
        UNetPurifier((1, 28, 28), layers=["0"], shapes=[(9,)], widths=(4, 6), blocks=(1,))


def test_a_level_costs_its_blocks() -> None:
    def parameters(*blocks: int, up_blocks: tuple[int, ...] = ()) -> int:
        network = UNet(1, widths=(4, 6), blocks=blocks, up_blocks=up_blocks)
        return sum(parameter.numel() for parameter in network.parameters())

    fine = 2 * (9 * 4 * 4 + 2 * 4)  # two convolutions and two batch norms
    coarse = 2 * (9 * 6 * 6 + 2 * 6)
    assert parameters(2, 1) - parameters(1, 1) == 2 * fine  # down and up
    assert parameters(1, 2) - parameters(1, 1) == coarse
    assert parameters(2, 1, up_blocks=(1,)) - parameters(1, 1) == fine  # down alone
    assert parameters(1, 1, up_blocks=(0,)) == parameters(1, 1) - fine


def test_without_skips_only_the_coarsest_level_is_seen_on_the_way_up(eye: Eye) -> None:
    torch.manual_seed(0)
    entries = [
        torch.rand(2, width, *size)
        for width, size in zip(WIDTHS, level_sizes((8, 8), 3), strict=True)
    ]
    for skips in (True, False):
        network = UNet(1, widths=WIDTHS, blocks=BLOCKS, skips=skips).eval()
        found = network.down(entries)
        other = [torch.zeros_like(level) for level in found[:-1]]
        assert torch.equal(network.up(found), network.up([*other, found[-1]])) is not skips
        assert torch.equal(network(entries), network.up(found))


def test_a_summary_belongs_to_the_candidate_of_the_same_noise(
    eye: Eye, purifier: UNetPurifier
) -> None:
    activations = eye(torch.rand(2, 1, 28, 28))
    purifier.eval()
    pixels, summary = purifier.with_summary(activations, seeded(3))
    torch.testing.assert_close(pixels, purifier.pixel_logits(activations, seeded(3)))
    torch.testing.assert_close(summary, purifier.summary(activations, seeded(3)))
    assert summary.shape == (2, purifier.summary_size)
    assert not torch.equal(summary, purifier.summary(activations, seeded(4)))
