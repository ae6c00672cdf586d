"""`carso train`: classifier, purifier, hardening, in a folder that can be taken up again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso import data as data_sets
from carso.classifiers import brought, registry
from carso.classifiers.frozen import Frozen, freeze
from carso.classifiers.known_files import installed, installed_file, settled
from carso.classifiers.sanity import refuse_chance
from carso.data import DataNotFoundError, ImageData
from carso.defence.defence import Carso
from carso.defence.layers import layers_for
from carso.defence.on_disk import describe, in_use, purifier_of, read_description
from carso.defence.representation import check_fit
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.machine.limits import check_fits, need_of_an_image
from carso.purifiers.base import TrainablePurifier
from carso.randomness import generator, seeded
from carso.scenario.parser import as_table, from_table
from carso.scenario.purifier_settings import KINDS
from carso.scenario.schema import Scenario
from carso.storage import files, json_schema, tensor_files
from carso.storage.provenance import provenance
from carso.storage.tensor_files import few
from carso.training import anchoring, checkpoint, loop
from carso.training.accuracies import accuracies
from carso.training.loop import Display, Row, Stage
from carso.training.run_identity import differences
from carso.training.scenario_stages import classifier_stage, hardening_stage, purifier_stage


def train(
    scenario: Scenario,
    data: ImageData,
    folder: Path,
    *,
    device: torch.device,
    display: Display,
    given: Path | None = None,
    check_accuracy: bool = True,
    processes: Processes = ALONE,
    checkpoint_minutes: float = loop.CHECKPOINT_MINUTES,
) -> Carso:
    """The scenario's defence: its classifier (or the one in the file `given`), its purifier,
    hardened. A classifier that is brought must know the images, unless `check_accuracy` is off."""
    if given is None and scenario.classifier.kind in installed():
        given = installed_file(scenario.classifier.kind)
    scenario = replace(scenario, classifier=settled(scenario.classifier, given))
    # A layer that does not exist must not come out after hours of training.
    classifier: nn.Module = (
        registry.build(scenario.classifier, data)
        if given is None
        else brought.given(given, scenario.classifier, data)
    )
    layers = layers_for(scenario.classifier, classifier, data.image_shape)
    check_fit(classifier, data, layers=layers)
    check_batches(scenario, classifier, data, device, processes)
    if scenario.purifier.kind not in KINDS:  # nor a purifier of the user's that cannot be built
        purifier_of(scenario, freeze(classifier), data.image_shape)
    description = describe(scenario, data)
    if given is not None:
        same_everywhere(classifier, given, processes)
        description |= identified(classifier, given, data)
    refuse_another_run(folder, description)
    if given is not None and check_accuracy and not (folder / "classifier.safetensors").exists():
        refuse_chance(registry.placed(freeze(classifier), device), data, device)
    with processes.exclusively(folder, "a run"):
        return train_stages(
            scenario, data, folder, classifier, description,
            device=device, display=display, given=given, processes=processes,
            minutes=checkpoint_minutes,
        )  # fmt: skip


def train_stages(
    scenario: Scenario,
    data: ImageData,
    folder: Path,
    classifier: nn.Module,
    description: dict[str, Any],
    *,
    device: torch.device,
    display: Display,
    given: Path | None,
    processes: Processes,
    minutes: float,
) -> Carso:
    """The stages of `train`, one after the other, in a folder that is this run's alone."""
    if processes.is_first:
        files.clear_left_over(folder)
        files.write_json(folder / "defence.json", description)
    if given is None:
        classifier = train_classifier(
            scenario, data, folder, device, display, processes, minutes=minutes
        )
    elif processes.is_first:
        keep_given(folder, classifier, given)
    frozen = registry.placed(freeze(classifier), device)
    purifier: TrainablePurifier | None = None
    if scenario.purifier.training is not None:
        purifier = train_purifier(
            scenario, data, frozen, folder, device, display, processes, minutes=minutes
        )
        defence = Carso(frozen, purifier, **in_use(scenario), seed=scenario.seed)
        if processes.is_first:
            measure(folder, defence, scenario, data, device)
    if scenario.hardening is not None:
        purifier = harden(
            scenario,
            data,
            frozen,
            folder,
            device,
            display,
            processes,
            start=purifier,
            minutes=minutes,
        )
    assert purifier is not None, "a scenario has one stage at least"
    hardened = scenario.hardening is not None
    defence = Carso(frozen, purifier, **in_use(scenario, hardened=hardened), seed=scenario.seed)
    if defence.aggregation == "anchored" and scenario.hardening is not None:
        anchor(folder, defence, scenario, data, device, processes)
    return defence


