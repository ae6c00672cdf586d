"""`carso evaluate`: attack a defence, and say how far to trust the number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import (
    check_attacks,
    check_classifier,
    check_data_set,
    check_defence,
    check_files,
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
    EpsOption,
    JsonOption,
    NodesOption,
    NormOption,
    OversubscribeOption,
    OwnOption,
    QuietOption,
    ThreadsOption,
    UnhardenedOption,
    listed,
    own_classifier,
    started,
)
from carso.cli.record_file import RecordFile, that_differ


def evaluate(
    defence: Annotated[
        str,
        typer.Argument(help="A shipped name, the folder of a run, or (--bare) a known classifier."),
    ],
    suite: Annotated[
        str, typer.Option(help="quick, paper, adaptive, full, or standard (for --bare).")
    ] = "",
    attacks: Annotated[str, typer.Option(help="Only these, e.g. transfer,randaa-released.")] = "",
    images: Annotated[int, typer.Option(help="How many images.")] = 200,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    on: Annotated[str, typer.Option(help="A data set instead of the scenario's own.")] = "",
    eps: EpsOption = None,
    norm: NormOption = "",
    bare: Annotated[bool, typer.Option("--bare", help="The classifier alone.")] = False,
    unhardened: UnhardenedOption = False,
    aggregation: Annotated[str, typer.Option(help="Instead of the defence's own.")] = "",
    classifier: OwnOption = None,
    backward: Annotated[
        Path | None,
        typer.Option(
            help="A Python file whose classifier() is differentiated instead of the defence (BPDA)."
        ),
    ] = None,
    examples: Annotated[
        Path | None, typer.Option(help="Evaluate these saved adversarial images instead.")
    ] = None,
    save_examples: Annotated[
        Path | None, typer.Option(help="File (.safetensors) for the worst examples.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File of the record; default in records/, named after what is asked."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Evaluate anew, though the record is there.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of attacks, noise and verdicts.")] = 0,
    draws: Annotated[int, typer.Option(help="Independent draws that judge an image.", min=1)] = 5,
    samples: Annotated[
        int, typer.Option(help="Candidates an attack averages in a step; 0: measured.", min=0)
    ] = 0,
    chunk: Annotated[int, typer.Option(help="Images attacked at once.", min=1)] = 100,
    max_batch: Annotated[
        int, typer.Option(help="Candidates in memory at once; fewer for large networks.", min=1)
    ] = 1024,
    data: DataOption = None,
    download: DownloadOption = False,
    device: DeviceOption = "auto",
    devices: DevicesOption = 1,
    nodes: NodesOption = 1,
    oversubscribe: OversubscribeOption = False,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Attack a defence, judge it on fresh draws, and say how far to trust the number.

    Stopped and called again, it goes on; finished, it prints the record that it has.
    """
    chosen = listed("--attacks", attacks)
    check_defence(defence)
    check_name("suite", suite)
    check_name("aggregation", aggregation)
    check_name("norm", norm)
    check_attacks(suite or ("standard" if bare else "quick"), chosen)
    check_data_set(on)
    check_split(split)
    check_files("", [examples])
    check_classifier(classifier)
    check_classifier(backward, "--backward")
    check_folder("--data", data)
    check_places(out, save_examples)
    check_machine(device, threads)
    from carso.evaluation.by_name import Images, evaluate_by_name
    from carso.machine.progress import progress

    processes, place = started(device, devices, nodes, threads, oversubscribe=oversubscribe)
    changed = {
        "bare": bare,
        "unhardened": unhardened,
        aggregation: bool(aggregation),
        split: split != "test",
        Path(on).name: bool(on),
        norm: bool(norm),
        f"eps-{eps}": eps is not None,
        f"seed-{seed}": seed != 0,
        f"backward-{backward.stem}" if backward else "": backward is not None,
    }
    asked = [*chosen] or [suite or ("standard" if bare else "quick")]
    words = [*asked, str(images)] if examples is None else [examples.stem]
    file = RecordFile(out, defence, [*that_differ(changed), *words])
    other = own_classifier(backward)
    with progress(shown=processes.is_first and not quiet) as bars:
        record = evaluate_by_name(
            defence,
            Images(count=images, split=split, on=on, folder=data, download=download),
            bare=bare,
            hardened=False if unhardened else None,
            aggregation=aggregation,
            classifier=own_classifier(classifier),
            max_batch=max_batch,
            eps=eps,
            norm=norm,
            examples=examples,
            device=place,
            counted=bars.announced,
            seed=seed,
            suite=suite,
            attacks=chosen,
            draws=draws,
            samples=samples,
            backward=None if other is None else other.to(place),
            chunk=chunk,
            out=file.path,
            again=again,
            save_examples=save_examples,
            processes=processes,
        )
    if processes.is_first:
        file.show(record, as_json=as_json, drawn="a page")
