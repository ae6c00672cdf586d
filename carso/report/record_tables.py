"""Records as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from carso.evaluation.statistics import Proportion, paired_difference, percent
from carso.report.table_formats import Row, Table
from carso.threats.norms import DEFAULT

Record = dict[str, Any]


def summary(records: Sequence[Record]) -> Table:
    """A line per record. Those on the same images are compared with the first, pair by pair."""
    header = ("evaluated", "suite", "images", "eps", "clean", "worst case", "on all draws")
    compared = len(records) > 1
    rows: list[Row] = []
    for record in records:
        accuracy = record["accuracy"]
        row: Row = (
            title(record),
            record["suite"]["name"],
            str(record["data"]["count"]),
            radius(record),
            f"{accuracy['clean']['value']:.3f}",
            interval(accuracy["worst"]),
            interval(accuracy["worst_on_all_draws"]),
        )
        row += (difference(record, records[0]),) if compared else ()
        rows.append((*row, "UNRELIABLE" if record["unreliable"] else "no objection"))
    against = ("worst case minus the first line's",) if compared else ()
    return (*header, *against, "diagnostics"), rows


def difference(record: Record, other: Record) -> str:
    """The paired difference of the worst case, where both records are of the same images."""
    if record is other:
        return ""
    if record["data"]["sha256"] != other["data"]["sha256"]:
        return "other images"
    if norm(record) != norm(other):
        return "other norm"
    if record["threat"]["eps"] != other["threat"]["eps"]:
        return "other eps"
    return signed(paired_difference(outcomes(record), outcomes(other)))


def norm(record: Record) -> str:
    """The norm of the threat; the earliest records have no word on it."""
    return str(record["threat"].get("norm", DEFAULT))


def radius(record: Record) -> str:
    """How far the attacker may go, and in which norm."""
    return f"{record['threat']['eps']:.4g} ({norm(record)})"


def outcomes(record: Record, key: str = "worst_right") -> torch.Tensor:
    """The share of right draws of each image's worst example, or without attack."""
    right = torch.tensor(record["images"][key], dtype=torch.float64)
    return right / int(record["suite"]["draws"])


def attacks(record: Record) -> Table:
    """A line per attack."""
    header = (
        "attack",
        "attacked",
        "broken",
        "broken per 1,000 gradients",
        "accuracy alone",
        "accuracy after it",
        "NaN or inf. gradients",
        "zero gradients",
        "seconds",
    )
    clean = interval(record["accuracy"]["clean"])
    rows: list[Row] = [("none", "", "", "", clean, clean, "", "", "")]
    for attack in record["attacks"]:
        gradients, alone = attack["gradients"], attack["accuracy_alone"]
        followed = attack["passes"]["backward"] > 0
        rows.append(
            (
                attack["name"] + (" (!)" if attack["unreliable"] else ""),
                str(attack["attacked"]),
                str(attack["broken"]),
                yielded(attack),
                interval(alone) if alone else "",
                interval(attack["accuracy_after"]),
                percent(gradients["nan"] + gradients["infinite"]) if followed else "no gradients",
                percent(gradients["zero"]) if followed else "",
                f"{attack['seconds']:.0f}",
            )
        )
    for name, share in last_words(record):
        rows.append((name, "", "", "", "", interval(share), "", "", ""))
    return header, rows


def yielded(attack: Record) -> str:
    """How many images an attack broke for a thousand gradients of one image each."""
    spent = attack["passes"]["backward"]
    return f"{1000 * attack['broken'] / spent:.3f}" if spent else ""


def last_words(record: Record) -> list[tuple[str, dict[str, float]]]:
    """The verdicts on all attacks together, by name; an early record has fewer."""
    accuracy, draws = record["accuracy"], record["suite"]["draws"]
    if draws == 1:
        return [("worst case", accuracy["worst"])]
    found = [
        ("worst case, fresh draws", accuracy["worst"]),
        (f"right on all {draws} draws", accuracy["worst_on_all_draws"]),
    ]
    if "while_optimising" in accuracy:
        found.append(("right on every pass while optimising", accuracy["while_optimising"]))
    return found


SHOWN_TRIES = (1, 2, 3, 5, 10, 20)


def tries(record: Record) -> Table | None:
    """What is left against an attacker who may submit the worst example again; None where no
    record of it is."""
    found = record.get("tries")
    if not found:
        return None
    shown = [number for number in SHOWN_TRIES if number <= found["draws"]]
    values = tuple(interval(found["accuracy"][number - 1]) for number in shown)
    return ("tries", *map(str, shown)), [("accuracy", *values)]


def diagnostics(record: Record) -> Table:
    """A line per diagnosis."""
    rows: list[Row] = [(d["name"], MARKS[d["ok"]], d["verdict"]) for d in record["diagnostics"]]
    return ("diagnosis", "", "finding"), rows


MARKS = {True: "ok", False: "FAILS", None: "note"}


def title(record: Record) -> str:
    """What was evaluated, in few words."""
    subject = record["subject"]
    if record.get("title"):
        return str(record["title"])
    if subject["kind"] == "classifier":
        return f"{subject['name']}, classifier alone"
    other = f", answered by {subject['answered_by']}" if subject.get("answered_by") else ""
    return f"{subject['name']}{other}, {subject['aggregation']}, N = {subject['samples']}"


def interval(value: dict[str, float]) -> str:
    return str(Proportion(**value))


def signed(value: Proportion) -> str:
    return f"{value.value:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"
