"""`carso layers`: what a purifier could read of a classifier, and what it would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from carso.cli.before_work import check_files
from carso.cli.options import JsonOption, PresetOption, print_table


def layers(
    classifier: Annotated[
        Path, typer.Argument(help="A .py with classifier(), or weights of the scenario's network.")
    ],
    scenario: Annotated[
        str, typer.Option(help="Whose images the classifier takes: a name, or a TOML file.")
    ] = "fashion-retrofit-unet",
    shape: Annotated[str, typer.Option(help="C,H,W of the images instead, e.g. 3,32,32.")] = "",
    preset: PresetOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the layers of a classifier, and which ones layers = "auto" takes."""
    from carso.classifiers.known_files import weight_file
    from carso.scenario import parser

    settings, weights = parser.read(scenario, preset=preset), weight_file(classifier)
    check_files("", [weights])
    from carso.defence.layers import earliest, layers_in
    from carso.training.recipes import classifier_and_shape

    network, image_shape = classifier_and_shape(settings, weights, shape)
    found = layers_in(network, image_shape)
    taken = earliest(found, image_shape)
    rows = [
        {"layer": layer.name, "shape": list(layer.shape), "auto": layer.name in taken}
        for layer in found
    ]
    if as_json:
        print(json.dumps({"image": list(image_shape), "layers": rows}, indent=1))
        return
    print_table(
        ("layer", "activation", "auto"),
        [
            (layer.name, "x".join(map(str, layer.shape)), "taken" if layer.name in taken else "")
            for layer in found
        ],
    )
    print(f"--layers {','.join(taken)}")
