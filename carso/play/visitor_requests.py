"""What a browser may ask for, checked: numbers within limits, names that were offered, no paths."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carso.errors import CarsoError
from carso.threats.l2 import L2
from carso.threats.linf import Linf
from carso.threats.norms import THREATS

MOST_BYTES = 2_000_000
"""Of a request; an image of any shipped defence is far below."""
MOST_STEPS = 50
REACH = {"Linf": (0.001, 1.0), "L2": (0.001, 10.0)}
"""The smallest and the largest eps in each norm."""
AIMS = ("classifier", "defence")
"""What an attack goes for: the classifier alone, or the whole defence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackRequest:
    """One image, and the attack on it."""

    defence: str
    against: str
    """The name of a second defence that sees the same image; empty: none does."""
    image: int | None
    """The number of a test image; None: a picture or a drawing is the image."""
    picture: bytes
    """The content of an image file."""
    drawing: bytes
    """A grey byte for each pixel, row by row."""
    label: int | None
    """The class of what was brought; None: what the classifier says of it."""
    aim: str
    threat: Linf | L2
    steps: int
    seed: int


def attack_request(asked: Any, names: Sequence[str]) -> AttackRequest:
    """What the browser sent, or one line that says what is wrong with it."""
    if not isinstance(asked, dict):
        raise CarsoError("a request is a JSON object")
    picture, drawing = (decoded(asked.get(name) or "") for name in ("picture", "drawing"))
    norm = chosen("norm", asked.get("norm", "Linf"), tuple(THREATS))
    eps = between("eps", asked.get("eps", 0.1), *REACH[norm])
    brought = bool(picture or drawing)
    image = None if brought else whole("the number of the image", asked.get("image", 0), 10**6)
    label = asked.get("label")
    against = asked.get("against") or ""
    return AttackRequest(
        defence=chosen("defence", asked.get("defence"), names),
        against=chosen("defence", against, names) if against else "",
        image=image,
        picture=picture,
        drawing=drawing,
        label=None if label is None else whole("label", label, 10**6),
        aim=chosen("aim", asked.get("aim", "defence"), AIMS),
        threat=THREATS[norm](eps=eps),
        steps=whole("steps", asked.get("steps", 20), MOST_STEPS, least=1),
        seed=whole("seed", asked.get("seed", 0), 2**31),
    )


def chosen(what: str, value: Any, known: Sequence[str]) -> str:
    """One of the names that the page offers."""
    if not isinstance(value, str) or value not in known:
        raise CarsoError(f"{what} must be one of {', '.join(known)}")
    return value


def whole(what: str, value: Any, most: int, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise CarsoError(f"{what} must be a whole number from {least} to {most}")
    return value


def between(what: str, value: Any, least: float, most: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise CarsoError(f"{what} must be a number")
    if not least <= value <= most:
        raise CarsoError(f"{what} must be a number from {least:g} to {most:g}, got {value:g}")
    return float(value)


def decoded(text: Any) -> bytes:
    """Bytes, which come in base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise CarsoError("a picture or a drawing must be its bytes in base64") from None
