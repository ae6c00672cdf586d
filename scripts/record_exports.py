"""Exports every shipped defence and records how the files compare with the defences themselves.

    python scripts/record_exports.py docs/results/exports.json --weights FOLDER

CIFAR-10 must be there, for the defences of its images, and in FOLDER the classifiers of others that
do not ship, under the names that the model cards give.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import onnxruntime
import torch

import carso
from carso import data
from carso.defence.elsewhere import is_whole, source_of
from carso.defence.on_disk import Deployed
from carso.defence.shipped import folder_of, names
from carso.export.export_files import export_defence
from carso.machine.timing import seconds
from carso.randomness import given_noise
from carso.storage import files
from carso.storage.provenance import provenance

IMAGES = 200


def loaded(name: str, weights: Path) -> Deployed:
    """A shipped defence; the classifier that it lacks lies in `weights`."""
    folder = folder_of(name)
    if is_whole(folder):
        return carso.load(name)
    file = weights / source_of(folder)["name"]
    return carso.load(name, classifier=carso.load_classifier(file))


def test_set(defence: Deployed) -> str:
    return "fashion-embedded" if defence.trained_shape == (1, 28, 28) else defence.scenario.data.set


def compared(defence: Deployed, path: Path) -> dict[str, Any]:
    """Size of the ONNX file, and its answers beside the defence's on the same noise."""
    note = export_defence(defence, "onnx", path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    images = data.load(test_set(defence)).test.batch(slice(0, IMAGES))[0]
    noise = torch.randn(IMAGES, note["noise_size"], generator=torch.Generator().manual_seed(0))
    given = {"images": images.numpy(), "noise": noise.numpy()}
    scores, labels = session.run(None, given)
    with given_noise(noise):
        wanted = defence.predict_proba(images)
    session_time = min(seconds(lambda: session.run(None, given)) for _ in range(3))
    own_time = min(seconds(lambda: defence.predict_proba(images)) for _ in range(3))
    return {
        "images": test_set(defence),
        "bytes": path.stat().st_size,
        "samples": note["samples"],
        "noise_size": note["noise_size"],
        "same_labels": int((torch.from_numpy(labels) == wanted.argmax(dim=1)).sum()),
        "largest_difference": float((torch.from_numpy(scores).exp() - wanted).abs().max()),
        "time_over_torch": session_time / own_time,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--weights", type=Path, default=Path())
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names():
            found[name] = compared(loaded(name, given.weights), Path(folder) / f"{name}.onnx")
            print(name, found[name], flush=True)
    versions = {"onnxruntime": onnxruntime.__version__}
    record = {"images": IMAGES, "defences": found, "versions": versions}
    files.write_json(given.out, {**record, "provenance": provenance()})


if __name__ == "__main__":
    main()
