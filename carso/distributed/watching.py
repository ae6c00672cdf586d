"""A process of a run that ends takes the others with it, within seconds and with a word."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from subprocess import Popen
from threading import Thread
from typing import Any

from carso.distributed.processes import AGAIN, OtherEndedError


def watch(look: Callable[[Any], None], at: Any) -> None:
    """Look on while this process works, from before it joins the others: one may die by then."""
    Thread(target=look, args=(at,), daemon=True).start()


def watch_parent(parent: int) -> None:
    """End this process within seconds of the one that started it, whatever it is busy with."""
    while os.getppid() == parent:
        time.sleep(5)
    leave("the first process of this run has ended")


def until_one_fails(processes: Sequence[Popen[bytes]]) -> None:
    """End this process within seconds of one that it started and that failed."""
    while not all(process.poll() == 0 for process in processes):
        codes = [process.poll() or 0 for process in processes]
        if any(codes):
            if min(codes) >= 0:  # not killed: it met a mistake, as this one may, which then says so
                time.sleep(5)
            leave("another process of this run has ended")
        time.sleep(0.5)


def leave(why: str) -> None:
    """End this process at once."""
    print(f"carso: {why}; {AGAIN}", file=sys.stderr, flush=True)
    os._exit(OtherEndedError.code)
