"""`carso export`: a defence as one file for other runtimes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from carso.cli.before_work import check_classifier, check_defence, check_name, check_places
from carso.cli.options import JsonOption, OwnOption, UnhardenedOption, own_classifier, prepare


def export(
    defence: Annotated[str, typer.Argument(help="A shipped name, or the folder of a run.")],
    to: Annotated[str, typer.Option(help="onnx, or torch (a program of torch.export).")] = "onnx",
    out: Annotated[
        Path | None, typer.Option(help="The file; default NAME.onnx or NAME.pt2.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Candidates per image.")] = None,
    unhardened: UnhardenedOption = False,
    classifier: OwnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a defence as one file: N fixed, the noise an input, the batch free."""
    check_defence(defence)
    check_name("format", to)
    check_classifier(classifier)
    check_places(out)
    from carso.defence.on_disk import load
    from carso.export.export_files import SUFFIXES, export_defence

    prepare("cpu", 0)
    options: dict[str, Any] = {} if samples is None else {"samples": samples}
    if unhardened:
        options["hardened"] = False
    found = load(defence, classifier=own_classifier(classifier), **options)
    path = out or Path(f"{Path(defence).name}{SUFFIXES.get(to, '')}")
    note = export_defence(found, to, path)
    if as_json:
        print(json.dumps({"written": str(path), **note}, indent=1))
        return
    print(f"wrote {path} ({path.stat().st_size / 2**20:.1f} MiB) and {path.with_suffix('.json')}")
    for name, words in note["inputs"].items():
        print(f"  {name:8} {words}")
