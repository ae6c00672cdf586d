"""Tries to refute a record: ten times its budget, on every image that might still break.

    python scripts/refute.py RECORD OUT [--run RUN] [--least 50] [--times 10] [--data DIR]
                             [--seed 1] [--threads 1] [--classifier FILE]

RECORD is what `carso evaluate` wrote of a shipped defence, of a run (`--run` says where it is), or
of the classifier of either, whose file `--classifier` gives where the defence does not hold it.
Attacked anew are the images that some draw labels right in it and whose worst example has a margin
from which images do break: at most the widest from which an attack of the record, after its first
two, broke one. They are at least the `--least` weakest. Each of them
gets `--times` the gradients that the record spent on an image on average, most of them in short
descents from the worst example so far, and 5,000 queries of Square. OUT is a JSON of what that
takes from the record: of each image the worse of the two verdicts counts, so that luck counts
against it. A call that was stopped goes on when it is repeated.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from records import in_one_line, subject_and_images

from carso.errors import CarsoError
from carso.evaluation.attacked_model import AttackedView
from carso.evaluation.evaluate import evaluate
from carso.evaluation.planned_attacks import Effort, Suite, apgd, black_box, margin, refine
from carso.evaluation.record import read
from carso.machine.progress import progress
from carso.storage import files
from carso.storage.provenance import provenance

FIRST = 2
"""Attacks of a record that break images from anywhere; the later ones break the weak."""
DESCENT = {"steps": 40, "targets": 4}


def spent_per_image(record: dict[str, Any]) -> float:
    """Gradients of one image each that the record spent, on average over its images."""
    backward = sum(attack["passes"]["backward"] for attack in record["attacks"])
    return float(backward / record["data"]["count"])


def long_attacks(samples: int, gradients: float) -> Suite:
    """Attacks that take about so many `gradients` of an image: losses, targets and queries as in
    AutoAttack standard, more starts of the margin's, and descents for all that is left."""
    fresh, fixed = AttackedView(samples=samples), AttackedView(samples=samples, fixed=True)
    each = DESCENT["steps"] * (1 + DESCENT["targets"])
    left = gradients - (2 * 100 + 9 * 100 + 5 * 200)
    starts = max(4, math.ceil(left / each) - 1)
    return Suite(
        name="refutation",
        attacks=(
            apgd("ce", 100, fixed, restarts=2),
            apgd("dlr-targeted", 100, fixed, targets=9),
            margin(200, 5, fresh),
            refine(**DESCENT, restarts=starts, through=fresh),
            black_box(5000),
        ),
        effort=Effort(images=1, steps=1, queries=1, eps=(0.0, 1.0)),
    )


def widest_break(record: dict[str, Any]) -> float:
    """The widest margin of an image's worst example from which an attack after the first ones
    broke it on all draws; minus infinity where none did."""
    images, widest = record["images"], -math.inf
    right, lead = list(images["clean_right"]), list(images["clean_margin"])
    for number, attack in enumerate(record["attacks"]):
        for i, (now, then) in enumerate(zip(attack["right"], attack["margin"], strict=True)):
            if now is None or then is None or lead[i] is None:
                continue
            if now == 0 and right[i] > 0 and number >= FIRST:
                widest = max(widest, lead[i])
            if (now, then) < (right[i], lead[i]):
                right[i], lead[i] = now, then
    return widest


def chosen(record: dict[str, Any], least: int) -> tuple[list[int], float]:
    """The images to attack anew, the weakest first, and the margin up to which they were taken."""
    images = record["images"]
    margins = [-math.inf if m is None else m for m in images["worst_margin"]]
    standing = [i for i, right in enumerate(images["worst_right"]) if right > 0]
    standing.sort(key=lambda i: margins[i])
    limit = widest_break(record)
    if standing:
        limit = max(limit, margins[standing[:least][-1]])
    return [i for i in standing if margins[i] <= limit], limit


def run(
    record: dict[str, Any], name: str, least: int, times: float, folder: Path | None, seed: int,
    out: Path, classifier: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What longer attacks take from `record`; what is done is kept beside `out`."""
    if record["subject"].get("backward"):
        raise CarsoError("this record followed the gradients of a module that is not at hand here")
    model, pixels, labels = subject_and_images(record, name, folder, classifier)
    index, limit = chosen(record, least)
    if not index:
        raise CarsoError("no image of this record stands: there is nothing to refute")
    gradients, kept = times * spent_per_image(record), out.with_suffix(".attacked.json")
    with progress() as bars:
        found = evaluate(
            model,
            pixels[index],
            labels[index],
            eps=record["threat"]["eps"],
            norm=record["threat"].get("norm", "Linf"),
            suite=long_attacks(record["suite"]["samples"], gradients),
            seed=seed,
            draws=record["suite"]["draws"],
            samples=record["suite"]["samples"],
            chunk=25,
            name=name,
            out=kept,
            counted=bars.announced,
        )
    return {**summary(record, found, index), "limit": limit, "gradients_asked": gradients}


def summary(record: dict[str, Any], found: dict[str, Any], index: list[int]) -> dict[str, Any]:
    """The record of a refutation."""
    before, after, data = record["images"], found["images"], record["data"]
    draws = found["suite"]["draws"]
    pairs = list(zip((before["worst_right"][i] for i in index), after["worst_right"], strict=True))
    taken = sum(was - min(was, now) for was, now in pairs) / draws / data["count"]
    keys = ("name", "what", "attacked", "broken", "passes", "seconds")
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
        "broken": sum(now == 0 < was for was, now in pairs),
        "taken": taken,
        "gradients_of_record": spent_per_image(record),
        "gradients": spent_per_image(found),
        "attacks": [{key: attack[key] for key in keys} for attack in found["attacks"]],
        "threat": record["threat"],
        "seed": found["seed"],
        "provenance": provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--run", default="")
    parser.add_argument("--least", type=int, default=50, help="weakest images that are taken")
    parser.add_argument("--times", type=float, default=10, help="of the record's own budget")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--classifier", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    record = read(given.record)
    name = given.run or record["subject"]["name"]
    found = run(
        record, name, given.least, given.times, given.data, given.seed, given.out, given.classifier
    )
    files.write_json(given.out, found)
    given.out.with_suffix(".attacked.json").unlink(missing_ok=True)
    print(
        f"{found['broken']} of {len(found['index'])} images break, which takes "
        f"{found['taken']:.4f} from the worst case"
    )


if __name__ == "__main__":
    in_one_line(main)
