"""What a finished stage leaves in the folder of its run: weights, and JSON that says whence."""

from __future__ import annotations

from pathlib import Path

import torch

from carso.data import ImageData
from carso.defence.defence import Carso
from carso.distributed.processes import ALONE, Processes
from carso.scenario.schema import Scenario
from carso.scenario.tables import as_table
from carso.storage import files, json_schema, tensor_files
from carso.storage.provenance import provenance
from carso.training import anchoring
from carso.training.accuracies import accuracies
from carso.training.loop import Row, Stage
from carso.training.run_identity import differences


def finish(
    folder: Path,
    training: Stage,
    weights: dict[str, torch.Tensor],
    history: list[Row],
    *,
    scenario: Scenario,
    data: ImageData,
    bank_seconds: float | None = None,
) -> None:
    """Write `<stage>.safetensors`, and `<stage>.json` which says where it comes from.

    If both are there already, they keep the date and revision of when they were made. If they do
    not fit each other or this training, they are written again, which is said.
    """
    if not training.processes.is_first:
        return
    path, record = folder / f"{training.name}.safetensors", folder / f"{training.name}.json"
    if path.exists() and record.exists():
        found = json_schema.read(record, "a record of trained weights")
        same = not differences(found.get("identity"), training.identity)
        if same and found.get("sha256") == files.sha256(path):
            return
        files.say_made_again(
            f"{path} is damaged, or not of this training: it is written again from the checkpoint"
        )
    tensor_files.save(path, weights)
    files.write_json(
        record,
        {
            "what": training.name,
            "identity": training.identity,
            "sha256": files.sha256(path),
            "scenario": as_table(scenario),
            "data": {
                "name": data.name,
                "fingerprint": data.fingerprint,
                "training_images": len(data.train),
                "validation_images": len(data.validation),
            },
            "first_losses": training.first_losses,
            **({} if bank_seconds is None else {"bank_seconds": bank_seconds}),
            "history": history,
            "provenance": provenance(),
        },
    )


def measure(
    folder: Path, defence: Carso, scenario: Scenario, data: ImageData, device: torch.device
) -> None:
    """Write `accuracies.json`, unless it is there already for just these weights."""
    path = folder / "accuracies.json"
    weights = {
        name: files.sha256(folder / f"{name}.safetensors") for name in ("classifier", "purifier")
    }
    if path.exists():
        if json_schema.read(path, "accuracies of a training")["weights"] == weights:
            return
        files.say_made_again(f"{path} is of other weights: they are measured again")
    record = accuracies(defence, data, threat=scenario.threat, seed=scenario.seed, device=device)
    files.write_json(path, {"weights": weights, **record, "provenance": provenance()})


def anchor(
    folder: Path,
    defence: Carso,
    scenario: Scenario,
    data: ImageData,
    device: torch.device,
    processes: Processes = ALONE,
) -> None:
    """Choose how much the classifier's own logits count, unless `anchor.json` says so already for
    just this purifier; the first process does, for all."""
    path = folder / "anchor.json"
    if processes.is_first:
        weights = files.sha256(folder / "hardening.safetensors")
        found = json_schema.read(path, "the choice of an anchor") if path.exists() else {}
        if found.get("hardening") != weights:
            if found:
                files.say_made_again(f"{path} is of other weights: the anchor is chosen again")
            assert scenario.hardening is not None
            count = scenario.hardening.validation_images
            choice = anchoring.choose(
                defence, data, threat=scenario.threat, count=count, seed=scenario.seed,
                device=device,
            )  # fmt: skip
            found = {**choice, "hardening": weights, "provenance": provenance()}
            files.write_json(path, found)
        defence.anchor = float(found["anchor"])
    defence.anchor = processes.broadcast(defence.anchor)
