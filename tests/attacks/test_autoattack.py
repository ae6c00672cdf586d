"""The adapter gives what `pyautoattack` gives; its parts aim, stop and count as they say."""

import logging
import sys
from types import SimpleNamespace

import pyautoattack
import pytest
import torch
from pyautoattack.checks import check_dynamic
from torch import Generator, Tensor, nn

from carso.attacks.apgd import APGD
from carso.attacks.attack import listening
from carso.attacks.autoattack import AutoAttack, limit_targets
from carso.attacks.fab import FAB
from carso.attacks.library import LOGGER, library_calls, seed_from
from carso.attacks.margin import margins
from carso.attacks.probe import Probe
from carso.attacks.square import Square
from carso.errors import CarsoError
from carso.threats.linf import Linf

SHAPE = (1, 8, 8)


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(count: int = 12) -> Tensor:
    return torch.rand(count, *SHAPE, generator=generator())


class Linear(nn.Module):
    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        weight = torch.randn(classes, 64, generator=generator(1))
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T


class Bent(Linear):
    """Its pixels matter in waves, so that where an attack ends depends on where it began."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((100 * x).sin() / 20)


def labels_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).argmax(dim=1)


def test_standard_is_pyautoattack_called_directly() -> None:
    """Bit for bit, with images that are wrong, broken by the first attack, and never broken."""
    model, x = Bent(10), images(4)
    y = labels_of(model, x)
    y[0] = (y[0] + 1) % 10
    threat = Linf(eps=0.002)
    with torch.random.fork_rng():
        direct = pyautoattack.AutoAttack(model, eps=threat.eps, version="standard", seed=7)
        examples, labels = direct.run_standard_evaluation(x, y, batch_size=len(x))
    attack = AutoAttack(version="standard", seed=7)
    with listening() as heard:
        found = attack(model, x, y, threat=threat, generator=generator())
    assert torch.equal(found, examples)
    assert torch.equal(labels_of(model, found), labels)
    assert 0 < (labels != y)[1:].sum() < 3  # otherwise this would show little
    assert heard == []


def test_rand_is_pyautoattack_called_directly() -> None:
    """And it has the steps and draws that a probe is told of."""
    model, x = Bent(10), images(3)[1:]
    y = labels_of(model, x)
    with torch.random.fork_rng():
        direct = pyautoattack.AutoAttack(model, eps=0.002, version="rand", seed=2)
        examples, _ = direct.run_standard_evaluation(x, y, batch_size=len(x))
    attack = AutoAttack(version="rand", seed=2)
    probe = Probe(model, eot=attack.facts.eot, period=attack.facts.period)
    found = attack(probe, x, y, threat=Linf(eps=0.002), generator=generator())
    assert torch.equal(found, examples)
    assert int((labels_of(model, found) != y).sum()) == 1
    # The cross-entropy sees both images, the difference of logits the one that stands.
    assert probe.gradients[0].tolist() == [3] * attack.facts.period
    assert probe.backwards == 3 * attack.facts.period * attack.facts.eot


@pytest.mark.parametrize(
    ("classes", "version", "attacks", "targets"),
    [
        (2, "standard", ["apgd-ce", "fab-t", "square"], 1),
        (3, "standard", ["apgd-ce", "fab-t", "square"], 2),
        (4, "standard", ["apgd-ce", "apgd-t", "fab-t", "square"], 3),
        (10, "standard", ["apgd-ce", "apgd-t", "fab-t", "square"], 9),
        (100, "standard", ["apgd-ce", "apgd-t", "fab-t", "square"], 9),
        (2, "rand", ["apgd-ce"], 1),
        (3, "rand", ["apgd-ce", "apgd-dlr"], 2),
        (10, "rand", ["apgd-ce", "apgd-dlr"], 9),
    ],
)
def test_few_classes_leave_fewer_targets_and_attacks(
    classes: int, version: str, attacks: list[str], targets: int
) -> None:
    ensemble = pyautoattack.AutoAttack(Linear(10), version=version)
    limit_targets(ensemble, classes)
    assert ensemble.attacks_to_run == attacks
    assert ensemble.apgd_targeted.n_target_classes == targets
    assert ensemble.fab.n_target_classes == targets


# What the library says and draws.


def test_warnings_of_the_library_are_collected_once_and_go_nowhere_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Probabilities(nn.Module):
        """It draws nothing, but its outputs are no logits."""

        def forward(self, x: Tensor) -> Tensor:
            return Linear()(x).softmax(dim=1)

    model, x = Probabilities(), images(4)
    wrong = (labels_of(model, x) + 1) % 5
    attack = AutoAttack()
    before = LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)
    with caplog.at_level(logging.DEBUG), listening() as heard:
        for _ in range(2):
            attack(model, x, wrong, threat=Linf(eps=0.1), generator=generator())
    assert len(heard) == 1
    assert "probability distribution" in heard[0]
    assert caplog.records == []
    assert (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)) == before


def test_standard_on_a_noisy_model_is_warned_of() -> None:
    source = generator(5)

    class Noisy(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.randn(len(x), 5, generator=source)

    x = images(3)
    attack = AutoAttack()
    wrong = torch.full((3,), int(Linear()(x).mean(dim=0).argmin()))
    with listening() as heard:
        attack(Noisy(), x, wrong, threat=Linf(eps=0.001), generator=generator())
    assert any("randomized" in text for text in heard)


def test_a_debugger_goes_on_after_the_library_has_traced() -> None:
    def debugging(*_: object) -> None:
        pass

    before = sys.gettrace()
    sys.settrace(debugging)
    try:
        with library_calls():
            check_dynamic(Linear(), images(2))
            assert sys.gettrace() is not debugging
        found = sys.gettrace()
    finally:
        sys.settrace(before)
    assert found is debugging


def test_library_calls_are_seeded_by_the_generator_and_undone_after_an_error() -> None:
    def drawn(source: Generator) -> Tensor:
        with library_calls(source):
            return torch.rand(3)

    state, before = torch.get_rng_state(), list(LOGGER.handlers)
    assert torch.equal(drawn(generator(1)), drawn(generator(1)))
    assert not torch.equal(drawn(generator(1)), drawn(generator(2)))
    source = generator(1)
    assert not torch.equal(drawn(source), drawn(source))

    def stopped() -> None:
        with library_calls(generator(1)):
            torch.rand(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert torch.equal(torch.get_rng_state(), state)
    assert LOGGER.handlers == before


def test_a_seed_for_a_library_comes_from_the_generator() -> None:
    source = generator(1)
    first, second = seed_from(source), seed_from(source)
    assert first == seed_from(generator(1))
    assert first != second
    assert 0 <= first < 2**31


# APGD.


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(CarsoError, match="losses of APGD are ce, dlr and dlr-targeted, got 'cw'"):
        APGD(loss="cw")  # type: ignore[arg-type]


@pytest.mark.parametrize("targets", [1, 3, 9])
def test_a_targeted_attack_aims_at_the_likeliest_other_classes_first(targets: int) -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    y[0] = (y[0] + 1) % 5
    aims = APGD(loss="dlr-targeted", targets=targets).aims(model, x, y)
    assert len(aims) == min(targets, 4)
    order = model(x).argsort(dim=1, descending=True)
    for i in range(len(x)):
        others = [int(k) for k in order[i] if k != y[i]]
        assert [int(aim[i]) for aim in aims if aim is not None] == others[: len(aims)]


def test_a_targeted_attack_needs_four_classes() -> None:
    model, x = Linear(3), images()
    with pytest.raises(CarsoError, match="needs 4 classes, got 3"):
        APGD(loss="dlr-targeted")(
            model, x, labels_of(model, x), threat=Linf(eps=0.1), generator=generator()
        )


def test_the_dlr_loss_needs_three_classes() -> None:
    model, x = Linear(2), images()
    with pytest.raises(CarsoError, match="needs 3 classes, got 2"):
        APGD(loss="dlr")(model, x, labels_of(model, x), threat=Linf(eps=0.1), generator=generator())
    three = Linear(3)
    y = labels_of(three, x)
    found = APGD(loss="dlr")(three, x, y, threat=Linf(eps=0.1), generator=generator())
    assert (labels_of(three, found) != y).any()


@pytest.mark.parametrize(
    ("attack", "runs"),
    [(APGD(loss="ce", steps=5, restarts=3), 3), (APGD(loss="dlr-targeted", steps=5), 4)],
    ids=["ce", "dlr-targeted"],
)
def test_later_runs_are_spent_on_standing_images_only(attack: APGD, runs: int) -> None:
    model, x = Linear(), images()
    y = labels_of(model, x)
    probe = Probe(model, period=attack.facts.period)
    attack(probe, x, y, threat=Linf(eps=0.02), generator=generator())
    per_step = probe.gradients[0].unique().tolist()
    assert len(per_step) == 1
    assert len(x) < per_step[0] < runs * len(x)
    broken = Probe(model)
    attack(broken, x, (y + 1) % 5, threat=Linf(eps=0.02), generator=generator())
    assert broken.backwards == 0


# FAB and Square.


def test_fab_follows_the_nearest_mistake_to_the_edge_of_the_ball() -> None:
    """On a linear model the margin falls all along, so that the edge is where it ends."""
    model, x = Linear(), 0.2 + 0.6 * images()
    y = labels_of(model, x)
    found = FAB(steps=20)(model, x, y, threat=Linf(eps=0.1), generator=generator())
    broken = labels_of(model, found) != y
    assert broken.all()
    torch.testing.assert_close((found - x).abs().amax(dim=(1, 2, 3)), torch.full((12,), 0.1))
    assert (margins(model(found), y) < -0.5).all()


def test_square_asks_no_more_than_its_queries() -> None:
    model, x = Linear(), images(3)
    y = labels_of(model, x)
    probe = Probe(model)
    Square(queries=40)(probe, x, y, threat=Linf(eps=1e-5), generator=generator())
    assert probe.backwards == 0
    assert probe.forwards <= 3 * (40 + 3)  # and a look before the first and after the last


class Fussy(nn.Module):
    """A model that takes no empty batch, like `Carso`; its answer to what is changed is a tie."""

    def __init__(self, tie: float) -> None:
        super().__init__()
        self.tie = tie

    def forward(self, x: Tensor) -> Tensor:
        assert len(x)
        right = (x == 0.5).flatten(1).all(dim=1)
        return torch.stack([torch.where(right, 1.0, self.tie), torch.zeros(len(x))], dim=1)


@pytest.mark.parametrize("tie", [0.0, float("nan")])
def test_square_does_not_query_an_empty_batch(tie: float) -> None:
    """Where its first try leaves every margin at zero or NaN, the library goes on with no image."""
    x = torch.full((2, *SHAPE), 0.5)
    y = torch.zeros(2, dtype=torch.int64)
    found = Square(queries=5)(Fussy(tie), x, y, threat=Linf(eps=0.1), generator=generator())
    assert found.shape == x.shape


@pytest.mark.parametrize(("queries", "rescaled"), [(100, True), (4999, True), (5000, False)])
def test_fewer_queries_go_through_the_whole_schedule(
    monkeypatch: pytest.MonkeyPatch, queries: int, rescaled: bool
) -> None:
    made: list[dict[str, object]] = []

    def library(model: object, **settings: object) -> SimpleNamespace:
        made.append(settings)
        return SimpleNamespace(perturb=lambda x, y: x)

    monkeypatch.setattr("carso.attacks.square.SquareAttack", library)
    Square(queries=queries)(Linear(), images(), labels_of(Linear(), images()),
                            threat=Linf(eps=0.1), generator=generator())  # fmt: skip
    assert made[0]["n_queries"] == queries
    assert made[0]["resc_schedule"] is rescaled
