"""Attacks a smoothed defence inside its certificates: none may fall.

    python scripts/attack_certificates.py DEFENCE RECORD OUT [--images 200] [--bare]
        [--steps 10] [--copies 32] [--draws 400] [--at 0.25,0.5,1.0]

RECORD is one of `carso certify DEFENCE`. Each certified image is attacked through the smoothed
function (Salman et al. 2019) by PGD in an L2 ball of its own certified radius, and labelled by new
draws. Then as many images, certified or not, are attacked in balls of the radii `--at`, for the
accuracy under attack beside the certified one. An image has fallen if draws show it beyond doubt:
the certified class has less than half of the votes, up to an error of probability alpha.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
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
from carso.evaluation.protocol import Counted
from carso.machine.progress import progress
from carso.randomness import generator
from carso.storage import files
from carso.storage.provenance import provenance
from carso.threats.l2 import L2

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Attacked:
    """A certified model, its images, and how they are attacked."""

    model: nn.Module
    images: Tensor
    record: dict[str, Any]
    classes: int
    steps: int
    copies: int
    draws: int

    @property
    def sigma(self) -> float:
        return float(self.record["smoothing"]["sigma"])

    def of_image(self, key: str, index: int) -> Any:
        return self.record["images"][key][index]

    @property
    def smoothing(self) -> Smoothing:
        """That of the record, with as many draws as judge here."""
        return Smoothing(**{**self.record["smoothing"], "draws": self.draws})

    def votes(self, image: Tensor, index: int) -> Tensor:
        """The votes of new draws on an image (1, C, H, W), (K,)."""
        judge = Certified(
            model=self.model, images=image, labels=torch.zeros(1), seed=index,
            classes=self.classes, smoothing=self.smoothing,
        )  # fmt: skip
        return judge.votes(0, "verdict").count(self.draws)

    def clean_votes(self, index: int) -> Tensor:
        return self.votes(self.images[index : index + 1], index)

    def votes_after(self, index: int, radius: float) -> Tensor:
        """The same after an attack within an L2 radius."""
        view = SmoothedView(self.model, sigma=self.sigma, copies=self.copies, seed=index)
        attack = PGD(steps=self.steps, step_size=2.5 * radius / self.steps)
        moved = attack(
            view,
            self.images[index : index + 1],
            torch.tensor([self.of_image("label", index)]),
            threat=L2(eps=radius),
            generator=generator(index, "attack on certificates"),
        )
        return self.votes(moved, index)

    def right(self, index: int, at: float) -> bool:
        """Whether an image is certified right within a radius."""
        radius = self.of_image("radius", index)
        same = self.of_image("selected", index) == self.of_image("label", index)
        return bool(same and radius > 0 and radius >= at)

    def within(self, count: int, counted: Counted) -> list[dict[str, Any]]:
        """What became of the first certified images, each attacked within its radius."""
        every = range(len(self.images))
        certified = [index for index in every if self.right(index, 0.0)][:count]
        advance, rows = counted("attacks within the radius", len(certified)), []
        for index in certified:
            chosen, radius = self.of_image("selected", index), self.of_image("radius", index)
            before, after = self.clean_votes(index), self.votes_after(index, radius)
            lost = lower_bound(
                self.draws - int(after[chosen]), self.draws, self.record["smoothing"]["alpha"]
            )
            rows.append(
                {
                    "image": index,
                    "radius": radius,
                    "votes_before": int(before[chosen]),
                    "votes_after": int(after[chosen]),
                    "another_leads": int(after.argmax()) != chosen,
                    "fell": lost > 0.5,
                }
            )
            advance(1)
        return rows

    def at(self, radius: float, count: int, counted: Counted) -> dict[str, float]:
        """The accuracy of the first images under attacks of one radius, and the certified one."""
        some = range(min(count, len(self.images)))
        advance, right = counted(f"attacks at L2 radius {radius:g}", len(some)), 0
        for index in some:
            right += int(self.votes_after(index, radius).argmax()) == self.of_image("label", index)
            advance(1)
        proven = sum(self.right(index, radius) for index in some)
        return {
            "radius": radius,
            "under_attack": right / len(some),
            "certified": proven / len(some),
        }


def subject(asked: argparse.Namespace) -> Attacked:
    """The model and the images of a record, after a check that they are the same."""
    record = read_certificates(asked.record)
    model, known = named_model(asked.defence, bare=asked.bare, classifier=None, device=CPU)
    count, split = len(record["images"]["label"]), record["data"]["split"]
    images, labels = Images(count=count, split=split).load(known)[1].batch(slice(None))
    same = images_identity(images, labels)["sha256"] == record["data"]["sha256"]
    if not same or weights(model) != record["subject"]["weights"]:
        raise CarsoError(f"{asked.record} is of another model, or of other images")
    return Attacked(
        model=model.eval().requires_grad_(False), images=images, record=record,
        classes=len(known.classes), steps=asked.steps, copies=asked.copies, draws=asked.draws,
    )  # fmt: skip


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
    attacked = subject(asked)
    with progress() as bars:
        rows = attacked.within(asked.images, bars.announced)
        radii = [float(at) for at in asked.at.split(",") if at]
        accuracy = [attacked.at(radius, asked.images, bars.announced) for radius in radii]
    found = {
        "kind": "attacks on certificates",
        "subject": attacked.record["subject"],
        "sigma": attacked.sigma,
        "attack": {"steps": asked.steps, "copies": asked.copies, "draws": asked.draws},
        "attacked": len(rows),
        "fell": sum(row["fell"] for row in rows),
        "another_leads": sum(row["another_leads"] for row in rows),
        "images_at_fixed_radii": min(asked.images, len(attacked.images)),
        "accuracy": accuracy,
        "images": rows,
        "provenance": provenance(),
    }
    files.write_json(asked.out, found)
    print(f"{found['attacked']} certified images attacked, {found['fell']} fell; {accuracy}")


if __name__ == "__main__":
    in_one_line(main)
