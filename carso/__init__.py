"""CARSO: a frozen classifier, made harder to fool by purifying what it sees.

`load` gives a shipped defence, `load_classifier` a classifier that others trained, `fit` and
`harden` make a defence around a classifier of your own, `Carso` is the method itself. Names are
imported when first used, so that `import carso` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from carso.certification.certify import certify
    from carso.classifiers.brought import load_classifier
    from carso.classifiers.wide_resnet import WideResNet
    from carso.defence.defence import Carso
    from carso.defence.on_disk import load
    from carso.defence.representation import Representation
    from carso.errors import CarsoError
    from carso.evaluation.evaluate import evaluate
    from carso.purifiers.vae.vae import VAEPurifier
    from carso.storage.tensor_files import load_weights
    from carso.threats.l2 import L2
    from carso.threats.linf import Linf
    from carso.training.fit import fit, harden

HOMES = {
    "Carso": "carso.defence.defence",
    "CarsoError": "carso.errors",
    "L2": "carso.threats.l2",
    "Linf": "carso.threats.linf",
    "VAEPurifier": "carso.purifiers.vae.vae",
    "Representation": "carso.defence.representation",
    "WideResNet": "carso.classifiers.wide_resnet",
    "certify": "carso.certification.certify",
    "evaluate": "carso.evaluation.evaluate",
    "fit": "carso.training.fit",
    "harden": "carso.training.fit",
    "load": "carso.defence.on_disk",
    "load_classifier": "carso.classifiers.brought",
    "load_weights": "carso.storage.tensor_files",
}

__all__ = [
    "Carso",
    "CarsoError",
    "L2",
    "Linf",
    "VAEPurifier",
    "Representation",
    "WideResNet",
    "certify",
    "evaluate",
    "fit",
    "harden",
    "load",
    "load_classifier",
    "load_weights",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'carso' has no attribute {name!r}")
    return getattr(importlib.import_module(HOMES[name]), name)
