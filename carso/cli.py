"""The command line: thin. Parse, call, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.exceptions

from carso import __version__
from carso.errors import CarsoError

if TYPE_CHECKING:  # torch takes a second to import, and --help does not need it
    import torch

app = typer.Typer(
    name="carso",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DataOption = Annotated[
    Path | None, typer.Option("--data", help="Folder that holds data sets (else CARSO_DATA).")
]
ThreadsOption = Annotated[int, typer.Option(help="CPU threads; 0: torch's own choice.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.callback(invoke_without_command=True)
def carso(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Purify what an image classifier sees, and measure what that is worth."""
    if version:
        print(f"carso {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for picture and page.")] = Path("demo"),
    images: Annotated[int, typer.Option(help="How many test images.", min=3, max=2000)] = 100,
    seed: Annotated[int, typer.Option(help="Of the attacks and the defence's noise.")] = 0,
    threads: ThreadsOption = 0,
    as_json: JsonOption = False,
) -> None:
    """See what published attacks say of the shipped defence, and what better ones say."""
    from carso import demo as story
    from carso.progress import progress
    from carso.provenance import provenance

    prepare("cpu", threads)
    with progress() as bars:
        found = story.run(out, count=images, seed=seed, counted=bars.announced)
    if as_json:
        print(json.dumps({"records": found.records, "provenance": provenance()}, indent=1))
        return
    print_table(*story.table(found.records))
    print(f"picture: {found.picture}")
    print(f"page:    {found.page}  (open it in a browser)")


@app.command()
def scenarios(as_json: JsonOption = False) -> None:
    """List the shipped scenarios."""
    from carso import scenario_file

    found = [scenario_file.read(name) for name in scenario_file.names()]
    if as_json:
        print(json.dumps([scenario_file.as_table(scenario) for scenario in found], indent=1))
        return
    print_table(
        ("scenario", "eps", "what"),
        [(s.name, f"{s.threat.eps:.4g}", s.summary) for s in found],
    )


@app.command()
def train(
    scenario: Annotated[str, typer.Argument(help="A shipped name, or a TOML file of your own.")],
    run: Annotated[Path | None, typer.Option(help="Folder of the run; default runs/NAME.")] = None,
    data: DataOption = None,
    download: Annotated[bool, typer.Option(help="Download the data set if missing.")] = False,
    classifier: Annotated[
        Path | None, typer.Option(help="Weights to defend, instead of training some.")
    ] = None,
    preset: Annotated[str, typer.Option(help="A preset of the scenario, e.g. released.")] = "",
    seed: Annotated[int | None, typer.Option(help="Instead of the scenario's own.")] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 0,
) -> None:
    """Train a scenario: its classifier, then its purifier. Run again to go on."""
    from dataclasses import replace

    from carso import scenario_file
    from carso.progress import progress
    from carso.training.run import load_data
    from carso.training.run import train as train_all

    settings = scenario_file.read(scenario, preset=preset)
    if seed is not None:
        settings = replace(settings, seed=seed)
    folder = run or Path("runs") / settings.name
    place = prepare(device, threads)
    images = load_data(settings, data, download=download)
    print(f"{settings.name}: {images.name} from {images.origin}, run in {folder}", flush=True)
    with progress() as bars:
        train_all(settings, images, folder, device=place, display=bars, weights=classifier)
    print(f"done: carso predict {folder} IMAGE...")


