"""The bars of the page as numbers and words; the template draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from carso.evaluation.statistics import Proportion
from carso.report.conclusion import groups
from carso.report.record_tables import difference, interval, radius, title, yielded

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """An accuracy with its interval, and what there is to say of it."""

    kind: str
    """clean, attack or worst."""
    name: str
    share: Proportion
    text: str
    basis: str = ""
    what: str = ""
    counts: str = ""
    notes: list[str] = field(default_factory=list)
    spoiled: bool = False
    """The figure means nothing, or is only an upper bound; the notes say why."""


def bar(kind: str, name: str, value: dict[str, float], **more: Any) -> Bar:
    return Bar(kind=kind, name=name, share=Proportion(**value), text=interval(value), **more)


def accuracies(record: Record) -> list[Bar]:
    """Without attack, attack by attack, and the worst case on fresh draws."""
    clean = bar("clean", "no attack", record["accuracy"]["clean"])
    attacked, draws = attack_bars(record), record["suite"]["draws"]
    count = len(record["attacks"])
    worst = worst_bar(
        record,
        "worst case",
        "worst",
        basis="on fresh draws" if draws > 1 else "",
        what="every image's worst example, judged once more"
        + (" on draws that no attack has seen" if draws > 1 else ""),
    )
    return [clean, *attacked[:count], worst, *attacked[count:]]


def attack_bars(record: Record) -> list[Bar]:
    """Attack by attack, and what is right on all draws: what a comparison does not show."""
    draws = record["suite"]["draws"]
    bars = [attack_bar(attack, number) for number, attack in enumerate(record["attacks"])]
    if draws > 1:
        words = "the worst examples; one wrong draw makes an image count as wrong"
        name = f"right on all {draws} draws"
        bars.append(worst_bar(record, name, "worst_on_all_draws", what=words))
    if draws > 1 and "while_optimising" in record["accuracy"]:
        words = "one wrong pass of any attack or verdict on the way makes an image count as wrong"
        bars.append(worst_bar(record, "judged while optimising", "while_optimising", what=words))
    return bars


def worst_bar(record: Record, name: str, key: str, **more: Any) -> Bar:
    upper = ["an upper bound only: see the diagnostics that fail"] if record["unreliable"] else []
    spoiled = bool(record["unreliable"])
    return bar("worst", name, record["accuracy"][key], notes=upper, spoiled=spoiled, **more)


def attack_bar(attack: dict[str, Any], number: int) -> Bar:
    alone = attack["accuracy_alone"]
    reasons = attack["reasons"] or ["no reason is recorded"]
    notes = [f"not to be trusted: {reason}" for reason in reasons] if attack["unreliable"] else []
    notes += [f"the attack library warned: {text}" for text in attack.get("library_warnings", [])]
    after = "after those above" if number else ""
    return bar(
        "attack",
        attack["name"],
        alone or attack["accuracy_after"],
        basis="on its own" if alone else after,
        what=attack["what"],
        counts=counts(attack),
        notes=notes,
        spoiled=bool(attack["unreliable"]),
    )


def counts(attack: dict[str, Any]) -> str:
    attacked, broken = attack["attacked"], attack["broken"]
    if not attacked:
        return "attacked no image: none was left standing"
    words = f"attacked {attacked} {'image' if attacked == 1 else 'images'}, broke {broken}"
    per = yielded(attack)
    return f"{words}, {per} per 1,000 gradients" if per else words


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRecord:
    """A line of the comparison."""

    number: int
    """Which of the records, from 1."""
    name: str
    suite: str
    images: int
    clean: Bar
    worst: Bar
    difference: str
    """From the first of its group, pair by pair; or why there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedGroup:
    """Records of one data set under one threat; no number of another group is put beside them."""

    heading: str
    lines: list[ComparedRecord]


def comparison(records: Sequence[Record]) -> list[ComparedGroup]:
    """Clean and worst-case accuracy of each record, apart by data set and threat."""
    return [
        ComparedGroup(
            heading=heading(records[group[0]]),
            lines=[compared(records[i], records[group[0]], i + 1) for i in group],
        )
        for group in groups(records)
    ]


def heading(record: Record) -> str:
    where = record["data"].get("set")
    return ", ".join([*([where] if where else []), f"eps = {radius(record)}"])


def compared(record: Record, first: Record, number: int) -> ComparedRecord:
    return ComparedRecord(
        number=number,
        name=title(record),
        suite=record["suite"]["name"],
        images=record["data"]["count"],
        clean=bar("clean", "no attack", record["accuracy"]["clean"]),
        worst=worst_bar(record, "worst case", "worst"),
        difference=difference(record, first),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """What became of some of the images."""

    kind: str
    words: str
    count: int
    share: float


def fates(record: Record) -> list[Fate]:
    """All images, sorted by what became of them."""
    draws, images = record["suite"]["draws"], record["images"]
    found = {"wrong": 0, "broken": 0, "some": 0, "right": 0}
    for before, after in zip(images["clean_right"], images["worst_right"], strict=True):
        if after == draws:
            found["right"] += 1
        elif after:
            found["some"] += 1
        else:
            found["broken" if before else "wrong"] += 1
    words = {
        "right": "right under every attack",
        "some": "right on some draws only",
        "broken": "broken by an attack",
        "wrong": "wrong without any attack",
    }
    if draws == 1:
        del words["some"]
    total = max(1, sum(found.values()))
    return [
        Fate(kind=kind, words=text, count=found[kind], share=found[kind] / total)
        for kind, text in words.items()
    ]
