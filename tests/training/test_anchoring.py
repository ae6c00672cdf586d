"""The weight of the anchor: chosen on validation images, kept with the purifier it is for."""

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from carso.data import ImageData
from carso.defence.aggregation import join
from carso.defence.defence import Carso
from carso.defence.on_disk import chosen_anchor
from carso.errors import CarsoError
from carso.purifiers.vae.vae import VAEPurifier
from carso.storage import files, tensor_files
from carso.threats.linf import Linf
from carso.training.anchoring import CLEAN_LOSS, FACTORS, best, choose

CPU = torch.device("cpu")


def row(anchor: float, clean: float, attacked: float) -> dict[str, float]:
    return {"anchor": anchor, "clean": clean, "attacked": attacked}


def test_the_most_robust_weight_is_taken_that_hardly_costs_clean_accuracy() -> None:
    tried = [row(1, 0.87, 0.79), row(2, 0.879, 0.78), row(4, 0.8801, 0.77), row(8, 0.88, 0.76)]
    assert best(tried, own=0.88)["anchor"] == 2
    assert best(tried, own=0.88 + CLEAN_LOSS)["anchor"] == 4
    assert best(tried, own=0.86)["anchor"] == 1


def test_where_all_cost_clean_accuracy_the_one_is_taken_that_costs_least() -> None:
    tried = [row(1, 0.80, 0.79), row(2, 0.82, 0.78), row(4, 0.82, 0.77)]
    assert best(tried, own=0.9)["anchor"] == 2


def test_the_figures_are_those_of_the_defence_at_each_weight(
    network: nn.Module, prepared: VAEPurifier, bars: ImageData, short_validation: None
) -> None:
    defence = Carso(
        network, copy.deepcopy(prepared).deployed(), samples=1, aggregation="anchored", anchor=0.5
    )
    found = choose(defence, bars, threat=Linf(eps=0.1), count=16, seed=0, device=CPU)
    assert [entry["anchor"] for entry in found["tried"]] == [0.5 * f for f in FACTORS]
    assert (
        defence.anchor
        == found["anchor"]
        == best(found["tried"], found["classifier_clean"])["anchor"]
    )
    assert found["images"] == {"clean": 24, "attacked": 16}
    images, labels = bars.validation.batch(slice(None))
    with torch.no_grad():
        own = defence.classifier(images)
        assert found["classifier_clean"] == float((own.argmax(1) == labels).double().mean())
        few, answers = bars.validation.balanced(16).batch(slice(None))
        clean = (defence.classifier(few).argmax(1) == answers).double().mean()
        assert found["classifier_attacked"] <= clean
        for entry in found["tried"]:
            defence.seed(0)
            candidates = defence.purify(images)[0]
            logits = join(defence.classifier(candidates)[None], own, entry["anchor"])[0]
            assert entry["clean"] == float((logits.argmax(1) == labels).double().mean())
    assert all(entry["attacked"] <= entry["clean"] + 8 / 24 for entry in found["tried"])


def test_a_weight_chosen_for_another_purifier_is_refused(tmp_path: Path) -> None:
    weights = tmp_path / "hardening.safetensors"
    tensor_files.save(weights, {"w": torch.zeros(1)})
    assert chosen_anchor(weights) == {}
    files.write_json(tmp_path / "anchor.json", {"anchor": 3.0, "hardening": files.sha256(weights)})
    assert chosen_anchor(weights) == {"anchor": 3.0}
    assert chosen_anchor(tmp_path / "purifier.safetensors") == {}
    for damage in ({"anchor": 3.0, "hardening": "another"}, {"anchor": "much"}, []):
        (tmp_path / "anchor.json").write_text(json.dumps(damage))
        with pytest.raises(CarsoError, match="delete it"):
            chosen_anchor(weights)
