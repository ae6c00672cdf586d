"""Aggregations equal arbitrary-precision arithmetic, whatever the scale of the logits."""

from collections.abc import Callable

import mpmath
import pytest
import torch
import torch.nn.functional as F
from mpmath import mp
from torch import Tensor

from carso.defence.aggregation import (
    AGGREGATIONS,
    aggregation,
    double_exponential,
    majority_vote,
    mean_logits,
    mean_probabilities,
    rounded,
    view,
)
from carso.errors import CarsoError
from carso.scenario import schema

FLOAT32_MAX = torch.finfo(torch.float32).max
SCALES = (0.1, 1.0, 5.0, 15.0, 40.0, 85.0, 200.0, 1e3, 1e4)
VIEW_NAMES = ("mean-logits", "logsumexp", "score", "log-prob", "released")
DIFFERENTIABLE = (double_exponential, mean_logits, mean_probabilities)

Numbers = list[mpmath.mpf]


# The definitions of the paper, in arithmetic that neither overflows nor rounds visibly.


def exact_scores(candidates: list[Numbers]) -> Numbers:
    """s_i = sum_a exp(l_i^a), less the largest: every digit before the point and 50 behind it."""
    largest = max(max(candidate) for candidate in candidates)
    mp.dps = 60 + int(max(0, largest) / mp.ln10) + 1
    scores = [sum(map(mp.exp, column)) for column in zip(*candidates, strict=True)]
    top = max(scores)
    return [score - top for score in scores]


def exact_log_softmax(scores: Numbers) -> Numbers:
    top = max(scores)
    gaps = [score - top for score in scores]
    normaliser = mp.log(sum(mp.exp(gap) if gap > -1e6 else mp.zero for gap in gaps))
    return [gap - normaliser for gap in gaps]


def exact_double_exponential(candidates: list[Numbers]) -> Numbers:
    return exact_log_softmax(exact_scores(candidates))


def exact_mean_logits(candidates: list[Numbers]) -> Numbers:
    columns = zip(*candidates, strict=True)
    return exact_log_softmax([sum(column) / len(candidates) for column in columns])


def exact_mean_probabilities(candidates: list[Numbers]) -> Numbers:
    log_probabilities = [exact_log_softmax(candidate) for candidate in candidates]
    columns = zip(*log_probabilities, strict=True)
    return [mp.log(sum(map(mp.exp, column)) / len(candidates)) for column in columns]


def exact_majority_vote(candidates: list[Numbers]) -> Numbers:
    votes = [candidate.index(max(candidate)) for candidate in candidates]
    shares = [mp.mpf(votes.count(label)) / len(votes) for label in range(len(candidates[0]))]
    return [mp.log(share) if share else -mp.inf for share in shares]


EXACT: dict[str, Callable[[list[Numbers]], Numbers]] = {
    "double-exponential": exact_double_exponential,
    "mean-logits": exact_mean_logits,
    "mean-probabilities": exact_mean_probabilities,
    "majority-vote": exact_majority_vote,
    "anchored": exact_mean_logits,  # of logits that are anchored already
}


def exactly(name: str, logits: Tensor) -> Tensor:
    """The aggregation of `logits` (N, B, K), rounded to float32 only at the end: (B, K)."""
    rows = []
    for image in logits.unbind(dim=1):
        with mp.workdps(60):
            row = EXACT[name]([[mp.mpf(value) for value in c] for c in image.tolist()])
            rows.append([float(value) if value >= -FLOAT32_MAX else -torch.inf for value in row])
    return torch.tensor(rows, dtype=torch.float32)


