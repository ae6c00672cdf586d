"""Runs the trials of `hardening_trials.toml` on the embedded images, a JSON for each.

    python scripts/try_hardening.py OUT [NAME...] [--threads 1]

A trial hardens the shipped classifier of its base scenario, changed as the trial says, on the
embedded training images, and keeps in the folder OUT the validation accuracies of every epoch. A
trial whose record is there already is not run again. `scripts/render_docs.py` makes the table of
the lab log of those in docs/results/trials.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from pathlib import Path
from typing import Any

import torch
from records import best_of, in_one_line

import carso
from carso import data
from carso.defence.on_disk import stored
from carso.defence.shipped import folder_of
from carso.machine.progress import progress
from carso.purifiers.vae.vae import VAEPurifier
from carso.randomness import generator
from carso.scenario.parser import from_table, merged, read
from carso.scenario.tables import as_table
from carso.storage import files
from carso.storage.provenance import provenance
from carso.training.accuracies import accuracy_under_pgd
from carso.training.loop import train_in_memory
from carso.training.scenario_stages import hardening_stage
from carso.training.validation_attack import VALIDATION_ATTACK, by_samples

SAMPLES = (1, 2, 4, 8, 16)
TRIALS = Path(__file__).with_name("hardening_trials.toml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    table = tomllib.loads(TRIALS.read_text(encoding="utf-8"))
    known = [trial["name"] for trial in table["trial"]]
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"there is no trial {', '.join(unknown)}; there are {', '.join(known)}")
    for trial in table["trial"]:
        path = given.folder / f"{trial['name']}.json"
        if (given.names and trial["name"] not in given.names) or path.exists():
            continue
        print(trial["name"], flush=True)
        files.write_json(path, run(trial, table[trial.get("base", "fashion")]))


def run(trial: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """The record of one trial."""
    base = trial.get("base", "fashion")
    changes = {
        key: trial[key] for key in ("threat", "classifier", "purifier", "hardening") if key in trial
    }
    settings = merged(merged(as_table(read(base)), {"hardening": shared}), changes)
    scenario = from_table(settings, source=trial["name"])
    images = data.load("fashion-embedded")
    classifier = stored(folder_of(base), None, "cpu").classifier
    start = carso.load(base).purifier if settings["hardening"]["start"] == "purifier" else None
    assert start is None or isinstance(start, VAEPurifier)
    final = stored(folder_of(trial["final"]), None, "cpu").classifier if "final" in trial else None
    stage = hardening_stage(
        scenario, images, classifier, torch.device("cpu"), start=start, final=final
    )
    began = time.process_time()
    with progress() as bars:
        history = train_in_memory(stage, bars)
    taken = time.process_time() - began
    candidates = by_samples(
        stage.judged,
        images.validation.balanced(scenario.hardening.validation_images),
        counts=SAMPLES,
        threat=scenario.threat,
        source=generator(0, "trial"),
    )
    alone = accuracy_under_pgd(
        classifier,
        images.validation.balanced(scenario.hardening.validation_images),
        torch.device("cpu"),
        threat=scenario.threat,
        source=generator(0, "trial"),
        attack=VALIDATION_ATTACK,
    )
    return {
        "trial": trial,
        "scenario": as_table(scenario),
        "data": {"set": images.name, "fingerprint": images.fingerprint},
        "layers": list(stage.purifier.layers),
        "parameters": sum(weight.numel() for weight in stage.purifier.parameters()),
        "processor_seconds": taken,
        "history": history,
        "best": best_of(history),
        "attacked_by_samples": candidates,
        "classifier_attacked": alone,
        "provenance": provenance(),
    }


if __name__ == "__main__":
    in_one_line(main)
