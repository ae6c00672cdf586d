"""`carso evaluate`: a shipped defence or a run, on images of its data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso import data as data_sets
from carso.attacks.saved import read_examples
from carso.data import ImageData, Split, numbered
from carso.defence.classifier_alone import classifier_alone
from carso.defence.on_disk import Deployed, Stored, load, stored
from carso.defence.shipped import folder_of
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.evaluation.evaluate import evaluate
from carso.evaluation.protocol import Counted
from carso.scenario.tables import as_table
from carso.storage import json_schema
from carso.threats.norms import threat_asked, threat_of
from carso.training.train import load_data

SPLITS = ("test", "validation")


@dataclass(frozen=True, kw_only=True)
class Images:
    """Which images to evaluate on."""

    count: int
    split: str = "test"
    on: str = ""
    """A data set, instead of the scenario's own."""
    folder: Path | None = None
    download: bool = False

    def load(self, defence: Deployed | Stored) -> tuple[ImageData, Split]:
        if self.split not in SPLITS:
            raise CarsoError(f"the split is {' or '.join(SPLITS)}, got {self.split!r}")
        if self.on:
            data = data_sets.load(self.on, root=self.folder, download=self.download)
        else:
            data = load_data(defence.scenario, self.folder, download=self.download)
        # A defence that was imported without its data has numbers where only the data has names.
        unnamed = defence.classes == numbered(len(data.classes))
        if data.classes != defence.classes and not unnamed:
            raise CarsoError(f"{data.name} has other classes than the defence was trained for")
        split: Split = getattr(data, self.split)
        if not 1 <= self.count <= len(split):
            raise CarsoError(
                f"--images is between 1 and the {len(split)} {self.split} images of {data.name}, "
                f"got {self.count}"
            )
        return data, split.balanced(self.count)

    def described(self, data: ImageData) -> dict[str, str]:
        """What a record says of them."""
        return {
            "set": data.name,
            "split": self.split,
            "selection": "the first when classes take turns",
            "fingerprint": data.fingerprint,
        }


def named_model(
    name: str, *, bare: bool, classifier: nn.Module | None, device: torch.device, **chosen: Any
) -> tuple[nn.Module, Deployed | Stored]:
    """What is to be judged: the defence of a shipped name or of a run, as `chosen`, or with `bare`
    its classifier, or a known one; and what is known of it."""
    alone = classifier_alone(name, device)
    if bare:
        found = alone or stored(folder_of(name), classifier, device)
        return found.classifier, found
    if alone is not None:
        raise CarsoError(f"{name} is a classifier, not a defence: evaluate it with --bare")
    defence = load(name, classifier=classifier, device=device, **chosen)
    return defence, defence


def evaluate_by_name(
    name: str,
    images: Images,
    *,
    bare: bool,
    aggregation: str,
    hardened: bool | None = None,
    classifier: nn.Module | None = None,
    max_batch: int | None = None,
    final_classifier: nn.Module | None = None,
    final_name: str = "",
    eps: float | None,
    norm: str = "",
    examples: Path | None,
    device: torch.device,
    counted: Counted,
    seed: int,
    processes: Processes = ALONE,
    **settings: Any,
) -> dict[str, Any]:
    """The record of a shipped defence or of a run; with `bare`, of its classifier alone; with
    `hardened=False`, of the paper's purifier of a run that was hardened as well; with a
    `final_classifier`, of the paper's ablation."""
    if bare and (aggregation or hardened is not None):
        raise CarsoError(
            "--bare is the classifier alone, which has no purifier and no aggregation: leave "
            "--unhardened and --aggregation away"
        )
    chosen: dict[str, Any] = {"aggregation": aggregation} if aggregation else {}
    chosen["hardened"] = hardened
    if final_classifier is not None:
        chosen["final_classifier"] = final_classifier
        settings["answered_by"] = final_name
    alone = classifier_alone(name, device) is not None
    model, defence = named_model(
        name, bare=bare, classifier=classifier, device=device, seed=seed, max_batch=max_batch,
        **chosen,
    )  # fmt: skip
    about: dict[str, Any] = {
        "scenario": as_table(defence.scenario),
        "posterior_kl": None
        if alone
        else posterior_kl(
            folder_of(name), hardened=defence.scenario.hardening is not None and hardened is None
        ),
    }
    classes, own = defence.classes, defence.scenario.threat
    if examples is not None:
        found = read_examples(examples)
        pixels, labels = found.images, found.labels
        own = threat_of(norm=found.norm, eps=found.eps)
        about["data"] = {"set": f"the images in {examples.name}", "split": "", "origin": ""}
    else:
        data, split = processes.first_then_others(lambda: images.load(defence))
        classes = data.classes
        pixels, labels = split.batch(slice(None))
        about["data"] = images.described(data)
    return evaluate(
        model,
        pixels,
        labels,
        threat=threat_asked(own, norm, eps),
        examples=examples,
        seed=seed,
        name=Path(name).name,
        classes=classes,
        device=device,
        counted=counted,
        about=about,
        processes=processes,
        **settings,
    )


def posterior_kl(folder: Path, *, hardened: bool = False) -> float | None:
    """The KL of the posterior in the last epoch of training, where a record of it is found; a
    hardened purifier has none."""
    path = folder / "purifier.json"
    if hardened or not path.is_file():
        return None
    history = json_schema.read(path, "a record of trained weights").get("history") or [{}]
    found = history[-1].get("kl")
    return None if found is None else float(found)
