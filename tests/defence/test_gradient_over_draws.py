"""Gradients over many draws: those of separate passes, from one pass through the representation."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from noisy_defence import CLASSES, NAMES, SAMPLES, Counting, defence, images
from torch import Tensor

from carso.attacks.pgd import PGD
from carso.attacks.probe import Probe
from carso.defence import view as view_module
from carso.defence.defence import Carso
from carso.machine.many_draws import gradient_over_draws, sum_of_gradients
from carso.threats.linf import Linf

LABELS = torch.arange(6) % CLASSES
LOSS = partial(F.cross_entropy, target=LABELS, reduction="sum")


def both_ways(given: Carso, name: str, draws: int) -> tuple[Tensor, Tensor]:
    """The gradient together and pass by pass, from the same noise."""
    scores = given.view(name)
    given.seed(3)
    together = gradient_over_draws(scores, images(), LOSS, draws)
    given.seed(3)
    return together, sum_of_gradients(scores, images(), LOSS, draws)


@pytest.mark.parametrize("aggregation", ["double-exponential", "anchored"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_sum_of_separate_passes(
    name: str, aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        view_module, "CANDIDATES_AT_ONCE", 1
    )  # one draw at a time, as a loop has it
    given = defence()
    given.aggregation = aggregation
    together, apart = both_ways(given, name, draws=5)
    assert apart.abs().max() > 0
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("at_once", [1, 2 * 6 * SAMPLES, 5 * 6 * SAMPLES])
def test_several_draws_at_once_are_that_many_draws(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "CANDIDATES_AT_ONCE", at_once)
    given, heard = defence(), []

    def loss(scores: Tensor) -> Tensor:
        heard.append(scores.shape)
        return LOSS(scores)

    given.view("mean-logits").gradient_over_draws(images(), loss, 5)
    assert heard == [(6, CLASSES)] * 5


def test_draws_at_once_are_those_of_a_view_of_many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "CANDIDATES_AT_ONCE", 10**6)
    given = defence()
    weights = torch.randn(6, CLASSES, generator=torch.Generator().manual_seed(0))

    def linear(scores: Tensor) -> Tensor:  # the sum over draws is then their number times the mean
        return (weights * scores).sum()

    given.seed(3)
    found = given.view("mean-logits").gradient_over_draws(images(), linear, 4)
    given.seed(3)
    wanted = sum_of_gradients(given.view("mean-logits", draws=4), images(), linear, 1)
    torch.testing.assert_close(found, 4 * wanted, rtol=1e-4, atol=1e-6)


def test_the_representation_is_passed_once() -> None:
    given = defence()
    see = next(m for m in given.classifier.modules() if isinstance(m, Counting))
    given.representation.look(images())
    scores = given.view("mean-logits", samples=1)
    see.batches.clear()
    scores.gradient_over_draws(images(), LOSS, 7)
    alone = sum(see.batches) - 7 * 6  # beside those of the candidates
    see.batches.clear()
    sum_of_gradients(scores, images(), LOSS, 7)
    assert (alone, sum(see.batches) - 7 * 6) == (6, 7 * 6)


@pytest.mark.parametrize("fixed", [False, True])
def test_where_draws_cannot_be_joined_it_is_the_loop(fixed: bool) -> None:
    given = defence()
    given.max_batch = None if fixed else 8
    scores = given.view("mean-logits", fixed=fixed)
    given.seed(3)
    together = scores.gradient_over_draws(images(), LOSS, 3)
    given.seed(3)
    assert torch.equal(together, sum_of_gradients(scores, images(), LOSS, 3))


def test_the_probe_counts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "CANDIDATES_AT_ONCE", 1)
    given = defence()
    attack = PGD(steps=2, step_size=0.01, eot=3)
    counted, examples = [], []
    for hidden in (False, True):
        given.seed(3)
        scores = given.view("mean-logits")
        model = torch.nn.Sequential(scores) if hidden else scores  # which does not show the method
        probe = Probe(model, eot=3, period=2)
        threat, own = Linf(eps=0.05), torch.Generator().manual_seed(0)
        examples.append(attack(probe, images(), LABELS, threat=threat, generator=own))
        gradients = probe.gradients.tolist()
        counted.append(
            (probe.forwards, probe.backwards, probe.outputs, probe.not_finite, gradients)
        )
    assert counted[0] == counted[1]
    assert counted[0][:2] == (36, 36)
    torch.testing.assert_close(examples[0], examples[1], rtol=0, atol=1e-5)
