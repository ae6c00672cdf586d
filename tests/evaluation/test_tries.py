"""Accuracy against the number of tries, and the two verdicts that the field disputes."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso.defence.defence import Carso
from carso.errors import CarsoError
from carso.evaluation import record as records
from carso.evaluation.tries import TRIES, survival


@pytest.mark.parametrize("right", range(6))
@pytest.mark.parametrize("tries", range(1, 6))
def test_it_is_the_share_of_choices_that_are_all_right(right: int, tries: int) -> None:
    draws = [number < right for number in range(5)]
    chosen = [all(some) for some in combinations(draws, tries)]
    found = survival(torch.tensor([right]), 5, tries)
    assert found.item() == pytest.approx(sum(chosen) / len(chosen))


def test_it_is_unbiased() -> None:
    """Over many images of the same chance p, the mean is p to the power of the tries."""
    generator = torch.Generator().manual_seed(0)
    right = (torch.rand(100_000, TRIES, generator=generator) < 0.9).sum(dim=1)
    for tries in (1, 2, 5, 10, 20):
        found = float(survival(right, TRIES, tries).mean())
        assert found == pytest.approx(0.9**tries, abs=0.005)


def test_so_many_tries_there_are_not() -> None:
    with pytest.raises(ValueError, match="21 of 20 draws"):
        survival(torch.tensor([3]), 20, 21)


def test_the_record_has_a_curve_that_falls(tiny_record: dict[str, Any]) -> None:
    tries = tiny_record["tries"]
    values = [point["value"] for point in tries["accuracy"]]
    assert len(values) == tries["draws"] == TRIES
    assert values == sorted(values, reverse=True)
    right = tiny_record["images"]["tries_right"]
    assert values[0] == pytest.approx(sum(right) / TRIES / len(right))
    assert values[-1] == pytest.approx(sum(r == TRIES for r in right) / len(right))
    assert abs(values[0] - tiny_record["accuracy"]["worst"]["value"]) < 0.1


def test_judged_while_optimising_is_never_above_the_worst_case(
    tiny_record: dict[str, Any],
) -> None:
    """Whoever is right on every pass on the way was right on those of every verdict on it."""
    images = tiny_record["images"]
    way = images["while_optimising"]
    for attack in tiny_record["attacks"]:
        for right, never in zip(attack["right"], way, strict=True):
            assert right in (None, tiny_record["suite"]["draws"]) or not never
    assert tiny_record["accuracy"]["while_optimising"]["value"] == sum(way) / len(way)


def test_without_noise_both_verdicts_agree_and_there_is_no_curve(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    """A mistake that an attack meets on its way is one that it keeps."""
    record = carso.evaluate(classifier, images, labels, eps=0.03, suite="tiny")
    assert record["tries"] is None
    assert record["images"]["while_optimising"] == record["images"]["worst_right"]
    assert 0 < record["accuracy"]["worst"]["value"] < 1


def test_an_edited_curve_is_found(
    defence: Carso, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    record = carso.evaluate(defence, images, labels, eps=0.02, suite="tiny", out=path)
    assert records.read(path) == record
    record["tries"]["accuracy"][4]["value"] += 0.01
    records.write(path, record)
    with pytest.raises(CarsoError, match=r"tries\.accuracy\.5"):
        records.read(path)


def test_a_record_from_before_reads(tiny_record: dict[str, Any], tmp_path: Path) -> None:
    old = {key: value for key, value in tiny_record.items() if key != "tries"}
    new = ("while_optimising", "tries_right")
    for part in ("accuracy", "images"):
        old[part] = {key: value for key, value in old[part].items() if key not in new}
    records.write(tmp_path / "old.json", old)
    assert records.read(tmp_path / "old.json") == old