def random_logits(scale: float, *shape: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return scale * (2 * torch.rand(shape, generator=source) - 1)


def assert_exact(name: str, logits: Tensor) -> None:
    got = aggregation(name)(logits)
    assert got.dtype == logits.dtype
    torch.testing.assert_close(got, exactly(name, logits), rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_random_logits_give_what_exact_arithmetic_gives(name: str, scale: float) -> None:
    for samples, classes in ((1, 3), (8, 10)):
        assert_exact(name, random_logits(scale, samples, 2, classes, seed=samples))


@pytest.mark.parametrize("scale", [3, 30, 60, 100, 10_000])
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_whole_numbers_which_tie_often_give_what_exact_arithmetic_gives(
    name: str, scale: int
) -> None:
    """Where the largest logits of two classes are equal, the smaller ones decide."""
    logits = random_logits(scale, 3, 4, 6).round()
    logits[0, :, 1] = logits[0, :, 0] = scale
    assert_exact(name, logits)


@pytest.mark.parametrize(
    "candidates",
    [
        [[1e4, 1e4, 1e4]],
        [[-1e4, -1e4, -1e4]],
        [[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]],
        [[1e4, -1e4, -1e4]] * 8,
        [[1e4, 9999.999, 9999.0]],  # neighbours in float32
        [[88.0, 88.00001, -1e4], [88.00001, 88.0, -1e4]],
        [[40.0, 40.0, 39.0], [5.0, -10.0, 39.0]],  # s differs by 148 in 2e17
        [[800.0, 800.0, 0.0], [1.0, 0.0, 0.0]],  # s differs by 1.7 in e^800
        [[800.0, 799.0, 0.0], [790.0, 795.0, 0.0]],
        [[9000.0, 3.0, 2.0], [1.0, 9000.0, 2.0]],  # s differs by e^3 - e^1 in e^9000
        [[800.0, 800.0, 800.0], [600.0, 600.0, 5.0], [5.0, 4.0, 5.0]],  # ties within ties
        [[-50.0, -60.0, -1e4], [-1e4, -1e4, -1e4]],  # s is zero for all purposes: uniform
        [[0.0, 0.0, 0.0], [-0.0, 0.0, 1e-30]],
    ],
)
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_hard_logits_give_what_exact_arithmetic_gives(
    name: str, candidates: list[list[float]]
) -> None:
    assert_exact(name, torch.tensor(candidates).unsqueeze(1))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_nothing_is_nan_and_probabilities_sum_to_one(name: str, scale: float) -> None:
    for seed in range(20):
        log_probabilities = aggregation(name)(random_logits(scale, 8, 16, 10, seed=seed))
        assert not log_probabilities.isnan().any()
        assert (log_probabilities <= 1e-7).all()
        total = log_probabilities.double().exp().sum(dim=1)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_labels_are_those_of_exact_arithmetic(name: str) -> None:
    """Sure candidates that disagree leave sums which float32, or float64, cannot tell apart."""
    source = torch.Generator().manual_seed(0)
    logits = 30 * torch.randn(4, 1500, 10, generator=source)
    labels = []
    for image in logits.unbind(dim=1):
        with mp.workdps(150):
            row = EXACT[name]([[mp.mpf(value) for value in c] for c in image.tolist()])
        labels.append(row.index(max(row)))
    assert aggregation(name)(logits).argmax(dim=1).tolist() == labels


def test_rounding_takes_the_lead_from_nobody() -> None:
    """One part in 1e12 decides, which the float32 of the result cannot hold."""
    logits = torch.tensor([[[1.0, 1.0 + 2**-40, 0.5]]], dtype=torch.float64)
    for name in ("double-exponential", "mean-logits", "mean-probabilities"):
        exact = aggregation(name)(logits)
        found = rounded(exact, exact.argmax(dim=1), torch.zeros(1))
        assert found.dtype == torch.float32
        assert found.argmax(dim=1).tolist() == [1]
        torch.testing.assert_close(found, exact.float(), rtol=3e-7, atol=0)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_a_device_without_float64_loses_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carso.defence.aggregation.WITHOUT_FLOAT64", ("cpu",))
    for scale in (89.0, 1e4):
        assert_exact(name, random_logits(scale, 4, 3, 5))


@pytest.mark.parametrize("scale", SCALES)
def test_order_of_candidates_changes_no_bit_of_the_double_exponential(scale: float) -> None:
    logits = random_logits(scale, 8, 16, 10)
    for seed in range(20):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(double_exponential(logits[order]), double_exponential(logits))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_order_of_candidates_and_of_classes_does_not_matter(name: str, scale: float) -> None:
    logits = random_logits(scale, 5, 8, 7)
    source = torch.Generator().manual_seed(0)
    candidates = torch.randperm(5, generator=source)
    classes = torch.randperm(7, generator=source)
    whole = aggregation(name)(logits)
    torch.testing.assert_close(aggregation(name)(logits[candidates]), whole)
    torch.testing.assert_close(aggregation(name)(logits[..., classes]), whole[:, classes])


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_images_of_a_batch_do_not_meet(name: str) -> None:
    logits = random_logits(30.0, 5, 8, 7)
    alone = [aggregation(name)(logits[:, i : i + 1]) for i in range(8)]
    torch.testing.assert_close(aggregation(name)(logits), torch.cat(alone))


@pytest.mark.parametrize("name", ["mean-logits", "mean-probabilities", "majority-vote"])
def test_repeated_candidates_leave_an_average_as_it_is(name: str) -> None:
    logits = random_logits(20.0, 3, 8, 5)
    repeated = aggregation(name)(logits.repeat(4, 1, 1))
    torch.testing.assert_close(repeated, aggregation(name)(logits))


def test_repeated_candidates_multiply_the_score_of_the_double_exponential() -> None:
    logits = random_logits(4.0, 3, 8, 5)
    score = logits.double().exp().sum(dim=0)
    for copies in (1, 2, 7):
        repeated = double_exponential(logits.repeat(copies, 1, 1))
        torch.testing.assert_close(repeated, (copies * score).log_softmax(-1).float())


@pytest.mark.parametrize("name", ["double-exponential", "mean-logits", "mean-probabilities"])
def test_classes_with_the_same_logits_share_evenly(name: str) -> None:
    logits = random_logits(100.0, 6, 4, 3)
    logits = torch.cat([logits, logits.flip(0)], dim=-1)  # the same logits in another order
    first, second = aggregation(name)(logits).chunk(2, dim=-1)
    torch.testing.assert_close(first, second)


def test_one_candidate_is_its_own_average() -> None:
    logits = random_logits(50.0, 1, 8, 5)
    for average in (mean_logits, mean_probabilities):
        torch.testing.assert_close(average(logits), logits[0].double().log_softmax(-1).float())


@pytest.mark.parametrize("aggregate", DIFFERENTIABLE)
@pytest.mark.parametrize("scale", [0.0, 0.5, 2.0])
def test_gradients_match_finite_differences(
    aggregate: Callable[[Tensor], Tensor], scale: float
) -> None:
    """At scale 0 all candidates and all classes tie."""
    logits = random_logits(scale, 3, 2, 4).double().requires_grad_(True)
    assert torch.autograd.gradcheck(aggregate, (logits,))


@pytest.mark.parametrize("aggregate", DIFFERENTIABLE)
def test_gradients_match_finite_differences_where_only_the_largest_logits_tie(
    aggregate: Callable[[Tensor], Tensor],
) -> None:
    logits = random_logits(1.0, 3, 2, 4).double()
    logits[1, :, :2] = 1.5
    logits.requires_grad_(True)
    assert torch.autograd.gradcheck(aggregate, (logits,))


def test_gradient_of_the_double_exponential_is_its_closed_form() -> None:
    """d log P_y / d l_i^a = ([i = y] - P_i) exp(l_i^a)."""
    logits = random_logits(5.0, 4, 6, 3).double().requires_grad_(True)
    scores = logits.detach().exp().sum(dim=0)
    for label in range(3):
        log_probabilities = double_exponential(logits)
        (gradient,) = torch.autograd.grad(log_probabilities[:, label].sum(), logits)
        chosen = F.one_hot(torch.tensor(label), 3)
        closed_form = (chosen - scores.softmax(-1)) * logits.detach().exp()
        torch.testing.assert_close(gradient, closed_form)


def test_majority_vote_counts_votes_whatever_their_sign() -> None:
    logits = torch.tensor([[-1.0, -2.0, -3.0], [-9.0, -8.0, -10.0], [-1.0, -5.0, -5.0]])
    shares = majority_vote(logits.unsqueeze(1)).exp()
    torch.testing.assert_close(shares, torch.tensor([[2 / 3, 1 / 3, 0.0]]))


@pytest.mark.parametrize("scale", SCALES)
def test_majority_vote_has_a_gradient_of_zero(scale: float) -> None:
    logits = random_logits(scale, 3, 4, 5).requires_grad_(True)
    (gradient,) = torch.autograd.grad(
        F.cross_entropy(majority_vote(logits), torch.arange(4)), logits
    )
    assert (gradient == 0).all()


def test_an_unknown_aggregation_is_an_error_that_lists_them_all() -> None:
    with pytest.raises(CarsoError, match="'softmax'") as caught:
        aggregation("softmax")
    assert set(AGGREGATIONS) == set(EXACT)
    assert all(name in str(caught.value) for name in EXACT)


def test_an_unknown_view_is_an_error_that_lists_them_all() -> None:
    with pytest.raises(CarsoError, match="'log_prob'") as caught:
        view("log_prob", double_exponential)
    assert all(name in str(caught.value) for name in VIEW_NAMES)


def test_views_are_their_formulas() -> None:
    logits = random_logits(8.0, 4, 6, 5)
    wide = logits.double()
    formulas = {
        "mean-logits": wide.sum(dim=0) / 4,
        "logsumexp": wide.exp().sum(dim=0).log(),
        "score": wide.exp().sum(dim=0),
    }
    for name, expected in formulas.items():
        got = view(name, double_exponential)(logits)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, expected.float(), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_log_prob_is_the_view_of_what_the_defence_says(name: str) -> None:
    logits = random_logits(3.0, 4, 6, 5)
    log_prob = view("log-prob", aggregation(name))
    assert torch.equal(log_prob(logits), aggregation(name)(logits))


@pytest.mark.parametrize("name", ["mean-logits", "logsumexp"])
def test_views_that_do_not_saturate_have_healthy_gradients_everywhere(name: str) -> None:
    logits = random_logits(1e4, 4, 6, 5).requires_grad_(True)
    (gradient,) = torch.autograd.grad(view(name, double_exponential)(logits).sum(), logits)
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient.sum(dim=0), torch.ones(6, 5))


def test_released_view_is_the_log_odds_while_they_are_mild() -> None:
    logits = random_logits(1.0, 4, 6, 5)
    probability = logits.double().exp().sum(dim=0).softmax(dim=-1)
    expected = (probability / (1 - probability)).log()
    got = view("released", double_exponential)(logits)
    torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=1e-5)


def test_released_view_breaks_where_the_probability_rounds_to_one() -> None:
    """The flaw behind the published number: an infinite output, and no gradient but NaN."""
    logits = torch.tensor([5.0, 1.0, 0.0]).repeat(4, 1, 1).requires_grad_(True)
    released = view("released", double_exponential)(logits)
    assert released[0, 0] == torch.inf
    (gradient,) = torch.autograd.grad(F.cross_entropy(released, torch.tensor([0])), logits)
    assert gradient.isnan().all()


def test_stable_log_prob_is_finite_but_flat_where_the_released_view_breaks() -> None:
    logits = torch.tensor([5.0, 1.0, 0.0]).repeat(4, 1, 1).requires_grad_(True)
    stable = view("log-prob", double_exponential)(logits)
    assert stable.isfinite().all()
    (gradient,) = torch.autograd.grad(F.cross_entropy(stable, torch.tensor([0])), logits)
    assert (gradient == 0).all()


def test_scenarios_know_the_same_aggregations() -> None:
    assert set(schema.AGGREGATIONS) == set(AGGREGATIONS)
