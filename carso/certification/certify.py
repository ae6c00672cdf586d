"""`carso.certify`: the certified accuracy of a defence or a classifier, image by image."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carso import arguments
from carso.certification.certificate import Certificate, Smoothing, certify_image
from carso.certification.certificate_record import assembled
from carso.certification.smoothing import Votes
from carso.defence.noisy_labels import Labels, labels_of
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.evaluation.evaluate import silent
from carso.evaluation.fingerprints import images_identity, weights
from carso.evaluation.preparation import as_found, checked, judged
from carso.evaluation.protocol import Counted
from carso.evaluation.resume import FinishedResults
from carso.storage import files
from carso.storage.provenance import provenance

DECIDED = ("all draws", "hopeless", "wrong")


@arguments.door
def certify(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    sigma: float,
    draws: int = 10_000,
    selection: int = 100,
    alpha: float = 0.001,
    batch: int = 250,
    seed: int = 0,
    name: str = "",
    out: Path | str | None = None,
    device: torch.device | str = "cpu",
    counted: Counted = silent,
    about: dict[str, Any] | None = None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """The record of the certificates of `images` (B, C, H, W) in [0, 1].

    `model` is a `Carso` defence, of which each draw takes one candidate, or any module from images
    to logits. Every image gets Gaussian noise of deviation `sigma`; `selection` draws choose a
    class and `draws` others bound its probability, wrongly with probability `alpha` at most. With
    `out` the record is written there, and a call that was stopped goes on where it was. Many
    processes share the images, and what comes out does not depend on how many they are.
    """
    draws, selection, batch = (
        arguments.whole(key, value, least=1)
        for key, value in (("draws", draws), ("selection", selection), ("batch", batch))
    )
    sigma, alpha = arguments.real("sigma", sigma), arguments.real("alpha", alpha)
    smoothing = Smoothing(sigma=sigma, draws=draws, selection=selection, alpha=alpha, batch=batch)
    model, name = judged(model, "certify"), arguments.text("name", name)
    seed, place = arguments.seed_number(seed), arguments.device(device)
    images, labels = checked(images, labels)
    path = None if out is None else arguments.place("out", out)
    if processes.world_size > 1 and path is None:
        raise CarsoError("many processes share the images through a file: give out")
    settings = {
        "kind": "certificate",
        "subject": {"name": name or type(model).__name__, "weights": weights(model)},
        "smoothing": asdict(smoothing),
        "seed": seed,
        "data": {**images_identity(images, labels), **(about or {}).get("data", {})},
    }
    folder = None if path is None else path.with_suffix(".parts")
    finished = processes.first_then_others(lambda: FinishedResults(folder, settings))
    with torch.random.fork_rng(), as_found(model):
        found = certificates(
            model, images.to(place), labels, smoothing, seed, finished, counted, processes
        )
    spent = sum(one.spent for one in found) + smoothing.selection * len(found)
    record = assembled(
        found,
        labels,
        settings=settings,
        pixels=images[0].numel(),
        provenance={
            **provenance(),
            "seconds": round(finished.seconds, 1),
            "draws_per_second": round(spent / max(finished.seconds, 1e-9), 1),
        },
    )
    processes.barrier()  # everyone has read the parts
    if processes.is_first and path is not None:
        files.write_json(path, record)
        finished.remove()
    return record


def certificates(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    smoothing: Smoothing,
    seed: int,
    finished: FinishedResults,
    counted: Counted,
    processes: Processes,
) -> list[Certificate]:
    """The certificate of each image, shared among the processes; finished ones are not made
    again."""
    label_noisy = labels_of(model.eval())
    with torch.no_grad():
        classes = int(model(images[:1]).shape[1])
    advance = counted("certificates", len(range(processes.rank, len(images), processes.world_size)))

    def one(index: int) -> Certificate:
        return kept(
            finished, label_noisy, images[index], int(labels[index]), index,
            smoothing=smoothing, classes=classes, seed=seed,
        )  # fmt: skip

    for index in range(processes.rank, len(images), processes.world_size):
        one(index)
        advance(1)
    processes.barrier()
    return [one(index) for index in range(len(images))]


def kept(
    finished: FinishedResults,
    label_noisy: Labels,
    image: Tensor,
    label: int,
    index: int,
    *,
    smoothing: Smoothing,
    classes: int,
    seed: int,
) -> Certificate:
    """The certificate of one image, made or read."""

    def votes(what: str) -> Votes:
        return Votes(
            label_noisy, image, sigma=smoothing.sigma, classes=classes, batch=smoothing.batch,
            seed=seed, path=(what, index),
        )  # fmt: skip

    def make() -> dict[str, Tensor]:
        found = certify_image(votes("select"), votes("estimate"), smoothing, label=label)
        numbers = [found.selected, found.votes, found.spent, DECIDED.index(found.decided)]
        return {
            "counts": torch.tensor(numbers),
            "radius": torch.tensor(found.radius, dtype=torch.float64),
        }

    tensors = finished.get_or_compute(f"image-{index:06d}", make)
    selected, count, spent, decided = tensors["counts"].tolist()
    return Certificate(
        selected=selected,
        votes=count,
        spent=spent,
        radius=float(tensors["radius"]),
        decided=DECIDED[decided],
    )
