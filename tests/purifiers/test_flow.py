"""The flow purifier: its steps follow the velocity that it was trained for, inside [0, 1]."""

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Generator, Tensor, nn

from carso.errors import CarsoError
from carso.purifiers.flow.flow import FlowPurifier
from carso.purifiers.kinds import build
from carso.randomness import Share, shared

WIDTHS, BLOCKS = (4, 6, 8), (1, 1, 1)
SHAPES = [(3, 28, 28), (5, 14, 14)]


class Glance(nn.Module):
    """Activations of an image at its own size and at half of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 5, 3, stride=2, padding=1)

    def forward(self, images: Tensor) -> list[Tensor]:
        first = self.first(images)
        return [first, self.second(first)]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture
def glance() -> Glance:
    torch.manual_seed(0)
    return Glance().requires_grad_(False)


def built(steps: int = 3) -> FlowPurifier:
    torch.manual_seed(1)
    purifier = FlowPurifier(
        (1, 28, 28), layers=["0", "1"], shapes=SHAPES, widths=WIDTHS, blocks=BLOCKS, steps=steps
    )
    return purifier.deployed()


@pytest.fixture
def purifier() -> FlowPurifier:
    return built()


Word = Callable[[Sequence[Tensor], Tensor, Tensor], Tensor]


def says(purifier: FlowPurifier, word: Word, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let its network say something that is known."""
    monkeypatch.setattr(purifier, "clean_logits", word)


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (33, 47), (6, 4)])
def test_one_set_of_weights_serves_every_size(
    size: tuple[int, int], glance: Glance, purifier: FlowPurifier
) -> None:
    activations = glance(torch.rand(2, 1, *size))
    candidates = purifier.sample(activations, 3, seeded())
    assert candidates.shape == (3, 2, 1, *size)
    assert float(candidates.min()) >= 0
    assert float(candidates.max()) <= 1
    assert purifier.pixel_logits(activations, seeded()).shape == (2, 1, *size)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_its_steps_are_eulers_along_the_velocity(
    steps: int, glance: Glance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """z + v / K with v = (x - z) / (1 - t), for an x that depends on z and t."""
    purifier = built(steps)
    seen: list[float] = []

    def word(_: Sequence[Tensor], z: Tensor, time: Tensor) -> Tensor:
        seen.append(float(time[0]))
        return 0.5 * z + time.view(-1, 1, 1, 1)

    says(purifier, word, monkeypatch)
    entries = purifier.enter(glance(torch.rand(2, 1, 28, 28)))
    noise = purifier.draw(entries, 1, seeded())[0]
    found = torch.sigmoid(purifier.decode(entries, noise))
    z = noise[:, : 28 * 28].view(2, 1, 28, 28).double()
    for step in range(steps):
        time = step / steps
        velocity = (2 * torch.sigmoid(0.5 * z + time) - 1 - z) / (1 - time)
        z = z + velocity / steps
    torch.testing.assert_close(found.double(), (z + 1) / 2, rtol=1e-4, atol=1e-5)
    assert seen == pytest.approx([step / steps for step in range(steps)])


def test_gradients_pass_all_steps(glance: Glance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word weighs in the result, down to the first, and so does each activation."""
    purifier = built(4)
    words: list[Tensor] = []
    real = purifier.clean_logits

    def listening(entries: Sequence[Tensor], z: Tensor, time: Tensor) -> Tensor:
        words.append(real(entries, z, time))
        return words[-1]

    says(purifier, listening, monkeypatch)
    activations = [a.requires_grad_(True) for a in glance(torch.rand(2, 1, 28, 28))]
    total = purifier.pixel_logits(activations, seeded()).square().sum()
    for gradient in torch.autograd.grad(total, [*words, *activations]):
        assert float(gradient.abs().max()) > 0
    assert len(words) == 4


def test_the_gradient_is_that_of_finite_differences(glance: Glance) -> None:
    purifier = built(3).double()
    entries = [
        e.double() for e in purifier.enter([a.double() for a in glance(torch.rand(1, 1, 8, 8))])
    ]
    noise = purifier.draw(entries, 1, seeded())[0].double()
    finest = entries[0].detach().requires_grad_(True)

    def image(entry: Tensor) -> Tensor:
        return torch.sigmoid(purifier.decode([entry, *entries[1:]], noise)).square().sum()

    (gradient,) = torch.autograd.grad(image(finest), finest)
    direction = torch.randn(finest.shape, generator=seeded(), dtype=torch.float64)
    size = 1e-6
    slope = (image(finest + size * direction) - image(finest - size * direction)) / (2 * size)
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-8)


def test_the_loss_is_of_points_on_the_straight_way_from_noise_to_the_image(
    glance: Glance, purifier: FlowPurifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = torch.rand(400, 1, 8, 8, generator=seeded())
    seen: dict[str, Tensor] = {}

    def word(_: Sequence[Tensor], z: Tensor, time: Tensor) -> Tensor:
        seen.update(z=z, time=time)
        return torch.logit(clean)  # it knows: the cost is the entropy of the pixels

    says(purifier, word, monkeypatch)
    loss = purifier.loss(clean, clean, glance(clean), seeded(), beta=1.0, free_bits=0.0)
    entropy = -(clean * clean.log() + (1 - clean) * (1 - clean).log()).nan_to_num().sum()
    torch.testing.assert_close(loss.total, entropy)
    time = seen["time"]
    assert 0 <= float(time.min()) < 0.02
    assert 0.98 < float(time.max()) <= 1
    share = time.view(-1, 1, 1, 1)
    noise = (seen["z"] - share * (2 * clean - 1)) / (1 - share)
    early = noise[time < 0.9]
    assert abs(float(early.mean())) < 0.02
    assert float(early.std()) == pytest.approx(1, abs=0.02)
    assert set(loss.terms) == {"reconstruction"}


def test_time_and_state_and_every_activation_move_what_it_says(
    glance: Glance, purifier: FlowPurifier
) -> None:
    activations = glance(torch.rand(2, 1, 28, 28))
    entries = purifier.enter(activations)
    z, time = torch.zeros(2, 1, 28, 28), torch.full((2,), 0.25)
    before = purifier.clean_logits(entries, z, time)
    assert not torch.allclose(purifier.clean_logits(entries, z + 1, time), before)
    assert not torch.allclose(purifier.clean_logits(entries, z, time + 0.5), before)
    for index in range(2):
        changed = list(activations)
        changed[index] = changed[index] + 1
        assert not torch.allclose(purifier.clean_logits(purifier.enter(changed), z, time), before)


def test_what_it_says_of_an_image_does_not_depend_on_its_batch(
    glance: Glance, purifier: FlowPurifier
) -> None:
    """While it trains as well: each image of a batch has a time of its own."""
    entries = purifier.train().enter(glance(torch.rand(3, 1, 28, 28)))
    z, time = torch.randn(3, 1, 28, 28), torch.tensor([0.0, 0.5, 0.9])
    whole = purifier.clean_logits(entries, z, time)
    for number in range(3):
        one = slice(number, number + 1)
        alone = purifier.clean_logits([entry[one] for entry in entries], z[one], time[one])
        torch.testing.assert_close(alone, whole[one])


def test_samples_differ_and_a_seed_gives_them_again(glance: Glance, purifier: FlowPurifier) -> None:
    activations = glance(torch.rand(2, 1, 28, 28))
    candidates = purifier.sample(activations, 3, seeded())
    for one, other in itertools.combinations(candidates, 2):
        assert not torch.equal(one, other)
    assert torch.equal(purifier.sample(activations, 3, seeded()), candidates)


def test_one_sample_is_the_sigmoid_of_its_logits(glance: Glance, purifier: FlowPurifier) -> None:
    activations = glance(torch.rand(2, 1, 28, 28))
    logits = purifier.pixel_logits(activations, seeded())
    torch.testing.assert_close(purifier.sample(activations, 1, seeded())[0], logits.sigmoid())


@pytest.mark.parametrize("size", [(28, 28), (9, 7)])
def test_a_batch_cut_in_two_draws_what_it_would_have_drawn_whole(
    size: tuple[int, int], glance: Glance, purifier: FlowPurifier
) -> None:
    images = torch.rand(5, 1, *size)
    whole = purifier.sample(glance(images), 2, seeded())
    source = seeded()
    parts = [purifier.sample(glance(part), 2, source) for part in images.split(2)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


def test_processes_draw_and_pay_what_one_would(glance: Glance, purifier: FlowPurifier) -> None:
    images = torch.rand(5, 1, 28, 28)
    whole = purifier.sample(glance(images), 2, seeded())

    def cost(part: slice) -> float:
        own = images[part]
        return float(purifier.loss(own, own, glance(own), seeded(), beta=1, free_bits=0).total)

    together = cost(slice(None))
    apart = 0.0
    for part in (slice(0, 2), slice(2, 5)):
        with shared(Share(part, 5)):
            own = purifier.sample(glance(images[part]), 2, seeded())
            apart += cost(part)
        torch.testing.assert_close(own, whole[:, part])
    assert apart == pytest.approx(together, rel=1e-5)


def test_it_learns_to_rebuild_an_image_and_steps_keep_it(glance: Glance) -> None:
    purifier = built().train().requires_grad_(True)
    images = (torch.rand(8, 1, 28, 28, generator=seeded()) > 0.5).float()
    optimiser = torch.optim.Adam(purifier.parameters(), lr=1e-2)
    source, costs = seeded(), []
    for _ in range(40):
        loss = purifier.loss(images, images, glance(images), source, beta=1.0, free_bits=0.0)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        costs.append(loss.terms["reconstruction"].item())
    assert costs[-1] < costs[0] / 2
    rebuilt = purifier.deployed().sample(glance(images), 1, seeded())[0]
    assert float((rebuilt - images).abs().mean()) < 0.3  # a guess has 0.5


def test_it_is_built_by_its_name_and_has_no_size_of_its_own() -> None:
    purifier = build(
        "flow", (1, 28, 28), layers=["0", "1"], shapes=SHAPES, widths=WIDTHS, blocks=BLOCKS
    )
    assert isinstance(purifier, FlowPurifier)
    assert purifier.image_shape is None
    assert purifier.steps == 4
    widths = {parameter.shape[0] for parameter in purifier.parameters()}
    assert max(widths) <= max(WIDTHS)


def test_deployed_it_learns_no_more(purifier: FlowPurifier) -> None:
    deployed = purifier.train().requires_grad_(True).deployed()
    assert not deployed.training
    assert not any(parameter.requires_grad for parameter in deployed.parameters())


def test_another_number_of_layers_is_one_clear_line(purifier: FlowPurifier) -> None:
    with pytest.raises(CarsoError, match="reads 2 layers, got 1"):
        purifier.sample([torch.rand(1, 3, 28, 28)], 1, seeded())
