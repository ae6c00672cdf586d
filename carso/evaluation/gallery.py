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

from carso.evaluation.evaluation import Evaluation
from carso.evaluation.protocol import AttackResults

SHOWN = 8
CANDIDATES = 8


def gallery(
    evaluation: Evaluation, results: AttackResults, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """The most damaging examples first, then others as they come, one class after the other."""
    names = [classes[i] if i < len(classes) else str(i) for i in range(evaluation.classes)]
    fooled = ((results.clean.right > 0) & (results.final.right == 0)).nonzero().flatten()
    order = fooled[results.final.margin[fooled].argsort()].tolist()
    damaging = order[: SHOWN // 2]
    rest = [i for i in range(len(evaluation.images)) if i not in damaging]
    return [
        {**entry(evaluation, results, place, names), "why": why}
        for why, places in (("most damaging", damaging), ("as they come", rest[: SHOWN // 2]))
        for place in places
    ]


@torch.no_grad()
def entry(
    evaluation: Evaluation, results: AttackResults, place: int, classes: Sequence[str]
) -> dict[str, Any]:
    """One image: clean, attacked, difference, candidates and their mean, with their labels."""
    model = evaluation.model
    image = evaluation.images[place : place + 1].to(evaluation.device)
    attacked = results.worst.examples[place : place + 1].to(evaluation.device)
    model.reseed(evaluation.seed)
    clean = model.answers(image)[0]
    # Only in Linf is eps the change of a pixel; elsewhere the picture's largest change is black.
    largest = float((attacked - image).abs().max()) or 1.0
    contrast = evaluation.threat.eps if evaluation.threat.norm == "Linf" else largest
    pictures = {
        "clean": png(image[0]),
        "attacked": png(attacked[0]),
        "difference": png((attacked - image)[0] / (2 * contrast) + 0.5),
    }
    found: dict[str, Any] = {}
    if model.defence is None:
        answer, alone = model.answers(attacked)[0], model.classifier(attacked).argmax(dim=1)
    else:
        seen = model.defence.explain(attacked)
        answer, alone = seen.labels, seen.own_labels
        pairs = zip(seen.candidates[:CANDIDATES, 0], seen.votes[:, 0], strict=False)
        found["candidates"] = [
            {"picture": png(candidate), "label": classes[int(label)]} for candidate, label in pairs
        ]
        pictures["mean_candidate"] = png(seen.candidates[:, 0].mean(dim=0))
    return {
        "image": place,
        "truth": classes[int(evaluation.labels[place])],
        "attack": results.worst.attack[place],
        "margin": round(float(results.final.margin[place]), 3),
        "answer_clean": classes[int(clean)],
        "answer_attacked": classes[int(answer)],
        "classifier_attacked": classes[int(alone)],
        "pictures": pictures,
        **found,
    }


def png(image: Tensor) -> str:
    """(C, H, W) in [0, 1] as a PNG in base64."""
    if len(image) not in (1, 3):
        image = image.mean(dim=0, keepdim=True)  # no colours that an eye knows
    pixels = (image.clamp(0, 1) * 255).round().byte().cpu().numpy()
    array = pixels[0] if len(pixels) == 1 else numpy.moveaxis(pixels, 0, 2)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
