"""A classifier that the user brought: what tells it from others, and its place in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.distributed.processes import Processes
from carso.errors import CarsoError
from carso.randomness import generator, seeded
from carso.storage import files, tensor_files
from carso.storage.provenance import provenance


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