def check_batches(
    scenario: Scenario,
    classifier: nn.Module,
    data: ImageData,
    device: torch.device,
    processes: Processes,
) -> None:
    """Refuse batches that would not fit in memory: every stage puts them through the classifier
    with gradients, if nothing else."""
    if device.type != "cpu":
        return  # a GPU that is full says so itself, at once
    stages = (scenario.classifier.training, scenario.purifier.training, scenario.hardening)
    most = max((stage.batch_size for stage in stages if stage is not None), default=0)
    image = data.train.batch(slice(1))[0]
    training = classifier.training
    classifier.eval()  # batch norm learns nothing from this
    each, base = need_of_an_image(
        lambda count: classifier(image.repeat(count, 1, 1, 1).requires_grad_(True))
    )
    classifier.train(training)
    share = -(-min(most, len(data.train)) // processes.world_size)
    check_fits("images of a batch", share, each, base=base, option="batch_size =")


def same_everywhere(classifier: nn.Module, given: Path, processes: Processes) -> None:
    """A file that makes other weights each time would give every process a problem of its own."""
    own = tensor_files.fingerprint(classifier.state_dict())
    if not processes.all_equal(own):
        raise CarsoError(f"{given} gives other weights each time; it must give the same ones")


def identified(classifier: nn.Module, given: Path, data: ImageData) -> dict[str, Any]:
    """What tells a brought classifier from others: its file, or, of one that code makes, its
    weights and what it answers. How the code is written is no part of that."""
    if given.suffix != ".py":
        return {"classifier": files.sha256(given), "code": ""}
    reference = next(classifier.parameters(), torch.empty(0))
    probe = torch.rand(2, *data.image_shape, generator=generator(0, "probe")).to(reference)
    with seeded(0, "probe", "answers"), torch.no_grad():
        answers = freeze(classifier)(probe)
    if not answers.isfinite().all():
        raise CarsoError(f"the classifier of {given} gives logits that are not finite")
    return {
        "classifier": tensor_files.fingerprint(classifier.state_dict()),
        "code": given.name,
        "answers": answers.double().tolist(),
    }


def same_classifier(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the classifier of a run is the one that is wanted now."""
    if wanted.get("code") and found.get("code") and "answers" not in found:
        return True  # an older revision kept a hash of the code; `keep_given` compares the weights
    if found.get("classifier") != wanted["classifier"]:
        return False
    before, now = (torch.tensor(table.get("answers", [])) for table in (found, wanted))
    # Another machine rounds otherwise.
    return before.shape == now.shape and torch.allclose(before, now, rtol=1e-3, atol=1e-3)


def measure(
    folder: Path, defence: Carso, scenario: Scenario, data: ImageData, device: torch.device
) -> None:
    """Write `accuracies.json`, unless it is there already for just these weights."""
    path = folder / "accuracies.json"
    weights = {
        name: files.sha256(folder / f"{name}.safetensors") for name in ("classifier", "purifier")
    }
    if path.exists() and json_schema.read(path, "accuracies of a training")["weights"] == weights:
        return
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


def keep_given(folder: Path, classifier: nn.Module, source: Path) -> None:
    """The classifier that the user brought, copied into the run."""
    path = folder / "classifier.safetensors"
    if path.exists():
        wanted, found = classifier.state_dict(), tensor_files.load(path)
        if tensor_files.fingerprint(wanted) != tensor_files.fingerprint(found):
            raise CarsoError(
                f"{source} gives other weights than the classifier in {folder}: a file must give "
                "the same ones each time; or choose another --run folder"
            )
        return
    tensor_files.save(path, classifier.state_dict())
    files.write_json(
        folder / "classifier.json",
        {
            "what": "classifier",
            "sha256": files.sha256(path),
            "source": {"name": source.name, "sha256": files.sha256(source)},
            "provenance": provenance(),
        },
    )


def refuse_another_run(folder: Path, description: dict[str, Any]) -> None:
    """A folder that holds a run of other settings is left as it is."""
    if not (folder / "defence.json").exists():
        return
    found = read_description(folder)
    wanted = description["scenario"]
    # Keys that the run did not know yet get their defaults.
    scenario = as_table(from_table(found["scenario"], source=str(folder / "defence.json")))
    decisive = ("seed", "threat", "classifier", "purifier", "hardening")
    parts = [differences(scenario.get(key), wanted[key], key) for key in decisive]
    changed = [name for part in parts for name in part]
    if found["images"] != description["images"]:
        changed.append("data")
    if not same_classifier(found, description):
        changed.append("the classifier")
    if changed:
        raise CarsoError(
            f"{folder} holds a run of other settings ({few(changed)} changed); "
            "choose another --run folder, or delete this one"
        )


def load_data(scenario: Scenario, root: Path | None, *, download: bool = False) -> ImageData:
    """The scenario's images, or those of its fallback where they are not found."""
    try:
        return data_sets.load(scenario.data.set, root, download=download)
    except DataNotFoundError:
        if not scenario.data.fallback:
            raise
        return data_sets.load(scenario.data.fallback)


def train_classifier(
    scenario: Scenario,
    data: ImageData,
    folder: Path,
    device: torch.device,
    display: Display,
    processes: Processes = ALONE,
    *,
    minutes: float = loop.CHECKPOINT_MINUTES,
) -> nn.Module:
    """The scenario's own classifier, trained or taken up where its training stopped."""
    training = classifier_stage(scenario, data, device, processes=processes)
    history = loop.run(training, folder / "classifier", display, minutes=minutes)
    weights = training.averaged.state_dict()
    finish(folder, training, weights, history, scenario=scenario, data=data)
    return training.averaged


def train_purifier(
    scenario: Scenario,
    data: ImageData,
    classifier: Frozen,
    folder: Path,
    device: torch.device,
    display: Display,
    processes: Processes = ALONE,
    *,
    minutes: float = loop.CHECKPOINT_MINUTES,
) -> TrainablePurifier:
    """The paper's purifier on top of `classifier`."""
    training = purifier_stage(
        scenario, data, classifier, device, folder=folder / "purifier", processes=processes
    )
    done = checkpoint.epochs_done(folder / "purifier", training.identity)
    if training.uses_bank() and done < training.epochs:
        chunks = training.batches.chunks()
        advance = display.start("bank of attacked images", 0, 1, chunks)
        training.batches.prepare(done, advance)
    history = loop.run(training, folder / "purifier", display, minutes=minutes)
    purifier = training.result()
    weights = purifier.deployed().state_dict()
    bank = training.batches.seconds if training.uses_bank() else 0.0
    finish(folder, training, weights, history, scenario=scenario, data=data, bank_seconds=bank)
    return purifier


def harden(
    scenario: Scenario,
    data: ImageData,
    classifier: Frozen,
    folder: Path,
    device: torch.device,
    display: Display,
    processes: Processes = ALONE,
    *,
    start: TrainablePurifier | None,
    minutes: float = loop.CHECKPOINT_MINUTES,
) -> TrainablePurifier:
    """The purifier after training against attacks on the whole defence, from `start` or from
    scratch."""
    place = folder / "hardening"
    training = hardening_stage(
        scenario, data, classifier, device, start=start, folder=place, processes=processes
    )
    history = loop.run(training, place, display, minutes=minutes)
    purifier = training.result()
    weights = purifier.state_dict()
    finish(folder, training, weights, history, scenario=scenario, data=data)
    return purifier


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

    If both are there already, they keep the date and revision of when they were made.
    """
    if not training.processes.is_first:
        return
    path, record = folder / f"{training.name}.safetensors", folder / f"{training.name}.json"
    if path.exists() and record.exists():
        found = json_schema.read(record, "a record of trained weights")
        same = not differences(found.get("identity"), training.identity)
        if same and found.get("sha256") == files.sha256(path):
            return
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
