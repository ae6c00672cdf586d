"""Records as one page that needs nothing else: no script, no network, pictures inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from carso.report import certificates, charts, plots, record_tables
from carso.report.certificates import certificate_conclusion, is_certificate
from carso.report.conclusion import Trust, conclusions, trust
from carso.report.record_facts import facts, settings

Record = dict[str, Any]

QUESTIONS = {
    "gradients": "Had the attacks gradients to follow?",
    "curve": "Does accuracy fall to nothing as the attacker gets more room?",
    "more effort": "Would a longer attack have broken more?",
    "noise": "Does the gradient beat random noise?",
    "black box": "Do attacks with gradients beat one without?",
    "masking": "Does its own output hide what its mean logits give away?",
    "slope": "Is the gradient the slope of the answers?",
    "jumps": "Do the answers change without jumps?",
    "neighbourhood": "Do gradients of the neighbourhood find no more?",
    "inside": "Does a classifier inside the model give away no more?",
    "memory": "Does it know more than these very images?",
    "same answers": "Does it answer the same whoever asks?",
    "diversity": "Are several samples worth more than one?",
    "precision": "Is the aggregation exact in float32?",
}
"""What each diagnosis asks."""

CHOSEN = {
    "most damaging": "The examples that fooled it by the widest margin.",
    "as they come": "The first other images in order, chosen by nothing else.",
}
"""Why a picture is in the gallery."""


REACH = {
    "Linf": "no pixel changes by more than eps = {} of its range",
    "L2": "the whole change of an image is no longer than eps = {}",
}
"""What a threat allows, in words, by its norm."""
OTHER_REACH = "the attacker may go as far as eps = {}"


PARTS = (
    ("accuracy", "Accuracy"),
    ("fates", "Images"),
    ("gradients", "Gradients"),
    ("diagnostics", "Diagnostics"),
    ("pictures", "Pictures"),
    ("rerun", "Run it again"),
)
"""The parts of a record that have a link: their ids, and what the link says."""


def page(records: Sequence[Record]) -> str:
    """The page, as HTML: of evaluations, of certificates, or of both."""
    evaluated = [record for record in records if not is_certificate(record)]
    certified = [record for record in records if is_certificate(record)]
    several = len(evaluated) > 1
    sections = [section(record, n, several=several) for n, record in enumerate(evaluated, 1)]
    said = conclusions(evaluated) if evaluated else []
    said += [certificate_conclusion(certified)] if certified else []
    found = environment().get_template("page.html").render(
        headline=said[0],
        more=said[1:],
        sections=sections,
        verdicts=verdicts(sections),
        comparison=charts.comparison(evaluated) if several else [],
        certificates=certificates.section(certified) if certified else None,
    )  # fmt: skip
    return found.strip() + "\n"


def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("carso", "report"),
        autoescape=True,  # names come from outside
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["css"] = css
    return found


def css(share: float) -> str:
    """A share of a width or height."""
    return f"{100 * min(1.0, max(0.0, share)):.6g}%"


def section(record: Record, number: int, *, several: bool) -> dict[str, Any]:
    """What the template shows of one record. Where several are compared, the comparison has its
    accuracy without attack and its worst case, and they are not told twice."""
    accuracy = record["accuracy"]
    return {
        "id": f"record-{number}",
        "title": record_tables.title(record),
        "suite": record["suite"]["name"],
        "who": "classifier" if record["subject"]["kind"] == "classifier" else "defence",
        "count": record["data"]["count"],
        "reach": REACH.get(record_tables.norm(record), OTHER_REACH).format(
            record_tables.radius(record)
        ),
        "stretch": stretch(record),
        "draws": record["suite"]["draws"],
        "independent": bool(record["suite"].get("independent")),
        "parts": PARTS,
        "trust": trust(record),
        "objections": objections(record),
        "clean": accuracy["clean"]["value"],
        "worst": accuracy["worst"]["value"],
        "bars": charts.attack_bars(record) if several else charts.accuracies(record),
        "fates": charts.fates(record),
        "curve": plots.curve(record),
        "tries": plots.tries(record),
        "histogram": plots.histogram(record),
        "strips": plots.strips(record),
        "diagnostics": [
            {
                **found,
                "mark": record_tables.MARKS[found["ok"]],
                "asks": QUESTIONS.get(found["name"], ""),
            }
            for found in record["diagnostics"]
        ],
        "gallery": gallery(record),
        "command": record.get("provenance", {}).get("command", ""),
        "facts": facts(record),
        "settings": settings(record),
        "scenario": json.dumps(record["scenario"], indent=2) if record.get("scenario") else "",
    }


def verdicts(sections: Sequence[dict[str, Any]]) -> list[tuple[Trust, list[dict[str, Any]]]]:
    """The records by whether their number can be trusted, those that cannot first."""
    found: dict[Trust, list[dict[str, Any]]] = {}
    for one in sorted(sections, key=lambda one: ("no", "few", "yes").index(one["trust"].kind)):
        found.setdefault(one["trust"], []).append(one)
    return list(found.items())


def objections(record: Record) -> dict[str, list[str]]:
    """The diagnoses that fail, by name; their findings are told below. And other reasons."""
    told = {found["verdict"] for found in record["diagnostics"]}
    return {
        "failing": [found["name"] for found in record["diagnostics"] if found["ok"] is False],
        "other": [reason for reason in record["reasons"] if reason not in told],
    }


def stretch(record: Record) -> str:
    """What black and white mean in the pictures of differences."""
    if record_tables.norm(record) == "Linf":
        return f"a change of eps = {record['threat']['eps']:.4g}"
    return "the largest change of a pixel"


def gallery(record: Record) -> list[dict[str, Any]]:
    """The pictures, grouped by why they are shown."""
    shown, sizes = record.get("gallery") or [], record["images"]["worst_size"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in shown:
        groups.setdefault(entry["why"], []).append(
            {
                **entry,
                "candidates": entry.get("candidates", []),
                "mean_candidate": entry["pictures"].get("mean_candidate"),
                "unchanged": sizes[entry["image"]] == 0,
            }
        )
    return [
        {"heading": why.capitalize(), "words": CHOSEN.get(why, ""), "entries": entries}
        for why, entries in groups.items()
    ]
