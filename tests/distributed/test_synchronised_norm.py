"""Three processes with uneven parts of a batch are one process on the whole of it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from carso.storage import files, tensor_files

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)

COUNT, BATCH = 3, 7

PROCESS = """
import sys
import torch
from datetime import timedelta
from pathlib import Path
from torch import nn
from carso.storage import files
from carso.storage import tensor_files
from carso.data.data_errors import DataNotFoundError
from carso.errors import CarsoError
from carso.distributed.processes import Processes
from carso.distributed.synchronised_norm import synced

folder, index, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meet", rank=index, world_size=count,
    timeout=timedelta(seconds=60),
)
processes = Processes(index, count)
given = tensor_files.load(folder / "given.safetensors")
norm = nn.Sequential(nn.BatchNorm2d(4, momentum=0.3))
norm.load_state_dict({k.removeprefix("norm."): v for k, v in given.items() if "norm" in k})
synced(norm, processes, torch.device("cpu"))
part = processes.part(len(given["images"]))
images = given["images"][part].requires_grad_(True)
loss = (norm(images) * given["weights"][part]).square().sum()
loss.backward()
processes.all_reduce_gradients(norm.parameters())
tensor_files.save(folder / f"{index}.safetensors", {
    "images": images.grad, "weight": norm[0].weight.grad, "bias": norm[0].bias.grad,
    "mean": norm[0].running_mean, "var": norm[0].running_var,
    "loss": processes.all_reduce(loss.detach().clone()),
})

def fails(first_alone):
    def make():
        if first_alone and processes.is_first:
            raise DataNotFoundError("nowhere")
        if not first_alone and index == 2:
            raise CarsoError("mine")
        return index
    return make

told = processes.broadcast({"a": [1, 2.5, None], "from": index})
found = {"told": told, "turn": processes.first_then_others(lambda: 5)}
try:
    processes.first_then_others(fails(True))
except DataNotFoundError as error:
    found["all"] = [str(error), error.alone]
try:
    found["own"] = processes.first_then_others(fails(False))
except CarsoError as error:
    found["own"] = [str(error), error.alone]
found["equal"] = [processes.all_equal("x"), processes.all_equal(min(index, 1))]
files.write_json(folder / f"{index}.json", found)
"""


@pytest.fixture(scope="module")
def given() -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(0)
    norm = nn.BatchNorm2d(4)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2, generator=source)
        norm.bias.uniform_(-1, 1, generator=source)
    shape = (BATCH, 4, 3, 3)
    return {
        "images": 5 + 2 * torch.randn(shape, generator=source),
        "weights": torch.randn(shape, generator=source),
        **{f"norm.0.{name}": value for name, value in norm.state_dict().items()},
    }


@pytest.fixture(scope="module")
def folder(given: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each of the processes wrote."""
    place = tmp_path_factory.mktemp("processes")
    tensor_files.save(place / "given.safetensors", given)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(place), str(index), str(COUNT)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(COUNT)
    ]
    for process in started:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
    return place


def test_gradients_and_statistics_are_those_of_one_process(
    given: dict[str, Tensor], folder: Path
) -> None:
    norm = nn.BatchNorm2d(4, momentum=0.3)
    norm.load_state_dict({name[7:]: value for name, value in given.items() if "norm" in name})
    images = given["images"].clone().requires_grad_(True)
    loss = (norm(images) * given["weights"]).square().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    one = {"weight": norm.weight.grad, "bias": norm.bias.grad, "loss": loss.detach()}
    one |= {"mean": norm.running_mean, "var": norm.running_var}
    assert images.grad is not None
    for index in range(COUNT):
        found = tensor_files.load(folder / f"{index}.safetensors")
        torch.testing.assert_close(
            found.pop("images"), images.grad[index::COUNT], rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(found, one, rtol=1e-5, atol=1e-5)


def written(folder: Path) -> list[dict[str, Any]]:
    return [files.read_json(folder / f"{index}.json") for index in range(COUNT)]


def test_all_are_told_what_the_first_has(folder: Path) -> None:
    for found in written(folder):
        assert found["told"] == {"a": [1, 2.5, None], "from": 0}
        assert found["turn"] == 5
        assert found["equal"] == [True, False]


def test_a_mistake_of_the_first_is_one_of_all_and_that_of_another_its_own(folder: Path) -> None:
    first, second, third = written(folder)
    for found in (first, second, third):
        assert found["all"] == ["nowhere", False]
    assert (first["own"], second["own"]) == (0, 1)
    assert third["own"] == ["mine", True]
