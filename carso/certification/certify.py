"""`carso.certify`: the certified accuracy of a defence or a classifier, image by image."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carso import arguments
from carso.certification.certificate import Smoothing
from carso.certification.certificate_record import assembled, record_there
from carso.certification.certified_images import Certified
from carso.certification.certified_speed import check_batch, share_of_passes, speed
from carso.distributed.processes import ALONE, Processes
from carso.evaluation.attacked_model import under_test
from carso.evaluation.evaluate import silent, sole, unfinished
from carso.evaluation.fingerprints import images_identity, weights
from carso.evaluation.preparation import as_found, classes_of
from carso.evaluation.protocol import Counted
from carso.evaluation.request_checks import check_labels, check_places, checked, judged
from carso.evaluation.resume import FinishedResults
from carso.randomness import global_generators_kept
from carso.storage import files
from carso.storage.provenance import provenance


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
    precision: str = "32-true",
    seed: int = 0,
    name: str = "",
    out: Path | str | None = None,
    again: bool = False,
    device: torch.device | str = "cpu",
    counted: Counted = silent,
    about: dict[str, Any] | None = None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """The record of the certificates of `images` (B, C, H, W) in [0, 1].

    `model` is a `Carso` defence, of which each draw takes one candidate, or any module from images
    to logits. Every image gets Gaussian noise of deviation `sigma`; `selection` draws choose a
    class and `draws` others bound its probability, wrongly with probability `alpha` at most.
    `precision` "bf16-mixed" runs the networks in bfloat16, which is another function and is
    certified as such. With `out` the record is written there, and a call that was stopped goes on
    where it was; one that was finished returns the record that is there, unless it is to be made
    `again`. Many processes share the images, and what comes out does not depend on how many.
    """
    draws, selection, batch = (
        arguments.whole(key, value, least=1)
        for key, value in (("draws", draws), ("selection", selection), ("batch", batch))
    )
    sigma, alpha = arguments.real("sigma", sigma), arguments.real("alpha", alpha)
    smoothing = Smoothing(
        sigma=sigma,
        draws=draws,
        selection=selection,
        alpha=alpha,
        batch=batch,
        precision=arguments.text("precision", precision),
    )
    model, name = judged(model, "certify"), arguments.text("name", name)
    seed, place = arguments.seed_number(seed), arguments.device(device)
    images, labels = checked(images, labels)
    path = None if out is None else arguments.place("out", out)
    check_places(path, None, processes)
    settings = {
        "kind": "certificate",
        "subject": {"name": name or type(model).__name__, "weights": weights(model)},
        "smoothing": asdict(smoothing),
        "seed": seed,
        "data": {**images_identity(images, labels), **(about or {}).get("data", {})},
    }
    before = None if path is None else record_there(path, settings)
    if before is not None and not again:
        return before
    with global_generators_kept(), as_found(model), sole(path, processes):
        model.eval()
        classes = classes_of(under_test(model, name or None), images[:1].to(place))
        check_labels(labels, classes)
        asked = Certified(
            model=model,
            images=images.to(place),
            labels=labels,
            smoothing=smoothing,
            seed=seed,
            classes=classes,
        )
        check_batch(images[0], batch)
        folder = None if path is None else unfinished(path)
        finished = processes.first_then_others(lambda: FinishedResults(folder, settings))
        share = processes.broadcast(share_of_passes(asked) if processes.is_first else 0.0)
        found = asked.all_of_them(finished, counted, processes)
        record = assembled(
            found,
            labels,
            settings=settings,
            pixels=images[0].numel(),
            provenance={**provenance(), **speed(found, smoothing, finished.seconds, share)},
        )
        processes.barrier()  # everyone has read the parts
        if processes.is_first and path is not None:
            files.write_json(path, record)
            finished.remove()
    return record
