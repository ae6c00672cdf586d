"""The generated parts about shipped weights: their trainings, and where they come from."""

from __future__ import annotations

import math
from datetime import datetime
from functools import partial

from hardening_parts import HARDENED
from records import FASHION, RESULTS, WEIGHTS, record, table

CERTIFIED = "fashion-certified"


def accuracies() -> str:
    """The shipped weights' accuracies and provenance."""
    found = record(FASHION / "accuracies.json")
    rows = []
    for name in ("validation", "test"):
        part = found[name]
        rows.append(
            f"| {name} | {part['images']} | {part['classifier']:.4f} | {part['defence']:.4f} | "
            f"{part['classifier_under_pgd']:.4f} ({part['images_under_pgd']} images) |"
        )
    head = "| images | count | classifier, clean | defence, clean | classifier under PGD |"
    about = f"PGD: {found['attack']}. Seed {found['seed']}, N = {found['samples']}."
    return f"{table(head, rows)}\n\n{about}"


def provenance(name: str = "fashion") -> str:
    """Where the weights of a shipped defence come from."""
    rows = []
    folder = WEIGHTS / name
    for part in ("classifier", "purifier", "hardening"):
        if not (folder / f"{part}.json").exists():
            continue
        found = record(folder / f"{part}.json")
        made = found["provenance"]
        if "history" in found:
            data, seed = found["data"], found["scenario"]["seed"]
            how = (
                f"{len(found['history'])} epochs on {data['training_images']} images of "
                f"{data['name']} (`{data['fingerprint'][:16]}…`)"
            )
        else:
            source = found["source"]
            how, seed = f"by others: {source['name']} (`{source['sha256'][:16]}…`)", ""
        rows.append(
            f"| {part} | `{found['sha256'][:16]}…` | {how} | {seed} | "
            f"`{made['revision'][:12]}` | {made['versions']['torch']} |"
        )
    return table("| part | SHA-256 of the file | trained | seed | revision | torch |", rows)


def history() -> str:
    """Validation accuracy of the classifier, epoch by epoch."""
    found = record(FASHION / "classifier.json")
    rows = [
        f"| {int(row['epoch'])} | {row['loss']:.4f} | {row['validation_accuracy']:.4f} | "
        f"{row['validation_pgd_accuracy']:.3f} |"
        for row in found["history"]
    ]
    return table("| epoch | training loss | validation | under PGD |", rows)


def lab_purifier() -> str:
    found = record(FASHION / "purifier.json")
    rows = [
        f"| {int(row['epoch'])} | {row['reconstruction']:.1f} | {row['kl']:.3f} | "
        f"{row['beta']:g} | {row['validation_accuracy']:.3f} | "
        f"{row['validation_transfer_accuracy']:.3f} |"
        for row in found["history"]
    ]
    return table(
        "| epoch | reconstruction, nats | KL, nats | beta | validation, N = 1 | "
        "attacked through the classifier |",
        rows,
    )


def subset() -> str:
    """How long the default takes on the embedded images, from the records of such a run."""
    folder = RESULTS / "fashion-embedded"
    classifier, purifier, found = (
        record(folder / f"{name}.json") for name in ("classifier", "purifier", "accuracies")
    )
    made = [datetime.fromisoformat(part["provenance"]["made"]) for part in (classifier, found)]
    seconds = sum(row["seconds"] for row in classifier["history"])
    seconds += (made[1] - made[0]).total_seconds()  # bank, purifier and final measurements
    threads = purifier["provenance"]["hardware"]["threads"]
    return (
        f"On the embedded subset, the classifier and the paper's purifier of `fashion` took "
        f"{math.ceil(seconds / 60)} minutes with {threads} threads (hardening comes after them); "
        f"the classifier then has a test accuracy of "
        f"{found['test']['classifier']:.3f}, and {found['test']['classifier_under_pgd']:.3f} "
        f"under PGD, the defence {found['test']['defence']:.3f} on clean images (records in "
        "`docs/results/fashion-embedded`, with the scenario: `fashion` without hardening)."
    )


WEIGHT_PARTS = {
    "accuracies": accuracies,
    "provenance": provenance,
    **{f"provenance-{name}": partial(provenance, name) for name in (*HARDENED, CERTIFIED)},
    "history": history,
    "lab-purifier": lab_purifier,
    "subset": subset,
}
