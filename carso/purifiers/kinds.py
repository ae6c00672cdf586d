"""From the kind of a purifier, as a scenario names it, to one that is built, untrained."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carso.arguments import text
from carso.errors import CarsoError
from carso.purifiers.base import Purifier, TrainablePurifier
from carso.purifiers.flow.flow import FlowPurifier
from carso.purifiers.unet.unet import UNetPurifier
from carso.purifiers.vae.vae import VAEPurifier

KINDS: dict[str, Any] = {"vae": VAEPurifier, "unet": UNetPurifier, "flow": FlowPurifier}
"""Each is built as `carso.purifiers.base` says; what it has of settings is in
`carso.scenario.purifier_settings`."""
STANDARDISES = ("vae",)
"""Kinds that see images in training, and so want mean and std of their channels."""


def build(
    kind: str,
    image_shape: tuple[int, int, int],
    *,
    layers: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    **settings: Any,
) -> TrainablePurifier:
    """A purifier of this kind for activations of these `shapes`; `mean` and `std` of the images
    matter in training only."""
    images = {"mean": mean, "std": std} if kind in STANDARDISES else {}
    make = KINDS.get(text("kind", kind)) or of_user(kind)
    try:
        made = make(image_shape, layers=layers, shapes=shapes, **settings, **images)
    except TypeError as error:
        if kind in KINDS:
            raise
        raise CarsoError(f"[purifier] kind = {kind!r} cannot be built: {error}") from error
    made.made_as = {"kind": kind, "own": settings}
    return made  # type: ignore[no-any-return]


def made_as(purifier: Purifier | None) -> dict[str, Any]:
    """The `kind` and its `own` settings by which `build` made a purifier, or what it is a copy of;
    nothing of one that somebody else made."""
    return dict(getattr(purifier, "made_as", {}))


def of_user(kind: str) -> Any:
    """The class that "module:Class" names, from wherever Python finds modules or from the working
    directory; a scenario file's own folder is one of the former once it has been read."""
    module_name, colon, class_name = kind.partition(":")
    if not colon:
        raise CarsoError(f"no purifier of kind {kind!r}; known: {', '.join(KINDS)}, module:Class")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise CarsoError(
            f"[purifier] kind = {kind!r}: {error}; the folder of {module_name}.py must be the "
            "scenario file's, the working directory or on PYTHONPATH"
        ) from error
    if class_name not in vars(module):
        raise CarsoError(f"[purifier] kind = {kind!r}: {module.__file__} has no {class_name}")
    return vars(module)[class_name]
