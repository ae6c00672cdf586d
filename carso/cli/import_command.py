"""Take over what others have trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import check_files, check_folder, check_places
from carso.scenario import parser


def import_(
    folder: Annotated[Path, typer.Argument(help="Folder with the files the authors publish.")],
    scenario: Annotated[
        str, typer.Option(help="Where it does not follow from the names of the files.")
    ] = "",
    base: Annotated[
        str, typer.Option(help="Which purifier: the name before _decoder, e.g. ..._cui_2023.")
    ] = "",
    classifier: Annotated[
        Path | None, typer.Option(help="File of the classifier, if it is not in the folder.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Folder to make; default runs/BASE.")] = None,
) -> None:
    """Make a run of the weights that the paper's authors publish, to evaluate it."""
    settings = parser.read(scenario) if scenario else None
    check_folder("import", folder)
    check_files("--classifier", [classifier])
    check_places(folders=[run])
    from carso import data
    from carso.defence.published_weights import find, import_published

    source = find(folder, scenario=settings, base=base, classifier=classifier)
    out = import_published(source, run or Path("runs") / source.base)
    print(f"imported: {source.base} around {source.classifier.name}, in {out}")
    facts = data.facts(source.scenario.data.set)
    if facts.classes == data.numbered(len(facts.classes)):
        print("classes:  numbered, since only the data names them; a clean accuracy at chance")
        print("          would mean that the authors numbered them in another order")
    print("What published protocols say of it, and what an attack on the whole says:")
    print(f"  carso evaluate {out} --attacks randaa-released --images 1000")
    print(f"  carso evaluate {out} --suite adaptive --images 1000")
