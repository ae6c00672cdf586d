"""What every attack is: how it is called, and what it declares of itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

from torch import Generator, Tensor

from carso.errors import CarsoError
from carso.threats.threat import Threat

Model = Callable[[Tensor], Tensor]
"""Anything that maps images (B, C, H, W) in [0, 1] to one score per class (B, K)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackFacts:
    """What an evaluation must know of an attack. The defaults suit one that follows gradients."""

    black_box: bool = False
    """It asks for scores only; that it has no gradients is no fault."""
    classes: int = 2
    """How many classes it needs: what its loss compares."""
    eot: int = 1
    """Passes whose gradients are averaged in one step (expectation over transformation)."""
    period: int = 0
    """Steps of one run, after which a restart begins anew; 0: the steps are not counted so."""
    norms: tuple[str, ...] = ()
    """The only norms that it runs in; empty: it takes any threat."""
    direct_steps: int = 0
    """Steps of a direct attack on what is judged, which the diagnosis "more effort" has to outdo;
    0: it is none."""
    starts: bool = False
    """It takes `start`, the worst examples so far (B, C, H, W), as one argument more."""


class Attack(Protocol):
    """Images in, images inside `threat` out; draws come from `generator`, which advances."""

    @property
    def facts(self) -> AttackFacts: ...

    def identity(self) -> dict[str, Any]:
        """All that tells it from other attacks, as JSON: a stopped evaluation goes on only with
        the same. "attack" is its name, the rest its settings."""
        ...

    def __call__(
        self, model: Model, images: Tensor, labels: Tensor, *, threat: Threat, generator: Generator
    ) -> Tensor: ...


class NamedByFields:
    """The identity of an attack that is a dataclass: its name and its fields."""

    __slots__ = ()

    def identity(self) -> dict[str, Any]:
        return {"attack": type(self).__name__, **asdict(cast(Any, self))}


def in_words(identity: dict[str, Any]) -> str:
    """An identity as it is shown to people, e.g. PGD(steps=40, eot=1)."""
    settings = (f"{key}={value!r}" for key, value in identity.items() if key != "attack")
    return f"{identity['attack']}({', '.join(settings)})"


def runs_in(attack: Attack, threat: Threat) -> bool:
    """Whether an attack runs in the norm of a threat."""
    return not attack.facts.norms or threat.norm in attack.facts.norms


def refuse_norm(attack: Attack, threat: Threat) -> None:
    """One line where an attack does not run in the norm of a threat."""
    if not runs_in(attack, threat):
        name, norms = attack.identity()["attack"], " and ".join(attack.facts.norms)
        raise CarsoError(f"{name} runs in {norms} only, not in {threat.norm!r}: leave it out")


def verified(adversarial: Tensor, images: Tensor, threat: Threat) -> Tensor:
    """`adversarial`, after a check that it is what `threat` allows: an attack is not trusted."""
    if adversarial.shape != images.shape:
        raise RuntimeError(
            f"an attack gave {tuple(adversarial.shape)} for images {tuple(images.shape)}"
        )
    inside = threat.contains(adversarial, images)
    if not bool(inside.all()):
        count = int((~inside).sum())
        raise RuntimeError(
            f"an attack left its threat model on {count} of {len(images)} images: every pixel "
            f"must be finite, in [0, 1], and the image within {threat.eps:g} of the original "
            f"({threat.norm})"
        )
    return adversarial.detach()


HEARD: ContextVar[list[str] | None] = ContextVar("heard", default=None)


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collects what attacks warn of within it, each message once."""
    heard: list[str] = []
    token = HEARD.set(heard)
    try:
        yield heard
    finally:
        HEARD.reset(token)


ROOM: ContextVar[int] = ContextVar("room", default=0)


@contextmanager
def room_for(images: int) -> Iterator[None]:
    """Within it, an attack on fewer images than these may go several ways with each at once."""
    token = ROOM.set(images)
    try:
        yield
    finally:
        ROOM.reset(token)


def ways_at_once(images: int) -> int:
    """How many copies of a batch of so many `images` there is room for, at least one: small batches
    take longer for each image."""
    return max(1, ROOM.get() // max(1, images))


def warn(text: str) -> None:
    """For an attack: something that a reader of its record should know."""
    heard = HEARD.get()
    if heard is None:
        logging.getLogger("carso.attacks").warning(text)
    elif text not in heard:
        heard.append(text)
