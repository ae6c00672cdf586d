"""`carso export`: a defence as an ONNX file or a program of torch.export, and what it takes."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from carso.defence.on_disk import Deployed
from carso.errors import CarsoError, reason
from carso.export.export_graph import ExportGraph
from carso.storage import files
from carso.storage.provenance import provenance

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
"""The formats, and how their files end."""
WHAT = "a defence of carso, exported to "
"""How the note beside an exported file begins, and the name of the format ends it."""
OUTPUTS = ("log_probabilities", "labels")


def export_defence(defence: Deployed, kind: str, path: Path) -> dict[str, Any]:
    """Write the defence to `path`, and beside it a JSON of what goes in and comes out. A file is of
    no device: what is on a GPU is copied to the CPU for it."""
    if kind not in SUFFIXES:
        raise CarsoError(f"there is no format {kind!r}; there are {', '.join(SUFFIXES)}")
    refuse_other_note(path)
    if any(tensor.device.type != "cpu" for tensor in defence.state_dict().values()):
        defence = copy.deepcopy(defence).cpu()
    graph = ExportGraph(defence, defence.trained_shape).eval()
    size = graph.noise_size()
    example = (torch.full((2, *defence.trained_shape), 0.5), torch.zeros(2, size))
    try:
        with files.replacing(path) as written, quiet():
            write(graph, example, kind, written)
    except CarsoError:
        raise
    except ImportError as error:
        raise CarsoError(
            f"--to {kind} needs {error.name}: pip install 'carso[export]' brings it"
        ) from None
    except Exception as error:  # whatever a module of the user's may raise while it is traced
        raise CarsoError(f"this defence cannot be exported to {kind}: {reason(error)}") from error
    note = {
        "what": f"{WHAT}{kind}",
        "sha256": files.sha256(path),
        "inputs": {
            "images": f"float32 (B, {', '.join(map(str, defence.trained_shape))}) in [0, 1]",
            "noise": f"float32 (B, {size}), standard normal",
        },
        "noise_size": size,
        "outputs": list(OUTPUTS),
        "classes": list(defence.classes),
        "samples": defence.samples,
        "aggregation": defence.aggregation,
        "provenance": provenance(),
    }
    files.write_json(path.with_suffix(".json"), note)
    return note


def refuse_other_note(path: Path) -> None:
    """One line where the note beside the file would take the place of another JSON file."""
    note = path.with_suffix(".json")
    if path == note:
        raise CarsoError(f"{path} is where the note beside the file goes: give another ending")
    found = files.read_json(note) if note.exists() else {"what": WHAT}
    if not (isinstance(found, dict) and str(found.get("what", "")).startswith(WHAT)):
        raise CarsoError(f"{note} is there and no note of an export: give --out another name")


def write(graph: ExportGraph, example: tuple[Any, ...], kind: str, path: Path) -> None:
    batch = torch.export.Dim("batch", min=1)
    free = {"images": {0: batch}, "noise": {0: batch}}
    program = torch.export.export(graph, example, dynamic_shapes=free, strict=False)
    if kind == "torch":
        with path.open("wb") as file:
            torch.export.save(program, file)
        return
    made = torch.onnx.export(
        program,
        dynamo=True,
        input_names=["images", "noise"],
        output_names=list(OUTPUTS),
        verbose=False,
    )
    assert made is not None
    path.write_bytes(made.model_proto.SerializeToString())


@contextlib.contextmanager
def quiet() -> Any:
    """Without what the exporters say of their own insides."""
    talkative = logging.getLogger("torch.onnx")
    level = talkative.level
    talkative.setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            talkative.setLevel(level)
