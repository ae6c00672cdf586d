"""The threats that are known by the name of their norm."""

from __future__ import annotations

from typing import Any

from carso.arguments import shown, text
from carso.errors import CarsoError, CarsoTypeError
from carso.threats.l2 import L2
from carso.threats.linf import Linf
from carso.threats.threat import Threat

THREATS: dict[str, type[Linf] | type[L2]] = {"Linf": Linf, "L2": L2}
DEFAULT = "Linf"


def known(norm: str) -> type[Linf] | type[L2]:
    """The class of threats in this norm."""
    if text("norm", norm) not in THREATS:
        raise CarsoError(f"norm must be one of {', '.join(THREATS)}, got {norm!r}")
    return THREATS[norm]


def refuse_without(threat: Threat, *parts: str) -> None:
    """One line for an object that lacks a part of a threat."""
    for part in parts:
        if not hasattr(threat, part):
            raise CarsoTypeError(
                f"a threat is carso.Linf, carso.L2 or an object like them; {shown(threat)} has no "
                f"{part}"
            )


def threat_of(
    threat: Threat | None = None, *, norm: str = DEFAULT, eps: float | None = None
) -> Threat:
    """The threat that a caller means: an object, or the norm and the radius of one of ours."""
    if threat is None:
        if eps is None:
            raise CarsoError("eps is missing: say how far an attacker may go, or give a threat")
        return known(norm)(eps=eps)
    if eps is not None or norm != DEFAULT:
        raise CarsoError("a threat has its norm and its eps: give none beside")
    refuse_without(threat, "norm")
    if THREATS.get(threat.norm, type(threat)) is not type(threat):
        raise CarsoError(
            f"norm {threat.norm!r} is carso's own: give a threat of yours another name, so that "
            "no record of it passes for one of ours"
        )
    refuse_without(threat, "eps", "project", "distance")
    return threat


def threat_asked(own: Threat, norm: str, eps: float | None) -> Threat:
    """The threat of a scenario, or what is asked for instead."""
    if norm and norm != own.norm:
        if eps is None:
            raise CarsoError(f"--norm {norm} needs an --eps: {own.eps:g} is meant in {own.norm}")
        return threat_of(norm=norm, eps=eps)
    return own if eps is None else own.with_eps(eps)


def as_table(threat: Threat) -> dict[str, Any]:
    """[threat] of a scenario. The default norm is not said, so that what was made before there
    was a choice is still the same."""
    norm = {} if threat.norm == DEFAULT else {"norm": threat.norm}
    return {**norm, "eps": threat.eps}