@app.command()
def predict(
    defence: Annotated[str, typer.Argument(help="A shipped name, or the folder of a run.")],
    images: Annotated[list[Path], typer.Argument(help="Image files, or .npy in [0, 1].")],
    samples: Annotated[int | None, typer.Option(help="Candidates per image.")] = None,
    aggregation: Annotated[str, typer.Option(help="Instead of the defence's own.")] = "",
    candidates: Annotated[Path | None, typer.Option(help="Folder to draw them in.")] = None,
    seed: Annotated[int, typer.Option(help="Of the defence's noise.")] = 0,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Label images: label, probability, and what the classifier alone would say."""
    from carso.prediction import predict_files

    prepare(device, 0)
    options: dict[str, Any] = {"seed": seed}
    if samples is not None:
        options["samples"] = samples
    if aggregation:
        options["aggregation"] = aggregation
    found = predict_files(defence, images, device=device, candidates=candidates, options=options)
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


@app.command()
def evaluate(
    defence: Annotated[str, typer.Argument(help="A shipped name, or the folder of a run.")],
    suite: Annotated[
        str, typer.Option(help="quick, paper, adaptive, full, or standard (for --bare).")
    ] = "",
    attacks: Annotated[str, typer.Option(help="Only these, e.g. transfer,randaa-released.")] = "",
    images: Annotated[int, typer.Option(help="How many images.")] = 200,
    split: Annotated[str, typer.Option(help="test or validation.")] = "test",
    on: Annotated[str, typer.Option(help="A data set instead of the scenario's own.")] = "",
    eps: Annotated[float | None, typer.Option(help="Instead of the scenario's own.")] = None,
    bare: Annotated[bool, typer.Option("--bare", help="The classifier alone.")] = False,
    aggregation: Annotated[str, typer.Option(help="Instead of the defence's own.")] = "",
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
    download: Annotated[bool, typer.Option(help="Download the data set if missing.")] = False,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Attack a defence, judge it on fresh draws, and say how far to trust the number.

    Stopped and called again, it goes on.
    """
    from carso.evaluation.named import Images, evaluate_named
    from carso.progress import progress
    from carso.report import terminal

    place = prepare(device, threads)
    chosen = tuple(name.strip() for name in attacks.split(",") if name.strip())
    label = suite or ("standard" if bare else "quick")
    words = [*chosen, str(images)] if chosen else [label, str(images)]
    if examples is not None:
        words = [examples.stem]
    name = "-".join([Path(defence).name, *(["bare"] if bare else []), *words])
    path = out or Path("records") / f"{name}.json"
    with progress() as bars:
        record = evaluate_named(
            defence,
            Images(count=images, split=split, on=on, folder=data, download=download),
            bare=bare,
            aggregation=aggregation,
            max_batch=max_batch,
            eps=eps,
            examples=examples,
            device=place,
            counted=bars.announced,
            seed=seed,
            suite=suite,
            attacks=chosen,
            draws=draws,
            samples=samples,
            chunk=chunk,
            out=path,
            save_examples=save_examples,
        )
    if as_json:
        print(json.dumps(record, indent=1))
        return
    print("\n".join(terminal([record])))
    print(f"record: {path}  (carso report {path} makes tables and a page of it)")


@app.command()
def report(
    records: Annotated[list[Path], typer.Argument(help="Records that `carso evaluate` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for page and tables.")] = Path("report"),
) -> None:
    """Make tables (text, Markdown, LaTeX) and one self-contained HTML page of records."""
    from carso.report import write_report

    found, written = write_report(records, out)
    print("\n".join(found))
    for path in written:
        print(f"wrote {path}")


@app.command()
def doctor(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Show the machine, the versions, and what data and weights are found."""
    from carso import data as data_sets
    from carso import deployed
    from carso.provenance import provenance

    facts = provenance()
    facts["data"] = dict(data_sets.available(data))
    facts["weights"] = {name: str(deployed.SHIPPED / name) for name in deployed.names()}
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for key in ("versions", "hardware", "data", "weights"):
        print(f"{key}:")
        for name, value in facts[key].items():
            print(f"  {name:18} {'not found' if value is None else value}")
    print(f"revision: {facts['revision']}")


def prepare(device: str, threads: int) -> torch.device:
    """The device asked for, after a check that it is there."""
    import torch

    if threads < 0:
        raise CarsoError(f"--threads is at least 1, or 0 for torch's own choice, got {threads}")
    if threads:
        torch.set_num_threads(threads)
    try:
        place = torch.device(device)
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise CarsoError(f"device {device!r} is not usable here: {reason}") from None
    return place


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns that line up, as plain text that can be copied."""
    from carso.report.tables import as_text

    print("\n".join(as_text((header, list(rows)))))


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except CarsoError as error:
        print(f"carso: {error}", file=sys.stderr)
        sys.exit(2)
    except typer.exceptions.TyperException as error:  # a missing argument, an unknown option
        print(f"carso: {error.format_message()} (see carso --help)", file=sys.stderr)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        stopped()
        sys.exit(130)
    if code == 130:  # typer's word for Ctrl-C
        stopped()
    sys.exit(code if isinstance(code, int) else 0)


def stopped() -> None:
    """Say how to go on."""
    again = "a training or evaluation goes on when the command is given again"
    print(f"carso: stopped; {again}", file=sys.stderr)


if __name__ == "__main__":
    main()
