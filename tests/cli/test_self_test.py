"""`carso doctor --self-test` tries each thing that a run does, and says what does not work."""

import json

import pytest
import torch
from support import run

from carso.cli import doctor_command, self_test


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


def test_what_works_is_said_before_the_next_thing_is_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that ends the process leaves the lines before it."""
    for name in ("forward", "gradient"):
        monkeypatch.setattr(self_test, name, lambda where: None)

    def gone(where: torch.device) -> None:
        raise SystemExit(139)

    monkeypatch.setattr(self_test, "hardening_step", gone)
    code, out, _ = run(capsys, "doctor", "--self-test")
    assert code == 139
    assert out.startswith("versions:")
    assert out.splitlines()[-2:] == ["forward on cpu: works", "gradient on cpu: works"]


def test_a_report_names_extras_and_classifiers_that_are_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(doctor_command.EXTRAS, "hub", ("no_such_package",))
    out = run(capsys, "doctor")[1]
    assert "pip install 'carso[hub]' would bring it" in out
    assert "(its classifier is not here: convex-fashion-mnist.pth)" in out
    assert "gpus" in out
