"""`carso doctor --self-test` tries each thing that a run does, and says what does not work."""

import json

import pytest
import torch
from support import run

from carso.cli import self_test


def test_everything_works_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--self-test", "--json")
    found = json.loads(out)["self_test"]
    assert set(found.values()) == {"works"}, found
    assert code == 0
    assert [name.partition(" on ")[0] for name in found] == [
        "forward", "gradient", "hardening step", "evaluation step", "two processes",
    ]  # fmt: skip


def test_what_fails_is_one_line_and_the_rest_is_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(device: torch.device) -> None:
        raise RuntimeError("no kernel image\nfor this device")

    monkeypatch.setattr(self_test, "gradient", broken)
    for name in ("hardening_step", "evaluation_step", "two_processes"):
        monkeypatch.setattr(self_test, name, lambda where: None)
    code, out, _ = run(capsys, "doctor", "--self-test")
    lines = out.splitlines()
    assert code == 1
    assert any(line.startswith("gradient on") and "no kernel image" in line for line in lines)
    assert any(line.startswith("two processes on") and line.endswith(": works") for line in lines)
    assert "for this device" not in out
