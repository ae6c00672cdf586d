"""Which ingredient decides how the paper's purifier is masked, and how far it is weakened?

    python scripts/vary_paper.py OUT [NAME...] [--images 100] [--threads 1]

Runs the trials of `paper_trials.toml`, a JSON for each in the folder OUT: the paper's purifier is
trained around the shipped classifier of `fashion`, with one thing changed, and attacked on
validation images in two ways: through the mean of its logits, and as published, on the released
log-odds, by an attack that is shorter than randAA. Where a trial names factors for `logits`, the
last layer of the classifier is multiplied by each: its labels and activations stay as they are,
and only the double exponential sees the difference. A trial whose JSON is there is not run again.
"""

from __future__ import annotations

import argparse
import copy
import tomllib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from records import in_one_line
from torch import Tensor, nn

import carso
from carso import data
from carso.attacks.apgd import APGD
from carso.attacks.attack import Attack
from carso.attacks.margin import Margin
from carso.classifiers.frozen import Frozen
from carso.data import ImageData
from carso.defence.defence import Carso
from carso.defence.on_disk import stored
from carso.defence.shipped import folder_of
from carso.errors import CarsoError
from carso.machine.progress import progress
from carso.purifiers.base import TrainablePurifier
from carso.randomness import generator
from carso.scenario.parser import from_table, merged, read
from carso.scenario.schema import Scenario
from carso.scenario.tables import as_table
from carso.storage import files
from carso.storage.provenance import provenance
from carso.training.loop import train_in_memory
from carso.training.scenario_stages import purifier_stage

BASE = "fashion"
TRIALS = Path(__file__).with_name("paper_trials.toml")
THROUGH_MEAN = Margin(steps=40)
AS_PUBLISHED = (APGD(loss="ce", steps=20), APGD(loss="dlr", steps=20))
"""Shorter than randAA, whose steps are 100."""
EOT = 4
"""Draws that an attack on the released log-odds averages in a step, where randAA has 20."""
PART = 50
"""Images at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_intermixed_args()
    torch.set_num_threads(given.threads)
    trials = tomllib.loads(TRIALS.read_text(encoding="utf-8"))["trial"]
    known = [trial["name"] for trial in trials]
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"there is no trial {', '.join(unknown)}; there are {', '.join(known)}")
    for trial in trials:
        path = given.folder / f"{trial['name']}.json"
        if (given.names and trial["name"] not in given.names) or path.exists():
            continue
        print(trial["name"], flush=True)
        files.write_json(path, run(trial, given.images))


def run(trial: dict[str, Any], count: int) -> dict[str, Any]:
    """The record of one trial."""
    images = data.load("fashion-embedded")
    classifier = stored(folder_of(BASE), None, "cpu").classifier
    changes = {key: trial[key] for key in ("purifier",) if key in trial}
    kept = merged(as_table(read(BASE)), {"purifier": {"attacks": {"bank": "memory"}}})
    scenario = from_table(merged(kept, changes), source=trial["name"])
    if trial.get("shipped"):
        purifier, history = carso.load(BASE).purifier, []
    else:
        purifier, history = trained(scenario, images, classifier)
    pixels, labels = images.validation.balanced(count).batch(slice(None))
    measured = {}
    for factor in trial.get("logits", [1.0]):
        scaled = with_logits_times(classifier.classifier, factor)
        defence = Carso(scaled, purifier, scenario.defence.samples, scenario.defence.aggregation)
        measured[str(factor)] = measure(defence, pixels, labels, scenario)
        print(factor, measured[str(factor)], flush=True)
    return {
        "trial": trial,
        "scenario": as_table(scenario),
        "data": {"set": images.name, "fingerprint": images.fingerprint, "validation": count},
        "history": history,
        "measured": measured,
        "provenance": provenance(),
    }


def trained(
    scenario: Scenario, images: ImageData, classifier: Frozen
) -> tuple[TrainablePurifier, list[dict[str, Any]]]:
    """The paper's purifier, trained, and its epochs."""
    stage = purifier_stage(scenario, images, classifier, torch.device("cpu"))
    with progress() as bars:
        history = train_in_memory(stage, bars)
    return stage.result().deployed(), history


def with_logits_times(network: nn.Module, factor: float) -> nn.Module:
    """A copy of a classifier whose logits are `factor` times as large."""
    found = copy.deepcopy(network)
    last = [layer for layer in found.modules() if isinstance(layer, nn.Linear)]
    if not last:
        raise CarsoError("the classifier has no linear layer to scale")
    with torch.no_grad():
        for parameter in last[-1].parameters():
            parameter.mul_(factor)
    return found


def measure(
    defence: Carso, images: Tensor, labels: Tensor, scenario: Scenario
) -> dict[str, float | None]:
    """Accuracies with and without attack, and the health of the released output's gradients."""
    released = defence.view("released", draws=EOT)
    standing = right(defence, images, labels)
    clean, published = float(standing.double().mean()), standing
    for attack in AS_PUBLISHED:
        published = published & survived(defence, released, attack, images, labels, scenario)
    mean = defence.view("mean-logits", samples=1)
    left = standing & survived(defence, mean, THROUGH_MEAN, images, labels, scenario)
    with torch.no_grad():
        logits = torch.cat([defence.classifier(part) for part in torch.split(images, PART)])
    top = logits.topk(2, dim=1).values
    return {
        "clean": clean,
        "as_published": float(published.double().mean()),
        "mean_logits": float(left.double().mean()),
        **released_health(defence, images[:PART], labels[:PART]),
        "median_lead": float((top[:, 0] - top[:, 1]).median()),
        "median_logit": float(top[:, 0].median()),
    }


@torch.no_grad()
def right(defence: Carso, images: Tensor, labels: Tensor) -> Tensor:
    """Which images the defence labels right, (B,)."""
    found = [defence.predict(part) for part in torch.split(images, PART)]
    return torch.cat(found) == labels


def survived(
    defence: Carso, view: nn.Module, attack: Attack, images: Tensor, labels: Tensor, on: Scenario
) -> Tensor:
    """Which images the defence labels right after an attack through `view`, (B,)."""
    source, found = generator(on.seed, "vary"), []
    for part, answers in zip(torch.split(images, PART), torch.split(labels, PART), strict=True):
        worst = attack(view, part, answers, threat=on.threat, generator=source)
        found.append(right(defence, worst, answers))
    return torch.cat(found)


def released_health(defence: Carso, images: Tensor, labels: Tensor) -> dict[str, float]:
    """The shares of images whose released log-odds, or their gradient, are not finite, and of those
    whose gradient is zero."""
    point = images.clone().requires_grad_(True)
    scores = defence.view("released")(point)
    (slope,) = torch.autograd.grad(F.cross_entropy(scores, labels, reduction="sum"), point)
    slope = slope.flatten(1)
    not_finite = ~slope.isfinite().all(dim=1)
    return {
        "outputs_not_finite": float((~scores.isfinite()).any(dim=1).double().mean()),
        "gradients_not_finite": float(not_finite.double().mean()),
        "gradients_zero": float((slope == 0).all(dim=1).double().mean()),
    }


if __name__ == "__main__":
    in_one_line(main)
