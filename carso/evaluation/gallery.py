"""Pictures for the report: what the worst examples look like, and what the defence made of them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor

from carso.evaluation.attacked_model import AttackedDefence
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.protocol import Battle

SHOWN = 8
CANDIDATES = 8


def gallery(case: Evaluation, battle: Battle, classes: Sequence[str]) -> list[dict[str, Any]]:
    """The most damaging examples first, then others as they come, one class after the other."""
    names = [classes[i] if i < len(classes) else str(i) for i in range(case.classes)]
    fooled = ((battle.clean.right > 0) & (battle.final.right == 0)).nonzero().flatten()
    order = fooled[battle.final.margin[fooled].argsort()].tolist()
    damaging = order[: SHOWN // 2]
    rest = [i for i in range(len(case.images)) if i not in damaging]
    return [
        {**entry(case, battle, place, names), "why": why}
        for why, places in (("most damaging", damaging), ("as they come", rest[: SHOWN // 2]))
        for place in places
    ]


@torch.no_grad()
def entry(case: Evaluation, battle: Battle, place: int, classes: Sequence[str]) -> dict[str, Any]:
    """One image: clean, attacked, difference, candidates and their mean, with their labels."""
    subject = case.subject
    image = case.images[place : place + 1].to(case.device)
    attacked = battle.worst.examples[place : place + 1].to(case.device)
    subject.reseed(case.seed)
    found: dict[str, Any] = {
        "image": place,
        "truth": classes[int(case.labels[place])],
        "attack": battle.worst.attack[place],
        "margin": round(float(battle.final.margin[place]), 3),
        "answer_clean": classes[int(subject.answers(image)[0])],
        "answer_attacked": classes[int(subject.answers(attacked)[0])],
        "classifier_attacked": classes[int(subject.classifier(attacked).argmax(dim=1))],
        "pictures": {
            "clean": png(image[0]),
            "attacked": png(attacked[0]),
            "difference": png((attacked - image)[0] / (2 * case.threat.eps) + 0.5),
        },
    }
    if isinstance(subject, AttackedDefence):
        candidates = subject.defence.purify(attacked)[:, 0]  # (N, C, H, W)
        labels = subject.defence.final_classifier(candidates).argmax(dim=1)
        found["candidates"] = [
            {"picture": png(candidate), "label": classes[int(label)]}
            for candidate, label in zip(candidates[:CANDIDATES], labels, strict=False)
        ]
        found["pictures"]["mean_candidate"] = png(candidates.mean(dim=0))
    return found


def png(image: Tensor) -> str:
    """(C, H, W) in [0, 1] as a PNG in base64."""
    if len(image) not in (1, 3):
        image = image.mean(dim=0, keepdim=True)  # no colours that an eye knows
    pixels = (image.clamp(0, 1) * 255).round().byte().cpu().numpy()
    array = pixels[0] if len(pixels) == 1 else numpy.moveaxis(pixels, 0, 2)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
