"""The threat of docs/extending.md goes through evaluation, training and the bank."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from carso.attacks.apgd import APGD
from carso.attacks.attack import verified
from carso.attacks.margin import Margin
from carso.attacks.pgd import FGSM, PGD
from carso.errors import CarsoError
from carso.threats.norms import threat_of
from carso.training.differences import packed, unpacked

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_threat.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def test_the_example_is_evaluated_and_its_record_says_so(example: dict[str, Any]) -> None:
    record = example["main"](12)
    assert record["threat"] == {"norm": "lighter", "eps": 0.1}
    assert "within eps = 0.1 in lighter" in record["verdict"]
    assert [attack["name"] for attack in record["attacks"]] == ["margin@mean-logits"]
    assert record["accuracy"]["worst"]["value"] <= record["accuracy"]["clean"]["value"]
    found = {d["name"]: d for d in record["diagnostics"]}
    assert found["black box"]["ok"] is None  # Square is the library's, and knows no such threat
    assert found["curve"]["ok"]
    assert max(record["images"]["worst_size"]) <= 0.1 + 1e-5


def test_every_attack_of_ours_that_follows_gradients_stays_inside(example: dict[str, Any]) -> None:
    threat = threat_of(example["Lighter"](eps=0.2))
    source = torch.Generator().manual_seed(0)
    x = torch.rand(6, 1, 8, 8, generator=source)
    weight = torch.randn(64, 5, generator=source)

    def model(images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1) @ weight

    y = model(x).argmax(dim=1)
    for attack in (FGSM(), PGD(steps=3, step_size=0.1), Margin(steps=5)):
        found = attack(model, x, y, threat=threat, generator=source)
        assert bool((found >= x).all())
        assert bool((found > x).any())
    kept = unpacked(packed(found, x, threat), x, threat)
    verified(kept, x, threat)
    assert (kept - found).abs().max() < 0.2 / 2000


def test_an_attack_of_the_library_says_that_it_does_not_run(example: dict[str, Any]) -> None:
    x, y = torch.rand(2, 1, 4, 4), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(CarsoError, match="APGD runs in Linf and L2 only, not in 'lighter'"):
        APGD(loss="ce")(
            lambda images: images.flatten(1),
            x,
            y,
            threat=example["Lighter"](eps=0.1),
            generator=torch.Generator(),
        )
