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
        "accuracy alone",
        "accuracy after it",
        "NaN or inf. gradients",
        "zero gradients",
        "seconds",
    )
    clean = record["accuracy"]["clean"]
    rows: list[Row] = [("none", "", "", interval(clean), interval(clean), "", "", "")]
    for attack in record["attacks"]:
        gradients, alone = attack["gradients"], attack["accuracy_alone"]
        followed = attack["passes"]["backward"] > 0
        rows.append(
            (
                attack["name"] + (" (!)" if attack["unreliable"] else ""),
                str(attack["attacked"]),
                str(attack["broken"]),
                interval(alone) if alone else "",
                interval(attack["accuracy_after"]),
                percent(gradients["nan"] + gradients["infinite"]) if followed else "no gradients",
                percent(gradients["zero"]) if followed else "",
                f"{attack['seconds']:.0f}",
            )
        )
    worst, every = record["accuracy"]["worst"], record["accuracy"]["worst_on_all_draws"]
    judged = "worst case, fresh draws" if record["suite"]["draws"] > 1 else "worst case"
    rows.append((judged, "", "", "", interval(worst), "", "", ""))
    if record["suite"]["draws"] > 1:
        rows.append(
            (
                f"right on all {record['suite']['draws']} draws",
                "",
                "",
                "",
                interval(every),
                "",
                "",
                "",
            )
        )
    return header, rows


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
