"""The shipped defences predict what they did when they were shipped."""

import json

import pytest
import torch
from record_shipped_predictions import NAMES, RECORD, predictions

RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_the_recorded_ones(name: str) -> None:
    before = torch.get_num_threads()
    try:
        labels, bits = predictions(name)
    finally:
        torch.set_num_threads(before)
    assert labels == RECORDED[name]["labels"]
    capability = torch.backends.cpu.get_cpu_capability()
    if capability in RECORDED[name]["bits"]:
        assert bits == RECORDED[name]["bits"][capability]


def test_no_shipped_defence_is_left_out() -> None:
    assert set(RECORDED) == set(NAMES)
