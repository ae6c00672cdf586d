"""How a run gets its processes: by torchrun, by Slurm, or started here; then Fabric joins them.

torch is imported only when processes are, so that a command's help need not wait for it.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING

from carso.errors import CarsoError
from carso.machine.limits import PROCESS_BYTES, check_processes

if TYPE_CHECKING:
    import torch
    from lightning_fabric import Fabric

    from carso.distributed.processes import Processes

PRECISIONS = ("32-true", "bf16-mixed")
PATIENCE = timedelta(days=7)
"""How long a process waits for another that is alive and has more to do; of one that has died the
connection breaks, or a watcher tells."""


def first_process() -> bool:
    """Whether this is the first of the processes that torchrun, Slurm or we have started; the only
    one is."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return all(os.environ.get(name, "0") == "0" for name in names)


def launch(
    *,
    device: torch.device,
    devices: int,
    nodes: int,
    precision: str = "32-true",
    threads: int = 0,
    oversubscribe: bool = False,
    data_bytes: int = 0,
) -> tuple[Processes, torch.device]:
    """Start the other processes, or find that torchrun or Slurm has, and join them; which process
    this one is, and its device. Without a number of `threads` they share the cores out. More than
    the machine has room for, each with its `data_bytes`, are refused unless `oversubscribe`."""
    import torch

    from carso.distributed.processes import Processes
    from carso.distributed.watching import until_one_fails, watch, watch_parent

    check_launch(
        device, devices, nodes, precision, oversubscribe=oversubscribe, data_bytes=data_bytes
    )
    if devices * nodes == 1:
        return Processes(precision=precision), device
    if not first_process():
        watch(watch_parent, os.getppid())
    most = torch.get_num_threads()
    try:
        fabric = engine(device, devices, nodes)
        if not already_started():
            watch(until_one_fails, start_others(devices, nodes))
        fabric.launch()
    except (RuntimeError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise CarsoError(
            f"cannot start {devices} process(es) on {nodes} machine(s): {reason}"
        ) from None
    torch.set_num_threads(threads or max(1, most // devices))
    return Processes(fabric.global_rank, fabric.world_size, precision, fabric), fabric.device


def already_started() -> bool:
    """Whether torchrun, Slurm or another process of ours has started this one as one of many."""
    return any(name in os.environ for name in ("LOCAL_RANK", "SLURM_STEP_NUM_TASKS"))


def start_others(devices: int, nodes: int) -> list[subprocess.Popen[bytes]]:
    """Start this very command once more for each other device of this machine, in the environment
    from which Fabric reads that its processes are there already."""
    own = from_environment("NODE_RANK", 0) * devices
    shared = {
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": os.environ.get("MASTER_PORT") or str(free_port()),
        "WORLD_SIZE": str(devices * nodes),
    }
    os.environ.update(shared | {"LOCAL_RANK": "0", "RANK": str(own)})
    command = [sys.executable, *sys.orig_argv[1:]]
    return [
        subprocess.Popen(
            command, env={**os.environ, "LOCAL_RANK": str(local), "RANK": str(own + local)}
        )
        for local in range(1, devices)
    ]


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def engine(device: torch.device, devices: int, nodes: int) -> Fabric:
    """Fabric, before its processes have met."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    for library in ("lightning.fabric", "lightning_fabric"):  # what it would tell of each process
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="The `srun` command is available")
    for what in ("find_unused_parameters=True was specified", "`broadcast_buffers` is deprecated"):
        warnings.filterwarnings("ignore", message=what)
    return Fabric(
        accelerator=device.type,
        devices=devices,
        num_nodes=nodes,
        strategy=DDPStrategy(
            process_group_backend="nccl" if device.type == "cuda" else "gloo",
            timeout=PATIENCE,
            # Batch norm has the statistics of all processes already.
            broadcast_buffers=False,
            # Else DDP sorts its messages anew after the first step, and with them the order in
            # which three numbers are added: a run taken up again would not be the same bit for bit.
            find_unused_parameters=True,
        ),
    )


def check_launch(
    device: torch.device,
    devices: int,
    nodes: int,
    precision: str,
    *,
    oversubscribe: bool = False,
    data_bytes: int = 0,
) -> None:
    """Refuse what would hang, start many runs in one folder, or take the machine down."""
    if precision not in PRECISIONS:
        raise CarsoError(f"--precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    if devices < 1 or nodes < 1:
        raise CarsoError(f"--devices and --nodes are at least 1, got {devices} and {nodes}")
    if devices > 1 and device.index is not None:
        raise CarsoError(
            f"--devices {devices} takes the first {devices}: give --device {device.type}"
        )
    srun = "SLURM_STEP_NUM_TASKS" in os.environ  # a batch script has SLURM_NTASKS without it
    if devices * nodes > 1 and "SLURM_NTASKS" in os.environ and not srun:
        raise CarsoError("in a Slurm job many processes are started by srun: srun carso ...")
    launchers = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
    started = max(from_environment(name) for name in launchers)
    if started > 1 and devices * nodes == 1:
        raise CarsoError(
            f"{started} processes were started: say so with --devices (per machine) and --nodes"
        )
    if nodes > 1 and started == 1 and "MASTER_ADDR" not in os.environ:
        raise CarsoError(
            f"--nodes {nodes} needs a process on every machine: start it by torchrun or srun"
        )
    if devices > 1 and started == 1 and not oversubscribe:
        check_processes(devices, gpus=gpu_count(device), each=PROCESS_BYTES + data_bytes)


def gpu_count(device: torch.device) -> int | None:
    """How many devices of this kind there are; None of the CPU, whose cores count."""
    import torch

    return None if device.type == "cpu" else torch.cuda.device_count()


def from_environment(name: str, default: int = 1) -> int:
    """A number that torchrun or Slurm has set; `default` where neither did."""
    text = os.environ.get(name, str(default))
    if not text.isdigit():
        raise CarsoError(f"the environment's {name} is a number of processes, got {text!r}")
    return int(text)
