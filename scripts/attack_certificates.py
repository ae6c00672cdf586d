"""Attacks a smoothed defence inside its certificates: none may fall.

    python scripts/attack_certificates.py DEFENCE RECORD OUT [--images 200] [--bare]
        [--steps 10] [--copies 32] [--draws 400] [--at 0.25,0.5,1.0]

RECORD is one of `carso certify DEFENCE`. Each certified image is attacked through the smoothed
function (Salman et al. 2019) by PGD in an L2 ball of its own certified radius, and labelled by new
draws. Then as many images, certified or not, are attacked in balls of the radii `--at`, for the
accuracy under attack beside the certified one. A fall is one that draws show beyond doubt: another
class leads, and the certified one has a majority with a probability below alpha.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from records import in_one_line
from torch import Tensor, nn

from carso.attacks.pgd import PGD
from carso.certification.bounds import lower_bound
from carso.certification.certificate import Smoothing
from carso.certification.certificate_record import read_certificates
from carso.certification.certified_images import Certified
from carso.certification.smoothed_view import SmoothedView
from carso.errors import CarsoError
from carso.evaluation.by_name import Images, named_model
from carso.evaluation.fingerprints import images_identity, weights
from carso.progress import progress
from carso.randomness import generator
from carso.storage import files
from carso.storage.provenance import provenance
from carso.threats.l2 import L2

CPU = torch.device("cpu")


def attacked(
    model: nn.Module,
    image: Tensor,
    label: int,
    radius: float,
    asked: argparse.Namespace,
    **noise: Any,
) -> Tensor:
    """The image (1, C, H, W) after an attack on the smoothed function."""
    view = SmoothedView(model, copies=asked.copies, **noise)
    attack = PGD(steps=asked.steps, step_size=2.5 * radius / asked.steps)
    threat, source = L2(eps=radius), generator(noise["seed"], "attack on certificates")
    return attack(view, image, torch.tensor([label]), threat=threat, generator=source)


def verdict(
    model: nn.Module, image: Tensor, sigma: float, classes: int, draws: int, seed: int
) -> Tensor:
    """The votes of fresh draws, (K,)."""
    judge = Certified(
        model=model, images=image, labels=torch.zeros(1), seed=seed, classes=classes,
        smoothing=Smoothing(sigma=sigma, draws=draws),
    )  # fmt: skip
    return judge.votes(0, "verdict").count(draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("defence")
    parser.add_argument("record", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--copies", type=int, default=32)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--at", default="0.25,0.5,1.0")
    asked = parser.parse_args()
    record = read_certificates(asked.record)
    found, sigma, alpha = (
        record["images"],
        record["smoothing"]["sigma"],
        record["smoothing"]["alpha"],
    )
    model, known = named_model(asked.defence, bare=asked.bare, classifier=None, device=CPU)
    count = len(found["label"])
    _, split = Images(count=count, split=record["data"]["split"]).load(known)
    images, labels = split.batch(slice(None))
    same = images_identity(images, labels)["sha256"] == record["data"]["sha256"]
    if not same or weights(model) != record["subject"]["weights"]:
        raise CarsoError(f"{asked.record} is of another model, or of other images")
    model.eval().requires_grad_(False)
    classes = len(known.classes)

    def after(index: int, radius: float) -> Tensor:
        image = images[index : index + 1]
        moved = attacked(
            model, image, found["label"][index], radius, asked, sigma=sigma, seed=index
        )
        return verdict(model, moved, sigma, classes, asked.draws, seed=index)

    certified = [
        index for index in range(count)
        if found["radius"][index] > 0 and found["selected"][index] == found["label"][index]
    ][: asked.images]  # fmt: skip
    some = range(min(asked.images, count))
    radii = [float(at) for at in asked.at.split(",") if at]
    rows = []
    with progress() as bars:
        advance = bars.announced("attacks within the radius", len(certified))
        for index in certified:
            selected = found["selected"][index]
            before = verdict(
                model, images[index : index + 1], sigma, classes, asked.draws, seed=index
            )
            votes = after(index, found["radius"][index])
            lost = asked.draws - int(votes[selected])
            rows.append(
                {
                    "image": index,
                    "radius": found["radius"][index],
                    "votes_before": int(before[selected]),
                    "votes_after": int(votes[selected]),
                    "another_leads": int(votes.argmax()) != selected,
                    "fell": lower_bound(lost, asked.draws, alpha) > 0.5,
                }
            )
            advance(1)
        accuracies = []
        for at in radii:
            advance = bars.announced(f"attacks at L2 {at:g}", len(some))
            right = proven = 0
            for index in some:
                votes = after(index, at)
                advance(1)
                right += int(votes.argmax()) == found["label"][index]
                proven += found["selected"][index] == found["label"][index] and (
                    found["radius"][index] >= at
                )
            accuracies.append(
                {"radius": at, "under_attack": right / len(some), "certified": proven / len(some)}
            )
    files.write_json(
        asked.out,
        {
            "kind": "attacks on certificates",
            "subject": record["subject"],
            "sigma": sigma,
            "attack": {"steps": asked.steps, "copies": asked.copies, "draws": asked.draws},
            "attacked": len(rows),
            "fell": sum(row["fell"] for row in rows),
            "another_leads": sum(row["another_leads"] for row in rows),
            "images_at_fixed_radii": len(some),
            "accuracy": accuracies,
            "images": rows,
            "provenance": provenance(),
        },
    )
    print(f"{len(rows)} certified images attacked, {sum(row['fell'] for row in rows)} fell")
    for row in accuracies:
        print(row)


if __name__ == "__main__":
    in_one_line(main)
