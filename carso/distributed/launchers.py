"""What those who start processes leave in the environment."""

from __future__ import annotations

import os


def first_process() -> bool:
    """Whether this is the first of the processes that torchrun, Slurm or we have started; the only
    one is."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return all(os.environ.get(name, "0") == "0" for name in names)
