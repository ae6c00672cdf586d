"""Intervals: Wilson's, with known values, and the paired one."""

import math

import pytest
import torch
from torch import Generator

from carso.attacks.averaging import cosine
from carso.evaluation.statistics import Proportion, paired_difference, share


def outcomes(right: int, count: int) -> torch.Tensor:
    return (torch.arange(count) < right).double()


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [
        (0, 10, 0.0, 0.27753),
        (10, 10, 0.72247, 1.0),
        (5, 10, 0.23659, 0.76341),
        (15, 100, 0.09305, 0.23282),
        (81, 263, 0.25529, 0.36620),  # Newcombe 1998, method 3
        (15, 148, 0.06239, 0.16052),
        (1, 29, 0.00611, 0.17176),
    ],
)
def test_wilson_against_known_values(right: int, count: int, low: float, high: float) -> None:
    found = share(outcomes(right, count))
    assert found.value == pytest.approx(right / count)
    assert found.low == pytest.approx(low, abs=6e-5)
    assert found.high == pytest.approx(high, abs=6e-5)


@pytest.mark.parametrize("count", [1, 2, 7, 50, 1000])
def test_the_interval_contains_the_mean_and_stays_in_its_range(count: int) -> None:
    for right in {0, 1, count // 2, count - 1, count}:
        found = share(outcomes(right, count))
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low < found.high


def test_more_images_narrow_the_interval() -> None:
    widths = [share(outcomes(n // 4, n)) for n in (8, 80, 800)]
    sizes = [found.high - found.low for found in widths]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < sizes[0] / 5


def test_shares_of_draws_are_outcomes_too() -> None:
    """0.6 of five draws counts as 0.6 of an image, with an interval on the safe side."""
    found, whole = share(torch.tensor([0.6, 1.0, 0.0, 0.4])), share(outcomes(2, 4))
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.high) == pytest.approx((whole.low, whole.high))


def test_integers_and_no_images_at_all() -> None:
    assert share(torch.tensor([1, 0])).value == 0.5
    assert share(torch.tensor([])) == Proportion(value=0.0, low=0.0, high=1.0)


def test_wilson_covers_the_truth() -> None:
    """In about 95 % of many experiments, also near the end where a normal interval fails."""
    source = Generator().manual_seed(0)
    covered = 0
    for _ in range(1000):
        found = share((torch.rand(40, generator=source) < 0.05).double())
        covered += found.low <= 0.05 <= found.high
    assert 0.92 < covered / 1000 < 0.99


def test_a_paired_difference_is_that_of_the_same_images() -> None:
    first, second = torch.tensor([1.0, 1, 0, 1, 1]), torch.tensor([1.0, 0, 0, 0, 1])
    found = paired_difference(first, second)
    # differences 0 1 0 1 0, and two halves of +1 and -1 and a 0 more: 2 of 7, variance 3/7 - 4/49
    width = 1.959964 * math.sqrt((3 / 7 - 4 / 49) / 7)
    assert found.value == pytest.approx(0.4)
    assert (found.low, found.high) == pytest.approx((2 / 7 - width, 2 / 7 + width))
    swapped = paired_difference(second, first)
    assert swapped.value == pytest.approx(-0.4)
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low))


def test_pairing_helps_where_images_agree() -> None:
    source = Generator().manual_seed(1)
    first = (torch.rand(200, generator=source) < 0.5).double()
    second = first.clone()
    second[:10] = 0
    found = paired_difference(first, second)
    assert found.high - found.low < (share(first).high - share(first).low) / 2
    assert found.low > 0


def test_where_no_outcomes_differ_the_interval_still_has_a_width() -> None:
    found = paired_difference(torch.ones(500), torch.ones(500))
    assert found.value == 0
    assert found.high == pytest.approx(1.959964 / 502)
    assert found.low == -found.high


def test_one_pair_says_nothing() -> None:
    assert paired_difference(torch.ones(1), torch.zeros(1)) == Proportion(value=1, low=-1, high=1)


def test_a_share_reads_as_value_and_interval() -> None:
    assert str(Proportion(value=0.25, low=0.1, high=0.5)) == "0.250 [0.100, 0.500]"


def test_cosine_is_per_image() -> None:
    first = torch.tensor([[1.0, 0], [1, 1], [0, 0]]).view(3, 1, 1, 2)
    second = torch.tensor([[2.0, 0], [-1, -1], [1, 0]]).view(3, 1, 1, 2)
    torch.testing.assert_close(cosine(first, second), torch.tensor([1.0, -1, 0]))
