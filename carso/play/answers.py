"""What the page shows: an image before and after an attack, and what each answers to it."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from carso.attacks.attack import Model
from carso.attacks.margin import Margin
from carso.data.image_files import described
from carso.defence.on_disk import Deployed
from carso.errors import CarsoError
from carso.evaluation.gallery import png
from carso.play.attack_steps import WatchedModel
from carso.play.exhibition import Exhibition, ShownDefence
from carso.play.visitor_requests import AttackRequest
from carso.randomness import generator

SAMPLES = 2
"""Candidates that a step of the attack averages over: few, so that an answer does not take long."""
SHOWN = 8
"""Candidates whose pictures are shown."""


def answer(asked: AttackRequest, shown: Exhibition) -> dict[str, Any]:
    """The attack that was asked for, and all that the page draws of it."""
    began = time.perf_counter()
    first = shown[asked.defence]
    image, label, known = first.picked(asked)
    watched = attacked_model(first.defence, asked, label)
    noise = generator(asked.seed, "play")
    attacked = Margin(steps=asked.steps)(
        watched, image, label, threat=asked.threat, generator=noise
    )
    parties = [seen_by(asked.defence, first, image, attacked, asked.seed)]
    if asked.against:
        second = shown[asked.against]
        if second.defence.trained_shape != first.defence.trained_shape:
            raise CarsoError(
                f"{asked.against} takes images of {described(second.defence.trained_shape)}, "
                f"{asked.defence} of {described(first.defence.trained_shape)}: pick two that agree"
            )
        parties.append(seen_by(asked.against, second, image, attacked, asked.seed))
    truth = first.defence.classes[int(label)]
    return {
        "truth": truth,
        "known": known,
        "pictures": pictures(image, attacked),
        "distance": float(asked.threat.distance(attacked, image)),
        "parties": parties,
        "steps": steps(first.defence, watched, asked),
        "verdict": verdict(parties, asked, truth, known=known, attacked=bool(watched.points)),
        "seconds": time.perf_counter() - began,
    }


def attacked_model(defence: Deployed, asked: AttackRequest, label: Tensor) -> WatchedModel:
    """What the attack differentiates, watched: the classifier, or the whole by its mean logits."""
    defence.seed(asked.seed)
    model: Model = defence.classifier
    if asked.aim == "defence":
        model = defence.view("mean-logits", samples=SAMPLES)
    return WatchedModel(model, label)


def pictures(image: Tensor, attacked: Tensor) -> dict[str, Any]:
    """The image, the attacked one, and their difference, stretched to the whole grey scale; how
    often it is magnified for that, None where there is none."""
    change = (attacked - image)[0]
    found = float(change.abs().max())
    largest = found or 1.0
    return {
        "clean": png(image[0]),
        "attacked": png(attacked[0]),
        "difference": png(change / (2 * largest) + 0.5),
        "magnified": 1 / (2 * found) if found else None,
    }


def seen_by(
    name: str, shown: ShownDefence, image: Tensor, attacked: Tensor, seed: int
) -> dict[str, Any]:
    """What a defence and its classifier make of the image, before and after."""
    found: dict[str, Any] = {"name": name, "classes": list(shown.defence.classes)}
    for state, pixels in (("clean", image), ("attacked", attacked)):
        shown.defence.seed(seed + 1)  # noise that the attack has not seen
        seen = shown.defence.explain(pixels)
        shares = seen.logits.softmax(dim=2).amax(dim=2)  # (N, 1): of the label of each candidate
        found[state] = {
            "classifier": seen.own.softmax(dim=1)[0].tolist(),
            "defence": seen.log_probabilities.exp()[0].tolist(),
            "candidates": [
                {
                    "picture": png(candidate),
                    "label": shown.defence.classes[int(vote)],
                    "share": float(share),
                }
                for candidate, vote, share in islice(
                    zip(seen.candidates[:, 0], seen.votes[:, 0], shares[:, 0], strict=True), SHOWN
                )
            ],
            "agreeing": int((seen.votes[:, 0] == seen.labels[0]).sum()),
            "samples": len(seen.votes),
        }
    return found


@torch.no_grad()
def steps(defence: Deployed, watched: WatchedModel, asked: AttackRequest) -> list[dict[str, Any]]:
    """Each point of the attack's way, and what classifier and defence answer there."""
    if not watched.points:  # nothing to attack: it was wrong before
        return []
    defence.seed(asked.seed + 1)
    seen = defence.explain(torch.cat(watched.points))
    return [
        {
            "picture": png(point[0]),
            "margin": margin,
            "classifier": defence.classes[int(own)],
            "defence": defence.classes[int(answered)],
        }
        for point, margin, own, answered in zip(
            watched.points, watched.margins, seen.own_labels, seen.labels, strict=True
        )
    ]


def verdict(
    parties: list[dict[str, Any]], asked: AttackRequest, truth: str, *, known: bool, attacked: bool
) -> str:
    """One sentence on who is fooled."""
    first, two = parties[0], len(parties) > 1
    aim = "the whole defence" if asked.aim == "defence" else "the classifier alone"
    if two:
        aim = f"the whole of {first['name']}" if asked.aim == "defence" else classifier_of(first)
    what = truth if known else f"What the classifier calls {truth}"
    if not attacked:
        wrong = top(first, "clean", asked.aim)
        return f"{what}, not attacked: {aim} already says {wrong} without that."
    said = []
    for party in parties:  # each has a classifier of its own
        said.append((classifier_of(party) if two else "the classifier", party, "classifier"))
        said.append((party["name"] if two else "the defence", party, "defence"))
    clauses = []
    for name, party, who in said:
        label = top(party, "attacked", who)
        clauses.append(f"{name} {'still says' if label == truth else 'says'} {label}")
    number = "1 step" if asked.steps == 1 else f"{asked.steps} steps"
    reach = f"{asked.threat.norm}, eps = {asked.threat.eps:.4g}, {number}"
    return f"{what}, attacked through {aim} ({reach}): {', '.join(clauses)}."


def classifier_of(party: dict[str, Any]) -> str:
    return f"the classifier of {party['name']}"


def top(party: dict[str, Any], state: str, who: str) -> str:
    """The class of the highest probability."""
    shares = party[state][who]
    return str(party["classes"][max(range(len(shares)), key=shares.__getitem__)])
