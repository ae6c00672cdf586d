"""Tries to refute a record: longer attacks on the images that it left standing by least.

    python scripts/refute.py RECORD OUT [--run RUN] [--images 50] [--data DIR] [--seed 1]
                             [--threads 1]

RECORD is what `carso evaluate` wrote of a shipped defence, of a run (`--run` says where it is), or
of the classifier of either. Of the images that some draw labels right in it, those with the
smallest margins are attacked anew, with several times the effort of the adaptive suite. OUT is a
JSON of how many break on all draws, and of how many draws were right before and after. Images far
from the boundary tell nothing here and are left out, so this is no accuracy, but by so much the
record's own figure is too high at least.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from records import in_one_line
from torch import nn

from carso.defence.on_disk import load, stored
from carso.defence.shipped import folder_of
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.by_name import Images
from carso.evaluation.evaluate import evaluate
from carso.evaluation.fingerprints import weights
from carso.evaluation.planned_attacks import Effort, Suite, apgd, black_box, margin
from carso.evaluation.record import read
from carso.progress import progress
from carso.storage import files
from carso.storage.provenance import provenance


def long_attacks(samples: int) -> Suite:
    """Losses, targets, starts and queries as in AutoAttack standard, and more of the margin's."""
    fresh, fixed = AttackedView(samples=samples), AttackedView(samples=samples, fixed=True)
    return Suite(
        name="refutation",
        attacks=(
            apgd("ce", 100, fixed, restarts=2),
            apgd("dlr-targeted", 100, fixed, targets=9),
            margin(200, 5, fresh),
            black_box(1000),
        ),
        effort=Effort(images=1, steps=1, queries=1, eps=(0.0, 1.0)),
    )


def nearest(record: dict[str, Any], count: int) -> list[int]:
    """Of the images that stand on at least one draw, the `count` with the smallest margins."""
    images = record["images"]
    standing = [i for i, right in enumerate(images["worst_right"]) if right > 0]
    return sorted(standing, key=lambda i: images["worst_margin"][i])[:count]


def run(
    record: dict[str, Any], name: str, count: int, folder: Path | None, seed: int
) -> dict[str, Any]:
    """What longer attacks make of the nearest images of `record`."""
    bare = record["subject"]["kind"] == "classifier"
    defence = stored(folder_of(name), None, torch.device("cpu")) if bare else load(name)
    model: nn.Module = defence.classifier if bare else defence
    if weights(model) != record["subject"]["weights"]:
        raise SystemExit(f"{name} has other weights than the record is about")
    data = record["data"]
    chosen = Images(count=data["count"], split=data["split"], on=data["set"], folder=folder)
    pixels, labels = chosen.load(defence)[1].batch(slice(None))
    index = nearest(record, count)
    with progress() as bars:
        found = evaluate(
            model,
            pixels[index],
            labels[index],
            eps=record["threat"]["eps"],
            norm=record["threat"]["norm"],
            suite=long_attacks(record["suite"]["samples"]),
            seed=seed,
            draws=record["suite"]["draws"],
            samples=record["suite"]["samples"],
            name=name,
            counted=bars.announced,
        )
    draws = found["suite"]["draws"]
    before, after = record["images"], found["images"]
    keys = ("name", "what", "attacked", "broken", "seconds")
    return {
        "of": {
            "subject": record["subject"],
            "command": record["provenance"]["command"],
            "revision": record["provenance"]["revision"],
        },
        "images": {"set": data["set"], "split": data["split"], "of": data["count"]},
        "index": index,
        "draws": draws,
        "before": {key: [before[key][i] for i in index] for key in ("worst_right", "worst_margin")},
        "after": {key: after[key] for key in ("worst_right", "worst_margin")},
        "broken": sum(right == 0 for right in after["worst_right"]),
        "attacks": [{key: attack[key] for key in keys} for attack in found["attacks"]],
        "threat": record["threat"],
        "seed": seed,
        "provenance": provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--run", default="")
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    record = read(given.record)
    name = given.run or record["subject"]["name"]
    found = run(record, name, given.images, given.data, given.seed)
    files.write_json(given.out, found)
    print(f"{found['broken']} of {len(found['index'])} images break")


if __name__ == "__main__":
    in_one_line(main)
