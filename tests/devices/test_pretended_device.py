"""What every command does inside works on a device that is not the CPU, as far as torch can
pretend."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.utils import backend_registration

if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
    pytest.skip("this torch has no devices that Python makes", allow_module_level=True)

from device_steps import STEPS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def outcome(*words: str) -> dict[str, Any]:
    """What a process of its own reports, in which the device is set up."""
    path = os.pathsep.join([str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return outcome(str(HERE / "device_steps.py"))


@pytest.mark.parametrize("name", STEPS)
def test_a_step_stays_on_its_device(name: str, found: dict[str, Any]) -> None:
    assert found["steps"][name] == "works", found["steps"][name]


def test_nothing_is_said_of_devices_that_are_not_used(found: dict[str, Any]) -> None:
    assert not [one for one in found["warnings"] if "available devices" in one]


MISTAKES = """
import torch
from pretended_device import pretended, report, set_up

def outcome(mistake):
    try:
        mistake()
    except (RuntimeError, TypeError) as error:
        return str(error)
    return "not refused"

set_up()
with pretended() as device:
    there, here = torch.zeros(2, 3, device=device), torch.ones(2, 3)
    own = torch.Generator()
    weight = there.clone().requires_grad_(True)
    (weight * there + torch.tensor(2.0)).sum().backward()
    report({
        "sum": outcome(lambda: there + here),
        "cat": outcome(lambda: torch.cat([there, here])),
        "into the CPU": outcome(lambda: here.add_(there)),
        "index of the device": outcome(lambda: here[there.long()]),
        "draw": outcome(lambda: torch.rand(3, device=device, generator=own)),
        "draw in place": outcome(lambda: there.normal_(generator=own)),
        "numpy": outcome(lambda: there.numpy()),
        "copy": outcome(lambda: there.copy_(here)),
        "number": outcome(lambda: there + torch.tensor(1.0)),
        "index": outcome(lambda: there[torch.tensor([0])]),
        "gradient": str(weight.grad.device),
        "back": there.cpu().tolist(),
    })
"""


def test_the_device_refuses_what_a_gpu_refuses() -> None:
    found = outcome("-c", MISTAKES)
    for name in ("sum", "cat", "into the CPU", "index of the device"):
        assert "meets a tensor of the CPU" in found[name], name
    for name in ("draw", "draw in place"):
        assert "generator of the CPU" in found[name]
    assert "numpy" in found["numpy"]
    for name in ("copy", "number", "index"):
        assert found[name] == "not refused"
    assert found["gradient"] == "pretended:0"
    assert found["back"] == [[1.0] * 3] * 2
