"""The paper's tables from committed records, for `docs/results.md`."""

from __future__ import annotations

from functools import partial

from records import RESULTS

from carso.progress import progress
from carso.reproduction import TABLES, Workshop, read_scale
from carso.reproduction.writing import as_page


def reproduced(name: str) -> str:
    """One table; what no record is committed for is marked as not run."""
    import torch

    with progress(shown=False) as bars:
        shop = Workshop(
            scale=read_scale("small"),
            folder=RESULTS / "reproduction",
            records=RESULTS,
            device=torch.device("cpu"),
            bars=bars,
            make=False,
        )
        return as_page(TABLES[name](shop)).strip()


REPRODUCED_PARTS = {f"table-{name}": partial(reproduced, name) for name in TABLES}
