"""What this machine has, and what would be too much for it: cores, memory, processes, threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from carso.errors import CarsoError

THREADS_PER_CORE = 4
"""More have never been faster, and a hundred thousand end in a segmentation fault."""
PROCESS_BYTES = 400 * 2**20
"""What a process needs before it has read anything: measured, most of it is torch."""
SHARE = 0.9
"""Of the free memory that may be planned for."""


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes that can still be had, by the machine and by the limit of a container; None where
    nothing says so."""
    found = [bytes_ for bytes_ in (free_of_machine(), free_of_container()) if bytes_ is not None]
    return min(found) if found else None


def free_of_machine(table: Path = Path("/proc/meminfo")) -> int | None:
    """What Linux says is available."""
    try:
        for line in table.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def free_of_container(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the limit of a control group leaves."""
    try:
        most = int((group / "memory.max").read_text())
        return max(0, most - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no group, or no limit: "max"
        return None


def gigabytes(size: float) -> str:
    return f"{size / 2**30:.1f} GB"


def check_threads(threads: int) -> None:
    """Refuse what cannot be a number of threads here, or would crash."""
    if threads < 0:
        raise CarsoError(f"--threads is at least 1, or 0 for torch's own choice, got {threads}")
    most = THREADS_PER_CORE * cores()
    if threads > most:
        raise CarsoError(
            f"--threads {threads} is too many for {cores()} cores: at most {most}, "
            f"and {cores()} is what is fast"
        )


def check_processes(devices: int, *, gpus: int | None, each: int = PROCESS_BYTES) -> None:
    """Refuse more processes than this machine has devices, or memory at `each` bytes a process.
    `gpus` is None where they run on cores."""
    have, what = (cores(), "cores") if gpus is None else (gpus, "GPUs")
    if devices > have:
        raise CarsoError(
            f"--devices {devices} is more than the {have} {what} of this machine: give at most "
            f"{have}, or --oversubscribe if you mean it"
        )
    free = free_memory()
    if devices > 1 and free is not None and devices * each > free:
        raise CarsoError(
            f"--devices {devices} would need {gigabytes(devices * each)} of memory, and "
            f"{gigabytes(free)} are free: give at most {max(1, free // each)}, or --oversubscribe "
            "if you mean it"
        )


def check_fits(what: str, count: int, each: int, *, base: int = 0, option: str) -> None:
    """Refuse `count` things of `each` bytes beside `base` bytes where memory has no room for them;
    `option` is how to ask for fewer."""
    free = free_memory()
    if free is None or base + count * each <= SHARE * free:
        return
    most = int((SHARE * free - base) // each) if each else 0
    advice = f"{option} {most} would do" if most >= 1 else "not even one would do"
    raise CarsoError(
        f"{count} {what} need about {gigabytes(base + count * each)} of memory, and "
        f"{gigabytes(free)} are free: {advice}"
    )


def need_of_an_image(forward: Callable[[int], object]) -> tuple[int, int]:
    """Bytes that a pass with gradients needs for each image of a batch, and beside them, measured
    by passes of one image and of two; `forward` makes a pass of so many."""
    one, two = (saved_bytes(lambda count=count: forward(count)) for count in (1, 2))  # type: ignore[misc]
    each = max(0, two - one)
    return each, max(0, one - each)


def saved_bytes(run: Callable[[], object]) -> int:
    """What torch keeps for the way back of the forward passes in `run`, each tensor once."""
    import torch

    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        found = run()
    del found
    return sum(kept.values())
