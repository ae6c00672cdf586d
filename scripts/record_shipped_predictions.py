"""Records what the shipped defences predict on 200 test images, for a test that nothing moves them.

    python scripts/record_shipped_predictions.py

Labels are the same on any machine. Bits of log-probabilities depend on the instructions that the
processor has, so they are kept by its capability (as torch calls it); one thread.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

import carso
from carso import data
from carso.defence.on_disk import Deployed

COUNT = 200
NAMES = (
    "cifar10-retrofit",
    "cifar10-small-hardened",
    "fashion",
    "fashion-anchored-unet",
    "fashion-certified",
    "fashion-hardened",
    "fashion-retrofit",
    "fashion-retrofit-unet",
)
RECORD = Path(__file__).parents[1] / "tests" / "contracts" / "shipped_predictions.json"


def images_for(defence: Deployed) -> torch.Tensor:
    """Embedded test images; for a defence of coloured images, those in three colours, enlarged."""
    images = data.load("fashion-embedded").test.batch(slice(0, COUNT))[0]
    if defence.trained_shape[0] == 1:
        return images
    side = defence.trained_shape[1]
    enlarged = torch.nn.functional.pad(images, [(side - images.shape[-1]) // 2] * 4)
    return torch.cat([enlarged, enlarged.flip(-1), enlarged.flip(-2)], dim=1)


def predictions(name: str) -> tuple[str, str]:
    """The hash of the labels, and that of the bits of the log-probabilities."""
    torch.set_num_threads(1)
    defence = carso.load(name)
    with torch.no_grad():
        answers = defence(images_for(defence))
    labels = answers.argmax(dim=1).to(torch.uint8)
    return sha256(labels), sha256(answers.contiguous())


def sha256(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def main() -> None:
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    capability = torch.backends.cpu.get_cpu_capability()
    for name in NAMES:
        labels, bits = predictions(name)
        entry = found.setdefault(name, {"labels": labels, "bits": {}})
        entry["labels"], entry["bits"][capability] = labels, bits
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
