"""See it work, label images, look at the machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from carso.cli.options import (
    DataOption,
    DeviceOption,
    JsonOption,
    OwnOption,
    ThreadsOption,
    UnhardenedOption,
    own_classifier,
    prepare,
    print_table,
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture and page.")] = Path("demo"),
    images: Annotated[int, typer.Option(help="How many test images.", min=3, max=2000)] = 100,
    seed: Annotated[int, typer.Option(help="Of the attacks and the defence's noise.")] = 0,
    threads: ThreadsOption = 0,
    as_json: JsonOption = False,
) -> None:
    """See what published attacks say of the shipped defence, and what better ones say."""
    from carso import demo as story
    from carso.report.progress import progress
    from carso.storage.provenance import provenance

    prepare("cpu", threads)
    with progress() as bars:
        found = story.run(out, count=images, seed=seed, counted=bars.announced)
    if as_json:
        print(json.dumps({"records": found.records, "provenance": provenance()}, indent=1))
        return
    print_table(*story.table(found.records))
    print(f"picture: {found.picture}")
    print(f"page:    {found.page}  (open it in a browser)")


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
    from carso.prediction import predict_files

    place = prepare(device, 0)
    options: dict[str, Any] = {"seed": seed, "classifier": own_classifier(classifier)}
    if unhardened:
        options["hardened"] = False
    if samples is not None:
        options["samples"] = samples
    if aggregation:
        options["aggregation"] = aggregation
    found = predict_files(
        defence, images, device=str(place), candidates=candidates, options=options
    )
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


def doctor(
    data: DataOption = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Measure what is fastest here, and use it from now on.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the machine, the versions, and what data and weights are found."""
    from dataclasses import asdict

    from carso import data as data_sets
    from carso.defence import on_disk
    from carso.machine import tuning
    from carso.storage.provenance import provenance

    if tune:
        from carso.cli.speed import ratios

        print("measuring for a minute or two ...", file=sys.stderr)
        found = tuning.chosen(ratios())
        kept = tuning.keep(found)
    facts = provenance()
    facts["tuning"] = asdict(tuning.current())
    facts["data"] = dict(data_sets.available(data))
    facts["weights"] = {name: str(on_disk.SHIPPED / name) for name in on_disk.names()}
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    if tune:
        print_table(
            ("alternative", "time over the default's"),
            [(name, f"{value:.2f}") for name, value in found.ratios.items()],
        )
        changed = "the defaults are as fast here" if found.same() else "later commands use it"
        print(f"kept in {kept}: {changed}")
    facts["tuning"].pop("ratios")
    for key in ("versions", "hardware", "data", "weights", "tuning"):
        print(f"{key}:")
        for name, value in facts[key].items():
            print(f"  {name:18} {'not found' if value is None else value}")
    print(f"revision: {facts['revision']}")
