"""Three processes with uneven parts of a batch are one process on the whole of it."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from carso.randomness import seeded
from carso.storage import files, tensor_files

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no torch.distributed"
)

COUNT, BATCH = 3, 7


class Network(nn.Module):
    """With batch norm, a second way through, and a part that neither way takes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5, momentum=0.3)
        self.head, self.idle = nn.Linear(5, 2), nn.Linear(2, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(images)).flatten(2).mean(dim=2))

    def scores(self, images: Tensor) -> Tensor:
        return self(images).sin()


def cost(network: nn.Module, images: Tensor, weights: Tensor) -> Tensor:
    """A mean over images of what two passes give, of which one is no `forward`."""
    first = network(images).square().sum(dim=1)
    second = (network.scores(images + 1) * weights).square().sum(dim=1)
    return (first + second).mean()


PROCESS = """
import sys
import torch
from pathlib import Path
from torch import nn
from carso.storage import files
from carso.storage import tensor_files
from carso.data.data_errors import DataNotFoundError
from carso.errors import CarsoError
from carso.distributed.launchers import launch
from carso.distributed.synchronised_norm import synced
sys.path.insert(0, sys.argv[2])
from test_three_processes import Network, cost

folder = Path(sys.argv[1])
processes, device = launch(
    device=torch.device("cpu"), devices=3, nodes=1, threads=1, oversubscribe=True
)
index, count = processes.rank, processes.world_size
given = tensor_files.load(folder / "given.safetensors")
network = Network()
network.load_state_dict({k.removeprefix("net."): v for k, v in given.items() if "net." in k})
synced(network, processes, device)
learning = processes.data_parallel(network, "scores")
part = processes.part(len(given["images"]))
images = given["images"][part].requires_grad_(True)
network(images).sum().backward()
own = network.head.weight.grad.clone()
network.zero_grad()
images.grad = None
network.load_state_dict({k.removeprefix("net."): v for k, v in given.items() if "net." in k})
for step in range(2):
    network.zero_grad()
    loss = len(images) / len(given["images"]) * cost(learning, images, given["weights"][part])
    processes.backward(loss)
tensor_files.save(folder / f"{index}.safetensors", {
    "own": own,
    "loss": processes.all_reduce(loss.detach().clone()),
    **{f"buffer {name}": value for name, value in network.named_buffers()},
    **{name: p.grad for name, p in network.named_parameters() if p.grad is not None},
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
    with seeded(0, "network"):
        network = Network()
    with torch.no_grad():
        network.norm.weight.uniform_(0.5, 2, generator=source)
        network.norm.bias.uniform_(-1, 1, generator=source)
    return {
        "images": 5 + 2 * torch.randn(BATCH, 4, 5, 5, generator=source),
        "weights": torch.randn(BATCH, 2, generator=source),
        **{f"net.{name}": value for name, value in network.state_dict().items()},
    }


@pytest.fixture(scope="module")
def folder(given: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each of the processes wrote."""
    place = tmp_path_factory.mktemp("processes")
    tensor_files.save(place / "given.safetensors", given)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(COUNT)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(place), str(Path(__file__).parent)],
            env={**os.environ, **meeting, "OMP_NUM_THREADS": "1", "LOCAL_RANK": rank, "RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in map(str, range(COUNT))
    ]
    for process in started:
        _, said = process.communicate(timeout=900)
        assert process.returncode == 0, said
        assert not said  # no library's warning either
    return place


def test_gradients_and_statistics_are_those_of_one_process(
    given: dict[str, Tensor], folder: Path
) -> None:
    """Of the part that no pass takes there are none, as of one process."""
    network = Network()
    network.load_state_dict({k[4:]: value for k, value in given.items() if "net." in k})
    for _ in range(2):
        network.zero_grad()
        loss = cost(network, given["images"], given["weights"])
        loss.backward()  # type: ignore[no-untyped-call]
    one = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    assert not [name for name in one if "idle" in name]
    one |= {f"buffer {name}": value for name, value in network.named_buffers()}
    one["loss"] = loss.detach()
    for index in range(COUNT):
        found = tensor_files.load(folder / f"{index}.safetensors")
        del found["own"]
        torch.testing.assert_close(found, one, rtol=1e-4, atol=1e-4)


def test_passes_that_go_past_data_parallelism_keep_their_gradients_to_themselves(
    folder: Path,
) -> None:
    own = [tensor_files.load(folder / f"{index}.safetensors")["own"] for index in range(COUNT)]
    assert not torch.allclose(own[0], own[1])
    assert not torch.allclose(own[1], own[2])


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
