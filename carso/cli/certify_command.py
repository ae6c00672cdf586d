"""`carso certify`: a radius around each image within which no attack can change the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import (
    check_classifier,
    check_data_set,
    check_defence,
    check_folder,
    check_machine,
    check_name,
    check_places,
    check_split,
)
from carso.cli.options import (
    DataOption,
    DeviceOption,
    DevicesOption,
    DownloadOption,
    JsonOption,
    NodesOption,
    OversubscribeOption,
    OwnOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    UnhardenedOption,
    own_classifier,
    started,
)
from carso.cli.record_file import RecordFile, that_differ


def certify(
    defence: Annotated[
        str,
        typer.Argument(help="A shipped name, the folder of a run, or (--bare) a known classifier."),
    ],
    sigma: Annotated[
        float | None,
        typer.Option(help="Deviation of the noise, on the [0, 1] scale; default: of the training."),
    ] = None,
    images: Annotated[int, typer.Option(help="How many images.")] = 500,
    n: Annotated[
        int, typer.Option("--n", min=1, help="Draws that bound the probability.")
    ] = 10_000,
    n0: Annotated[
        int, typer.Option("--n0", min=1, help="Draws, others, that select the class.")
    ] = 100,
    alpha: Annotated[float, typer.Option(help="Probability that a certificate is wrong.")] = 0.001,
    batch: Annotated[int, typer.Option(min=1, help="Noisy copies in one pass.")] = 250,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    on: Annotated[str, typer.Option(help="A data set instead of the scenario's own.")] = "",
    bare: Annotated[bool, typer.Option("--bare", help="The classifier alone, smoothed.")] = False,
    unhardened: UnhardenedOption = False,
    classifier: OwnOption = None,
    name: Annotated[str, typer.Option(help="What tables and plots call it.")] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="File of the record; default in records/, named after what is asked."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Certify anew, though the record is there.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of all noise.")] = 0,
    data: DataOption = None,
    download: DownloadOption = False,
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    nodes: NodesOption = 1,
    oversubscribe: OversubscribeOption = False,
    threads: ThreadsOption = 0,
    precision: PrecisionOption = "32-true",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Certify a defence by randomised smoothing: an L2 radius for each image, that no attack beats.

    Stopped and called again, it goes on; finished, it prints the record that it has.
    """
    check_defence(defence)
    check_data_set(on)
    check_split(split)
    check_classifier(classifier)
    check_folder("--data", data)
    check_places(out)
    check_name("precision", precision)
    check_machine(device, threads)
    from carso.certification.certify_by_name import certify_by_name
    from carso.evaluation.by_name import Images
    from carso.machine.progress import progress

    processes, place = started(device, devices, nodes, threads, oversubscribe=oversubscribe)
    changed = {
        "bare": bare,
        "unhardened": unhardened,
        f"sigma-{sigma}": sigma is not None,
        split: split != "test",
        Path(on).name: bool(on),
        f"n-{n}": n != 10_000,
        f"n0-{n0}": n0 != 100,
        f"alpha-{alpha:g}": alpha != 0.001,
        f"batch-{batch}": batch != 250,
        precision: precision != "32-true",
        f"seed-{seed}": seed != 0,
    }
    file = RecordFile(out, defence, ["certified", *that_differ(changed), str(images)])
    with progress(shown=processes.is_first and not quiet) as bars:
        record = certify_by_name(
            defence,
            Images(count=images, split=split, on=on, folder=data, download=download),
            sigma=sigma,
            bare=bare,
            hardened=False if unhardened else None,
            classifier=own_classifier(classifier),
            called=name,
            device=place,
            counted=bars.announced,
            seed=seed,
            processes=processes,
            draws=n,
            selection=n0,
            alpha=alpha,
            batch=batch,
            precision=precision,
            out=file.path,
            again=again,
        )
    if processes.is_first:
        file.show(record, as_json=as_json, drawn="a plot")
