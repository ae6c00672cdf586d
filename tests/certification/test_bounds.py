"""Bounds hold as often as they promise, and equal exact arithmetic."""

import math

import mpmath
import pytest
import torch

from carso.certification.bounds import l2_radius, least_successes, linf_radius, lower_bound
from carso.errors import CarsoError


@pytest.mark.parametrize(
    ("successes", "draws"), [(1, 1), (1, 10), (60, 100), (100, 100), (999, 1000), (9990, 10_000)]
)
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_the_bound_is_the_quantile_of_the_beta_distribution(
    successes: int, draws: int, alpha: float
) -> None:
    """Clopper-Pearson in its other form: the alpha-quantile of Beta(k, n - k + 1)."""
    bound = lower_bound(successes, draws, alpha)
    with mpmath.workdps(40):
        found = mpmath.betainc(successes, draws - successes + 1, 0, bound, regularized=True)
    assert float(found) == pytest.approx(alpha, rel=1e-6)


def test_all_draws_agreeing_has_a_closed_form() -> None:
    assert lower_bound(1000, 1000, 0.001) == pytest.approx(0.001 ** (1 / 1000), abs=1e-12)
    assert lower_bound(0, 10, 0.001) == 0.0


@pytest.mark.parametrize("true", [0.5, 0.7, 0.95])
def test_the_bound_lies_above_the_truth_no_more_often_than_alpha(true: float) -> None:
    """1,000 repetitions at alpha = 0.05: 50 are expected at most, 75 is 3.6 deviations more."""
    source = torch.Generator().manual_seed(0)
    draws, alpha = 400, 0.05
    counts = (torch.rand(1000, draws, generator=source) < true).sum(dim=1).tolist()
    bounds = {k: lower_bound(k, draws, alpha) for k in set(counts)}
    assert sum(bounds[k] > true for k in counts) <= 75


def test_a_larger_count_never_has_a_smaller_bound() -> None:
    bounds = [lower_bound(k, 200, 0.001) for k in range(201)]
    assert bounds == sorted(bounds)
    assert all(b <= k / 200 for k, b in enumerate(bounds))


def test_radii() -> None:
    assert l2_radius(0.5, 1.0) == 0.0
    assert l2_radius(0.3, 1.0) == 0.0
    assert l2_radius(0.841344746, 0.5) == pytest.approx(0.5, rel=1e-6)
    assert math.isfinite(l2_radius(1.0, 1.0))
    assert linf_radius(0.28, 784) == pytest.approx(0.01)


@pytest.mark.parametrize("draws", [20, 100, 1000])
def test_the_fewest_successes_that_certify(draws: int) -> None:
    least = least_successes(draws, 0.001)
    assert lower_bound(least, draws, 0.001) > 0.5
    assert lower_bound(least - 1, draws, 0.001) <= 0.5


@pytest.mark.parametrize("wrong", [(5, 4, 0.1), (-1, 4, 0.1), (1, 0, 0.1), (1, 4, 0.0)])
def test_impossible_counts_are_refused(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(CarsoError):
        lower_bound(*wrong)
