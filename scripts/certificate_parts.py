"""The generated parts about certificates."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from records import RESULTS, record, table
from torch import Tensor

from carso.certification.certificate import Smoothing, certified_accuracy
from carso.evaluation.statistics import paired_difference
from carso.report.record_tables import signed

CERTIFICATES = RESULTS / "certificates"
KNOWN = {"32-true": "in float32", "bf16-mixed": "in bfloat16"}
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
OTHERS = ("cifar10-resnet20", "cifar10-resnet18")
"""Prefixes of the records around classifiers of other people."""
KINDS = ("bare", "activations", "image", "noise-classifier")
"""The classifier alone, behind a purifier that reads its activations, behind one that reads the
image, and trained on noise itself."""


def paths(prefix: str = "fashion") -> list[Path]:
    """The records, from small sigma to large and in the order of `KINDS`."""
    found = []
    for path in CERTIFICATES.glob(f"{prefix}-*.json"):
        kind, sigma = path.stem.removeprefix(f"{prefix}-").rsplit("-", 1)
        if kind in KINDS:
            found.append((float(sigma), KINDS.index(kind), path))
    return [path for _, _, path in sorted(found)]


def certified(prefix: str = "fashion") -> str:
    """Certified accuracy at some radii."""
    rows = []
    for found in map(record, paths(prefix)):
        at = {row["radius"]: row["value"] for row in found["accuracy"]}
        cells = " | ".join(f"{at[radius]:.3f}" for radius in RADII)
        rows.append(
            f"| {found['subject']['name']} | {found['smoothing']['sigma']:g} | {cells} | "
            f"{found['abstained']} |"
        )
    radii = " | ".join(f"{radius:g}" for radius in RADII)
    return table(f"| what | sigma | {radii} | abstained |", rows)


def how_certified(prefix: str = "fashion") -> str:
    """On how many images and draws, in which precision, and what no certificate can exceed."""
    sentences = []
    for images, draws, precision in sorted({counts(found) for found in map(record, paths(prefix))}):
        most = Smoothing(sigma=1.0, draws=draws).largest_radius
        sentences.append(
            f"{images} test images, {draws:,} draws for each, {KNOWN[precision]}, alpha = 0.001: "
            f"no radius above {math.ceil(100 * most) / 100:.2f} sigma can come of it."
        )
    return " ".join(sentences) or "Not measured yet."


def counts(found: Any) -> tuple[int, int, str]:
    smoothing = found["smoothing"]
    return len(found["images"]["label"]), smoothing["draws"], smoothing.get("precision", "32-true")


def hits(found: Any, at: float) -> Tensor:
    """Which images are certified right within a radius, as floats."""
    images = found["images"]
    radii = torch.tensor(images["radius"], dtype=torch.float64)
    right = torch.tensor(images["selected"]) == torch.tensor(images["label"])
    return certified_accuracy(radii, right, at).double()


def compared(prefix: str = "fashion") -> str:
    """Paired differences on the same images: activations against the image and the others."""
    rows = []
    for sigma in sorted({path.stem.rsplit("-", 1)[1] for path in paths(prefix)}, key=float):
        for other in ("image", "noise-classifier", "bare"):
            files = [CERTIFICATES / f"{prefix}-{k}-{sigma}.json" for k in ("activations", other)]
            if not all(path.exists() for path in files):
                continue
            both = [record(path) for path in files]
            cells = " | ".join(
                signed(paired_difference(*(hits(found, at) for found in both))) for at in RADII
            )
            rows.append(f"| {both[1]['subject']['name']} | {sigma} | {cells} |")
    radii = " | ".join(f"{radius:g}" for radius in RADII)
    return table(f"| reads activations, against | sigma | {radii} |", rows)


def speeds(prefix: str = "fashion") -> str:
    """Draws per second, and as a share of plain passes."""
    rows = []
    for found in map(record, paths(prefix)):
        made = found["provenance"]
        rows.append(
            f"| {found['subject']['name']} | {found['smoothing']['sigma']:g} | "
            f"{made['seconds']:.0f} | {made['draws_per_second']:.0f} | "
            f"{made['share_of_plain_passes']:.2f} |"
        )
    head = "| what | sigma | seconds | draws per second | share of plain passes |"
    return table(head, rows)


def trainings(prefix: str = "fashion") -> str:
    """How long each training took, and what it reached on validation images."""
    rows = []
    for path in sorted((CERTIFICATES / "training").glob(f"{prefix}-*.json")):
        found = record(path)
        last = max(found["history"], key=lambda row: row["validation_noise_accuracy"])
        epochs, seconds = len(found["history"]), sum(row["seconds"] for row in found["history"])
        kind, sigma = path.stem.removeprefix(f"{prefix}-").rsplit("-", 1)
        rows.append(
            f"| {kind} | {sigma} | {epochs} | {seconds / 60:.0f} min | "
            f"{last['validation_accuracy']:.4f} | {last['validation_noise_accuracy']:.4f} |"
        )
    return table("| what | sigma | epochs | took | clean | single draws under noise |", rows)


def attacked() -> str:
    """What attacks inside the certificates came to."""
    path = CERTIFICATES / "attacks" / "fashion-certified.json"
    if not path.exists():
        return "At this size: not run yet."
    found = record(path)
    sentence = (
        f"{found['attacked']} certified images, each attacked by {found['attack']['steps']} steps "
        f"of PGD within its own radius: {found['fell']} fell, and of {found['another_leads']} "
        f"another class led among {found['attack']['draws']} draws."
    )
    rows = [
        f"| {row['radius']:g} | {row['certified']:.3f} | {row['under_attack']:.3f} |"
        for row in found["accuracy"]
    ]
    count = found["images_at_fixed_radii"]
    head = f"| L2 radius, {count} images | certified accuracy | accuracy under attack |"
    return f"{sentence}\n\n{table(head, rows)}"


def around(prefix: str) -> str:
    """All that was certified around another classifier: how, what came out, by which training."""
    if not paths(prefix):
        return "Not measured yet."
    parts = (how_certified, certified, compared, trainings)
    return "\n\n".join(part(prefix) for part in parts)


CERTIFICATE_PARTS = {
    **{f"certificates-{name.removeprefix('cifar10-')}": partial(around, name) for name in OTHERS},
    "certificates": certified,
    "certificates-how": how_certified,
    "certificates-compared": compared,
    "certificates-speed": speeds,
    "certificates-training": trainings,
    "certificates-attacked": attacked,
}
