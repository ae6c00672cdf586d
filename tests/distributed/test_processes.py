"""Which process does what: parts, noise, and launches that would go wrong are refused."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Generator, nn

from carso.distributed.launchers import already_started, check_launch, start_others
from carso.distributed.processes import (
    ALONE,
    OtherEndedError,
    Processes,
    broken_connection,
    collective,
)
from carso.errors import CarsoError
from carso.randomness import Share, normal, shared, uniform
from carso.training.epoch_cursor import batches_in

CPU = torch.device("cpu")
LAUNCHERS = ("WORLD_SIZE", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "MASTER_ADDR")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [5, 16, 17])
def test_the_parts_of_a_batch_are_the_whole_of_it(size: int, count: int) -> None:
    batch = torch.arange(size)
    parts = [batch[Processes(index, count).part(size)] for index in range(count)]
    assert torch.equal(torch.cat(parts).sort().values, batch)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_noise_of_a_part_is_cut_from_that_of_the_batch(count: int, copies: int) -> None:
    """Also where a loss puts the batch through twice, clean and attacked, one after the other."""
    size, shape = 7, (4,)
    whole = normal((copies * size, *shape), torch.zeros(1), Generator().manual_seed(1))
    for index in range(count):
        processes = Processes(index, count)
        with processes.sharing(size) as part:
            own = len(range(*part.indices(size)))
            found = normal((copies * own, *shape), torch.zeros(1), Generator().manual_seed(1))
        wanted = whole.view(copies, size, *shape)[:, part].flatten(0, 1)
        assert torch.equal(found, wanted)


def test_generators_of_all_parts_go_on_from_the_same_place() -> None:
    after = []
    for index in range(3):
        source = Generator().manual_seed(0)
        with Processes(index, 3).sharing(7) as part:
            uniform(torch.zeros(7, 2)[part], source)
        after.append(torch.rand(1, generator=source))
    assert after[0] == after[1] == after[2]


def test_noise_that_is_not_of_images_is_refused_in_a_share() -> None:
    with shared(Share(slice(0, 6, 2), 6)), pytest.raises(ValueError, match="multiple"):
        normal((4, 2), torch.zeros(1), Generator())


@pytest.mark.parametrize(
    ("devices", "nodes", "precision", "says"),
    [
        (0, 1, "32-true", "at least 1"),
        (1, 0, "32-true", "at least 1"),
        (1, 1, "fp8", "--precision is one of 32-true, bf16-mixed"),
        (2, 2, "32-true", "torchrun or srun"),
    ],
)
def test_a_launch_that_cannot_work_is_one_line(
    devices: int, nodes: int, precision: str, says: str
) -> None:
    with pytest.raises(CarsoError, match=says) as error:
        check_launch(CPU, devices, nodes, precision)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("launcher", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_processes_of_a_launcher_must_be_told_how_many_they_are(
    monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    """Else each would run alone, all in one folder."""
    monkeypatch.setenv(launcher, "4")
    with pytest.raises(CarsoError, match="4 processes were started"):
        check_launch(CPU, 1, 1, "32-true")
    check_launch(CPU, 4, 1, "32-true")
    check_launch(CPU, 2, 2, "32-true")
    monkeypatch.setenv(launcher, "all")
    with pytest.raises(CarsoError, match=f"{launcher} is a number of processes, got 'all'"):
        check_launch(CPU, 4, 1, "32-true")


def test_a_batch_script_is_not_yet_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows of the job's tasks before they are started: alone it may work, not wait for them."""
    monkeypatch.setenv("SLURM_NTASKS", "4")
    check_launch(CPU, 1, 1, "32-true")
    with pytest.raises(CarsoError, match="srun carso"):
        check_launch(CPU, 4, 1, "32-true")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    check_launch(CPU, 4, 1, "32-true")


@pytest.mark.parametrize(("node", "ranks"), [("", ["1", "2"]), ("1", ["4", "5"])])
def test_a_machine_starts_its_own_processes_by_the_same_command(
    monkeypatch: pytest.MonkeyPatch, node: str, ranks: list[str]
) -> None:
    started = []
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, env: started.append((command, env)) or len(started)
    )
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "carso", "train", "x.toml"])
    monkeypatch.setattr(os, "environ", {"NODE_RANK": node, "MASTER_ADDR": "far"} if node else {})
    assert not already_started()
    assert start_others(3, 2 if node else 1) == [1, 2]
    assert [env["RANK"] for _, env in started] == ranks
    assert [env["LOCAL_RANK"] for _, env in started] == ["1", "2"]
    for command, env in started:
        assert command == [sys.executable, "-m", "carso", "train", "x.toml"]
        assert env["WORLD_SIZE"] == ("6" if node else "3")
        assert env["MASTER_ADDR"] == ("far" if node else "127.0.0.1")
        assert env["MASTER_PORT"] == os.environ["MASTER_PORT"]
    assert already_started()  # as Fabric sees it, which then starts none
    assert (os.environ["RANK"], os.environ["LOCAL_RANK"]) == ("3" if node else "0", "0")


def test_an_error_of_the_network_is_not_taken_for_a_lost_process() -> None:
    assert broken_connection(RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed"))
    assert broken_connection(torch.distributed.DistBackendError("NCCL"))
    assert not broken_connection(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not broken_connection(torch.OutOfMemoryError("out of memory"))


def test_a_batch_has_an_image_for_every_process() -> None:
    assert batches_in(100, 8, Processes(0, 8)) == 12
    with pytest.raises(CarsoError, match="batch_size = 4 has not an image for each of the 8"):
        batches_in(100, 4, Processes(0, 8))


def test_a_single_gpu_by_number_is_not_many() -> None:
    with pytest.raises(CarsoError, match="give --device cuda"):
        check_launch(torch.device("cuda", 1), 2, 1, "32-true")


def test_a_broken_connection_says_that_nothing_is_lost() -> None:
    with pytest.raises(OtherEndedError, match="goes on from its last checkpoint"), collective():
        raise RuntimeError("Connection closed by peer\nand much more")


def test_alone_everything_is_what_it_is() -> None:
    value = torch.ones(2)
    assert ALONE.all_reduce(value) is value
    assert ALONE.broadcast({"a": 1}) == {"a": 1}
    assert ALONE.first_then_others(lambda: 3) == 3
    assert ALONE.all_equal("the same")
    assert ALONE.is_first
    network = nn.Linear(2, 1)
    assert ALONE.data_parallel(network) is network
    ALONE.backward(network(torch.ones(1, 2)).sum())
    assert torch.equal(network.weight.grad, torch.ones(1, 2))
