"""Does a model answer alike whoever asks, and of images that it cannot know?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.attacks.averaging import cosine
from carso.attacks.margin import TINY, margins
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext, slack
from carso.evaluation.diagnostics.slopes import noise_held, nothing_stands
from carso.evaluation.statistics import percent

ALONE = 10
"""So many images are also shown one by one."""
UNALIKE = 0.1
"""Of the median margin; a larger difference of scores is another answer."""
ALIKE = 0.7
"""Cosine of natural images and themselves moved by a pixel, at least."""
KNOWN = 0.5
"""An image moved by a pixel keeps more than this of its margin."""


def same_answers(context: DiagnosticContext) -> Diagnosis:
    """With and without gradients, in a batch and alone."""
    with noise_held(context) as (model, images, labels):
        if not len(images):
            return nothing_stands("same answers")
        with torch.no_grad():
            plain = model(images)
        with torch.enable_grad():
            asked = model(images.clone().requires_grad_(True)).detach()
        found = {"with gradients": unalike(plain, asked, labels)}
        if not context.evaluation.model.stochastic:
            with torch.no_grad():
                alone = torch.cat([model(images[i : i + 1]) for i in range(len(images[:ALONE]))])
            few = labels[:ALONE]
            found["one by one"] = unalike(plain[:ALONE], alone, few)
    wrong = {how: share for how, share in found.items() if share > slack(len(images))}
    if wrong:
        how = " and ".join(f"asked {how} {percent(share)}" for how, share in wrong.items())
        words = f"Of the same images, {how} are answered otherwise: attacks saw another model."
    else:
        words = f"Asked {' or '.join(found)}, the model answers the same."
    return Diagnosis(name="same answers", ok=not wrong, verdict=words, figures=found)


def unalike(first: Tensor, second: Tensor, labels: Tensor) -> float:
    """The share of images whose margins differ by more than rounding explains."""
    before, after = margins(first, labels), margins(second, labels)
    size = before.abs().median().clamp(min=TINY)
    return float((~((before - after).abs() <= UNALIKE * size)).double().mean())


def memory(context: DiagnosticContext) -> Diagnosis:
    """Images moved by a pixel, which show the same thing, and which nobody can have remembered."""
    with noise_held(context) as (model, images, labels):
        if not len(images):
            return nothing_stands("memory")
        if not smooth(images):
            words = "Neighbouring pixels are not alike: a moved image would be another."
            return Diagnosis(name="memory", ok=None, verdict=words)
        own, moved = (float(each.median()) for each in leads(model, images, labels))
    kept = moved / max(own, TINY)
    words = (
        f"Of {len(images)} images moved by a pixel, the median margin is {percent(kept)} of that "
        "of the images themselves."
    )
    if kept < KNOWN:
        words += " It knows these very images: the figure says nothing of others."
    figures = {"own": own, "moved": moved, "images": len(images)}
    return Diagnosis(name="memory", ok=kept >= KNOWN, verdict=words, figures=figures)


def smooth(images: Tensor) -> bool:
    """Whether images are like themselves when they are moved by a pixel."""
    centred = images - images.mean(dim=(1, 2, 3), keepdim=True)
    moved = centred.roll(1, dims=3)
    return float(cosine(centred, moved).mean()) > ALIKE


@torch.no_grad()
def leads(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The margins of images, and the best that each has when it is moved by a pixel."""
    wide = F.pad(images, (1, 1, 1, 1), mode="replicate")
    height, width = images.shape[2:]
    places = ((0, 1), (2, 1), (1, 0), (1, 2))
    shifted = [wide[:, :, top : top + height, left : left + width] for top, left in places]
    best = torch.stack([margins(model(one), labels) for one in shifted]).amax(dim=0)
    return margins(model(images), labels), best
