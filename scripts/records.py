"""Where the committed records are, for the scripts that make documents of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
WEIGHTS = ROOT / "carso" / "weights"
FASHION = WEIGHTS / "fashion"


def in_one_line(main: Callable[[], None]) -> None:
    """Run a script; a mistake in its input ends it with one line."""
    from carso.errors import CarsoError

    try:
        main()
    except CarsoError as error:
        raise SystemExit(str(error)) from None


def record(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def subject_and_images(
    record: dict[str, Any], name: str, folder: Path | None = None, classifier: Path | None = None
) -> tuple[nn.Module, Tensor, Tensor]:
    """What a record is about: the defence `name` or its classifier, its images and their labels;
    `classifier` is the file of one that the defence does not hold."""
    import torch

    from carso.classifiers.brought import load_classifier
    from carso.defence.on_disk import load, stored
    from carso.defence.shipped import folder_of
    from carso.evaluation.by_name import Images
    from carso.evaluation.fingerprints import weights

    bare = record["subject"]["kind"] == "classifier"
    network = load_classifier(classifier) if classifier else None
    defence = (
        stored(folder_of(name), network, torch.device("cpu"))
        if bare
        else load(name, classifier=network)
    )
    model: nn.Module = defence.classifier if bare else defence
    if weights(model) != record["subject"]["weights"]:
        raise SystemExit(f"{name} has other weights than the record is about")
    data = record["data"]
    chosen = Images(count=data["count"], split=data["split"], on=data["set"], folder=folder)
    pixels, labels = chosen.load(defence)[1].batch(slice(None))
    return model, pixels, labels


def table(header: str, rows: Iterable[str]) -> str:
    """A Markdown table from its lines, with the rule that goes below the first."""
    rule = "| " + " | ".join("---" for _ in header.split("|")[1:-1]) + " |"
    return "\n".join([header, rule, *rows])


def best_of(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The epoch that a hardening keeps: the last of those that hold best against attacks."""
    return max(history, key=lambda row: (row["validation_adaptive_accuracy"], row["epoch"]))
