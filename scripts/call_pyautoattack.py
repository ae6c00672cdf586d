"""Calls `pyautoattack` itself on what a record is about, and compares the two image by image.

    python scripts/call_pyautoattack.py RECORD OUT [--threads 1]

RECORD is what `carso evaluate NAME --bare` wrote of a shipped classifier under AutoAttack standard.
The library gets the same classifier, images, norm, eps and seed, in the same chunks, and nothing
else of this package. OUT is a JSON of which images each left right.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pyautoattack
import torch
from records import in_one_line, subject_and_images

from carso.errors import CarsoError
from carso.evaluation.record import read
from carso.storage import files
from carso.storage.provenance import provenance


def called_directly(record: dict[str, Any]) -> dict[str, Any]:
    """Which images of `record` the library leaves right, beside those that the record does."""
    if [attack["name"] for attack in record["attacks"]] != ["autoattack"]:
        raise CarsoError("the record is not of AutoAttack standard alone")
    model, images, labels = subject_and_images(record, record["subject"]["name"])
    threat, chunk, began = record["threat"], record["suite"]["chunk"], time.perf_counter()
    right: list[int] = []
    for own, wanted in zip(images.split(chunk), labels.split(chunk), strict=True):
        ensemble = pyautoattack.AutoAttack(
            model, norm=threat["norm"], eps=threat["eps"], version="standard", seed=record["seed"]
        )
        found, _ = ensemble.run_standard_evaluation(own, wanted, batch_size=chunk)
        with torch.no_grad():
            right += (model(found).argmax(dim=1) == wanted).int().tolist()
    recorded = record["images"]["worst_right"]
    return {
        "of": {"subject": record["subject"], "command": record["provenance"]["command"]},
        "threat": threat,
        "seed": record["seed"],
        "recorded": recorded,
        "direct": right,
        "differ": [
            i for i, (one, other) in enumerate(zip(recorded, right, strict=True)) if one != other
        ],
        "seconds": round(time.perf_counter() - began, 1),
        "provenance": provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = called_directly(read(given.record))
    files.write_json(given.out, found)
    recorded, direct = sum(found["recorded"]), sum(found["direct"])
    print(f"right: {recorded} as recorded, {direct} called directly; differ: {found['differ']}")


if __name__ == "__main__":
    in_one_line(main)
