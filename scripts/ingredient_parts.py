"""What decides how the paper's purifier is masked and weakened, for `docs/results.md`."""

from __future__ import annotations

import tomllib
from typing import Any

from records import RESULTS, ROOT, record, table

TRIALS = ROOT / "scripts" / "paper_trials.toml"


def ingredients() -> str:
    """One row for each trial and each factor of the logits."""
    rows = []
    for trial in tomllib.loads(TRIALS.read_text(encoding="utf-8"))["trial"]:
        path = RESULTS / "ingredients" / f"{trial['name']}.json"
        if not path.exists():
            rows.append(f"| {trial['what']} | not run | | | | | |")
            continue
        found = record(path)
        rows += [row(trial["what"], factor, one) for factor, one in found["measured"].items()]
    head = (
        "| trial | logits times | their median | clean | as published, shorter | "
        "through the mean logits | released log-odds infinite |"
    )
    return table(head, rows)


def row(what: str, factor: str, found: dict[str, Any]) -> str:
    cells = [what, f"{float(factor):g}", f"{found['median_logit']:.2f}"]
    shown = ("clean", "as_published", "mean_logits", "outputs_not_finite")
    return f"| {' | '.join([*cells, *(f'{found[key]:.3f}' for key in shown)])} |"


INGREDIENT_PARTS = {"ingredients": ingredients}
