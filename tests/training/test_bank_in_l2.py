"""The bank and the batches in L2: what is kept stays inside the ball and loses next to nothing."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from carso.data import Split
from carso.scenario.purifier_training_settings import BatchAttackSettings
from carso.threats.l2 import L2
from carso.threats.linf import Linf
from carso.threats.threat import Threat
from carso.training.batches import AdversarialBatches
from carso.training.differences import packed, stored_as, unpacked

EPS = 0.5


def clean(count: int = 50) -> Tensor:
    source = torch.Generator().manual_seed(0)
    return (2 * torch.rand(count, 1, 28, 28, generator=source) - 0.5).clamp(0, 1)


def changes() -> dict[str, Tensor]:
    """Changes of length EPS: spread evenly, on few pixels, on one, and some of each."""
    source = torch.Generator().manual_seed(1)
    spread = torch.randn(50, 1, 28, 28, generator=source)
    few = spread * (torch.rand(spread.shape, generator=source) < 0.01)
    one = torch.zeros_like(spread)
    one[:, 0, 3, 3] = 1
    return {"spread": spread, "few": few, "one": one, "both": spread + 30 * one}


@pytest.mark.parametrize("kind", ["spread", "few", "one", "both"])
def test_what_is_read_back_is_inside_and_wrong_by_less_than_a_thousandth(kind: str) -> None:
    threat, origin = L2(eps=EPS), clean()
    attacked = threat.project(origin + 100 * changes()[kind], origin)
    assert stored_as(threat) == packed(attacked, origin, threat).dtype == torch.float16
    again = unpacked(packed(attacked, origin, threat), origin, threat)
    assert threat.contains(again, origin).all()
    assert (again - attacked).flatten(1).norm(dim=1).max() <= EPS / 1000


def test_in_linf_it_is_eight_bits_as_ever() -> None:
    threat, origin = Linf(eps=0.1), clean()
    attacked = threat.random_start(origin, torch.Generator().manual_seed(2))
    stored = packed(attacked, origin, threat)
    assert stored.dtype == torch.int8
    wanted = ((attacked - origin) * (127 / 0.1)).round().clamp(-127, 127).to(torch.int8)
    assert torch.equal(stored, wanted)
    again = unpacked(stored, origin, threat)
    assert threat.contains(again, origin).all()
    assert (again - attacked).abs().max() <= 0.1 / 254 + 1e-6


def batches(
    threat: Threat, bank: str, folder: Path | None = None
) -> tuple[AdversarialBatches, Split]:
    split = Split(
        images=(255 * clean(300)).to(torch.uint8),
        labels=torch.randint(3, (300,), generator=torch.Generator().manual_seed(3)),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        classifier = nn.Sequential(nn.Flatten(), nn.Linear(784, 3)).eval()
    settings = BatchAttackSettings(fraction=1.0, steps=2, step_size=0.6 * EPS, bank=bank)
    made = AdversarialBatches(
        classifier, split, settings=settings, threat=threat, seed=0, device=torch.device("cpu"),
        folder=folder, identity={"of": threat.norm},
    )  # fmt: skip
    made.prepare(0)
    return made, split


def test_batches_from_the_bank_are_attacked_in_the_norm(tmp_path: Path) -> None:
    memory, split = batches(L2(eps=EPS), "memory")
    disk, _ = batches(L2(eps=EPS), "disk", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bank-0.float16", "bank-0.json"}
    indices = torch.arange(0, 300, 3)
    mixed, origin = memory.batch(indices, epoch=0, seen=0)
    assert torch.equal(mixed, disk.batch(indices, epoch=0, seen=0)[0])
    found, _ = batches(L2(eps=EPS), "disk", tmp_path)  # read, not made
    assert torch.equal(mixed, found.batch(indices, epoch=0, seen=0)[0])
    moved = L2(eps=EPS).distance(mixed, origin)
    halves, wholes = torch.cat([moved[:25], moved[50:75]]), torch.cat([moved[25:50], moved[75:]])
    assert halves.max() <= EPS / 2 * 1.0001  # PGD and FGSM at eps / 2, then at eps
    assert EPS / 2 < wholes.max() <= EPS * 1.0001
    assert torch.equal(origin, split.batch(indices)[0])


def test_a_bank_of_one_norm_is_not_read_as_another(tmp_path: Path) -> None:
    batches(L2(eps=EPS), "disk", tmp_path)
    flat, _ = batches(Linf(eps=EPS), "disk", tmp_path)
    fresh, _ = batches(Linf(eps=EPS), "memory")
    indices = torch.arange(20)
    assert torch.equal(
        flat.batch(indices, epoch=0, seen=0)[0], fresh.batch(indices, epoch=0, seen=0)[0]
    )
