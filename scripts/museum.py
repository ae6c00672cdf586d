"""Shows the museum of broken defences to `carso evaluate` and to other libraries.

    python scripts/museum.py [--images 50] [--only NAME,...] [--classifiers robust,clean]
                             [--steps carso,autoattack,rand,foolbox] [--minutes N] [--threads 1]

The exhibits stand in tests/museum. Of each, around each classifier, docs/results/museum gets a
small record: what the adaptive suite says of it, and what AutoAttack standard, AutoAttack rand
(where it is random) and foolbox's PGD (over 10 draws where it is random) say of the same images.
A call that is stopped goes on when it is repeated; `--minutes` begins nothing after so long.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from records import RESULTS, ROOT, in_one_line, record
from torch import Tensor, nn

sys.path.insert(0, str(ROOT / "tests" / "museum"))

from exhibits import EPS, EXHIBITS, Exhibit, classifiers

import carso
from carso import data
from carso.attacks.attack import listening
from carso.attacks.autoattack import AutoAttack
from carso.defence.defence import Carso
from carso.randomness import generator, seeded
from carso.storage import files
from carso.storage.provenance import provenance
from carso.threats.linf import Linf

MUSEUM = RESULTS / "museum"
WORK = ROOT / "runs" / "museum"
Found = dict[str, Any]


def by_carso(exhibit: Exhibit, model: nn.Module, images: Tensor, labels: Tensor, to: Path) -> Found:
    """What `carso evaluate --suite adaptive` says."""
    found = carso.evaluate(
        model, images, labels, eps=EPS, suite="adaptive", samples=exhibit.samples,
        name=exhibit.name, classes=[str(i) for i in range(10)], out=to,
    )  # fmt: skip
    accuracy = found["accuracy"]
    return {
        "clean": accuracy["clean"]["value"],
        "said": accuracy["worst"]["value"],
        "unreliable": found["unreliable"],
        "failed": [one["name"] for one in found["diagnostics"] if one["ok"] is False],
        "reasons": found["reasons"],
        "samples": found["suite"]["samples"],
        "seconds": found["provenance"]["seconds"],
    }


def by_autoattack(version: str, model: nn.Module, images: Tensor, labels: Tensor) -> Found:
    """What AutoAttack says: right and not fooled, by its own count; and what it warns of."""
    started = time.perf_counter()
    attack = AutoAttack(version=version)  # type: ignore[arg-type]
    try:
        with torch.no_grad():
            right = model(images).argmax(dim=1) == labels
        with listening() as heard:
            examples = attack(
                model, images, labels, threat=Linf(eps=EPS), generator=generator(0, "museum")
            )
    except Exception as error:  # whatever a library does with a model that it was not made for
        return {"said": None, "refused": f"{type(error).__name__}: {error}"[:160]}
    held = right & (examples == images).flatten(1).all(dim=1)
    return {
        "said": float(held.double().mean()),
        "warned": [text.strip().splitlines()[0][:160] for text in heard],
        "seconds": round(time.perf_counter() - started, 1),
    }


def by_foolbox(random: bool, model: nn.Module, images: Tensor, labels: Tensor) -> Found:
    """What foolbox's PGD says: the share that it does not fool, by its own count."""
    import foolbox  # type: ignore[import-not-found]

    started = time.perf_counter()
    try:
        wrapped: Any = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
        if random:
            wrapped = foolbox.models.ExpectationOverTransformationWrapper(wrapped, n_steps=10)
        attack = foolbox.attacks.LinfPGD(steps=40)
        _, _, fooled = attack(wrapped, images, labels, epsilons=EPS)
    except Exception as error:
        return {"said": None, "refused": f"{type(error).__name__}: {error}"[:160]}
    return {
        "said": 1 - float(fooled.double().mean()),
        "seconds": round(time.perf_counter() - started, 1),
    }


def scores_of(model: nn.Module) -> nn.Module:
    """What other libraries are given of a defence of ours: its log-probabilities."""
    return model.view("log-prob").eval() if isinstance(model, Carso) else model


def steps_of(exhibit: Exhibit, wanted: list[str]) -> list[str]:
    """AutoAttack rand is for what is random."""
    return [step for step in wanted if step != "rand" or exhibit.random]


def visit(
    exhibit: Exhibit, kind: str, network: nn.Module, images: Tensor, labels: Tensor, step: str
) -> None:
    """One measurement of one exhibit; one that is there already is not made again."""
    name = f"{kind}-{exhibit.name}"
    path = MUSEUM / f"{name}.json"
    card: Found = {"exhibit": exhibit.name, "classifier": kind, "images": len(images), "eps": EPS}
    found: Found = record(path) if path.exists() else card
    if {key: found[key] for key in card} != card:
        raise SystemExit(f"{path} is of other images: delete it")
    if step in found:
        return
    model = exhibit.build(network, images, labels).eval()
    calls: dict[str, Callable[[], Found]] = {
        "carso": lambda: by_carso(exhibit, model, images, labels, WORK / f"{name}.json"),
        "autoattack": lambda: by_autoattack("standard", scores_of(model), images, labels),
        "rand": lambda: by_autoattack("rand", scores_of(model), images, labels),
        "foolbox": lambda: by_foolbox(exhibit.random, scores_of(model), images, labels),
    }
    with seeded(0, "museum", name, step):
        found[step] = calls[step]()
    found["provenance"] = provenance()
    files.write_json(path, found)
    print(name, step, found[step].get("said"), found[step].get("failed", ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--only", default=",".join(EXHIBITS))
    parser.add_argument("--classifiers", default="robust,clean")
    parser.add_argument("--steps", default="carso,foolbox,rand,autoattack")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    end = time.monotonic() + 60 * asked.minutes
    images, labels = data.load("fashion-embedded").test.balanced(asked.images).batch(slice(None))
    networks = classifiers()
    chosen = [EXHIBITS[name] for name in asked.only.split(",")]
    for step in asked.steps.split(","):
        for kind in asked.classifiers.split(","):
            for exhibit in chosen:
                if time.monotonic() > end or (exhibit.robust_only and kind != "robust"):
                    continue
                if step in steps_of(exhibit, [step]):
                    visit(exhibit, kind, networks[kind], images, labels, step)


if __name__ == "__main__":
    in_one_line(main)
