"""The names of the attacks of each suite, apart from what they do: a name that there is not is
refused before torch is imported. A test holds them to the suites."""

from __future__ import annotations

from collections.abc import Iterable

from carso.errors import CarsoError

SINGLE_NAMES = ("transfer", "randaa", "randaa-released", "pgd-eot", "square", "autoattack")
"""What every suite takes."""
PAST_WRAPPERS = ("margin@insidex3", "refine@inside-weakest")
SUITE_NAMES: dict[str, tuple[str, ...]] = {
    "quick": ("margin@mean-logits", "apgd-ce@mean-logits", "apgd-t@mean-logits"),
    "paper": ("transfer", "randaa-released", "randaa", "pgd-eot"),
    "adaptive": (
        "margin@mean-logits",
        "apgd-ce@mean-logits",
        "apgd-ce@mean-logits-fixed",
        "apgd-dlr@mean-logits",
        "margin@classifier",
        "apgd-t@mean-logits",
        "margin@mean-logitsx3",
        "apgd-t@logsumexp",
        "apgd-t@score",
        "apgd-ce@logsumexp",
        "apgd-dlr@logsumexp",
        "apgd-ce@score",
        "apgd-dlr@score",
        "fab-t@fixed",
        "square",
        "apgd-t@mean-logits-fixed-weakest",
        "refine@mean-logits-weakest",
        "square-weakest",
        *PAST_WRAPPERS,
    ),
    "full": (
        "transfer",
        "margin@mean-logits",
        "apgd-ce@mean-logits",
        "apgd-dlr@mean-logits",
        "apgd-ce@mean-logits-fixed",
        "apgd-t@mean-logits",
        "apgd-ce@logsumexp",
        "apgd-dlr@logsumexp",
        "apgd-ce@score",
        "apgd-dlr@score",
        "apgd-t@logsumexp",
        "apgd-t@score",
        "fab-t@fixed",
        "margin@mean-logitsx5",
        "square",
        "pgd-eot",
        "randaa",
        "refine@mean-logits",
        *PAST_WRAPPERS,
    ),
    "standard": ("autoattack",),
}


def refuse_attack(suite: str, wanted: str, known: Iterable[str]) -> None:
    """One line for an attack that is not among the `known` ones of a suite."""
    every = dict.fromkeys([*SINGLE_NAMES, *known])
    if wanted not in every:
        more = ", and more with --suite adaptive or full" if suite == "quick" else ""
        raise CarsoError(
            f"suite {suite} has no attack {wanted!r}; there are {', '.join(every)}{more}"
        )
