"""`carso predict`: label images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carso.cli.before_work import (
    check_classifier,
    check_defence,
    check_files,
    check_machine,
    check_name,
    check_places,
)
from carso.cli.options import (
    DeviceOption,
    JsonOption,
    OwnOption,
    UnhardenedOption,
    own_classifier,
    prepare,
    print_table,
)

if TYPE_CHECKING:
    from torch import Tensor


def predict(
    defence: Annotated[str, typer.Argument(help="A shipped name, or the folder of a run.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, or .npy in [0, 1].")],
    samples: Annotated[int | None, typer.Option(help="Candidates per image.")] = None,
    unhardened: UnhardenedOption = False,
    aggregation: Annotated[str, typer.Option(help="Instead of the defence's own.")] = "",
    candidates: Annotated[Path | None, typer.Option(help="Folder to draw them in.")] = None,
    classifier: OwnOption = None,
    seed: Annotated[int, typer.Option(help="Of the defence's noise.")] = 0,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Label images: label, probability, and what the classifier alone would say."""
    check_defence(defence)
    check_name("aggregation", aggregation)
    check_files("", images)
    check_classifier(classifier)
    check_places(folders=[candidates])
    check_machine(device)
    from carso.defence.predict_files import predict_files
    from carso.report.figures import strip

    place = prepare(device, 0)
    options: dict[str, Any] = {"seed": seed, "classifier": own_classifier(classifier)}
    if unhardened:
        options["hardened"] = False
    if samples is not None:
        options["samples"] = samples
    if aggregation:
        options["aggregation"] = aggregation

    def draw(name: str, image: Tensor, found: Tensor) -> None:
        if candidates is not None:
            strip(image, found, candidates / name)

    found = predict_files(defence, images, device=str(place), draw=draw, options=options)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    print_table(
        ("image", "label", "probability", "candidates agree", "classifier alone"),
        [
            (
                row["image"],
                row["label"],
                f"{row['probability']:.3f}",
                f"{row['agreeing']} of {row['samples']}",
                row["classifier_alone"],
            )
            for row in found
        ],
    )
    if candidates is not None:
        print(f"candidates: {candidates}")
