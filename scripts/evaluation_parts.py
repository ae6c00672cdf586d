"""The generated parts about evaluations of the shipped defences."""

from __future__ import annotations

import math
from typing import Any

from records import RESULTS, record, table

EVALUATIONS = (
    "fashion-bare-adaptive",
    "fashion-randaa-released",
    "fashion-adaptive",
)


def demo() -> str:
    """The demo's table, as the command prints it."""
    from carso.demo import RECORDS
    from carso.demo import table as lines_of
    from carso.report.table_formats import as_text

    lines = as_text(lines_of([record(RESULTS / "demo" / f"{name}.json") for name in RECORDS]))
    return "\n".join(["```", *lines, "```"])


def demo_beside() -> str:
    """What the adaptive suite leaves of the images of the demo."""
    shown = {
        "classifier": ("fashion-bare-adaptive", "the robust classifier"),
        "hardened": ("fashion-hardened-adaptive", "the hardened defence around it"),
        "adaptive": ("fashion-adaptive", "the paper's"),
        "retrofit": ("fashion-retrofit-unet-adaptive", "the retrofit"),
    }
    words = []
    for short, (name, what) in shown.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        one, long = record(RESULTS / "demo" / f"{short}.json"), record(path)
        count = one["data"]["count"]
        assert one["images"]["label"] == long["images"]["label"][:count]
        right = sum(long["images"]["worst_right"][:count]) / count / long["suite"]["draws"]
        words.append(f"{right:.3f} to {what}")
    return (
        f"Of the same {count} images the adaptive suite leaves {', '.join(words[:-1])}, and "
        f"{words[-1]}: the short attacks leave some of them too much."
    )


def recipe() -> str:
    """What is shorter than in the paper's own scenarios."""
    from carso.scenario.parser import read

    ours, theirs = (read(name).purifier for name in ("fashion", "cifar10"))
    kept = "kept" if ours.attacks.bank != "off" else "made anew"
    return (
        f"Its training has {ours.training.epochs} epochs, on attacks of {ours.attacks.steps} "
        f"steps that are {kept}; the paper's has {theirs.training.epochs}, on attacks of "
        f"{theirs.attacks.steps} steps made anew."
    )


def paper_hint() -> str:
    """What the paper's own table of aggregations says."""
    from carso.reproduction import published

    row = {"dataset": "cifar10"}

    def said(key: str) -> str:
        return f"{published.value('aggregation', row, key):.4f}"

    return (
        "The paper's own tables point there: on CIFAR-10, with the mean of the logits in place of "
        f"the double exponential, clean accuracy is {said('mean_logits_clean')} instead of "
        f"{said('carso_clean')}, and robust accuracy {said('mean_logits_randaa')} instead of "
        f"{said('carso_randaa')}. In size ours differs: it is masked more completely, and "
        "weakened less ([below](#the-papers-tables-measured-here))."
    )


def evaluations() -> str:
    """The records of the shipped defence, one line each."""
    from carso.report.record_tables import summary
    from carso.report.table_formats import as_markdown

    found = [record(RESULTS / f"{name}.json") for name in EVALUATIONS]
    return as_markdown(summary(found))


def verdicts() -> str:
    """What the records say of themselves."""
    found = {name: record(RESULTS / f"{name}.json") for name in EVALUATIONS}
    return "\n".join(f"- `{name}.json`: {one['verdict']}" for name, one in found.items())


def adaptive() -> str:
    """Attack by attack."""
    from carso.report.record_tables import attacks, diagnostics
    from carso.report.table_formats import as_markdown

    found = record(RESULTS / "fashion-adaptive.json")
    command, seed = found["provenance"]["command"], found["seed"]
    seconds, threads = found["provenance"]["seconds"], found["provenance"]["hardware"]["threads"]
    return "\n\n".join(
        [
            f"`{command}`, seed {seed}, {math.ceil(seconds / 60)} minutes with {threads} thread"
            f"{'s' if threads > 1 else ''}.",
            as_markdown(attacks(found)),
            as_markdown(diagnostics(found)),
        ]
    )


def has_last_pass(found: dict[str, Any]) -> bool:
    """Whether a record is of the adaptive suite with its last passes on the weakest images."""
    return any(attack["name"].startswith("refine@") for attack in found["attacks"])


def older() -> str:
    """Which records of defences under the adaptive suite lack its newest attack."""
    names, unconfirmed, short = [], [], []
    for path in sorted(RESULTS.glob("*adaptive*.json")):
        found = record(path)
        attacks = {attack["name"] for attack in found["attacks"]}
        if not has_last_pass(found):
            short.append(f"`{path.stem}`")
        if found["subject"]["kind"] == "defence" and "margin@classifier" not in attacks:
            names.append(f"`{path.stem}`")
            if found["provenance"]["revision"][:7] in UNCONFIRMED:
                unconfirmed.append(names[-1])
    if not names and not short:
        return "All records of defences under the adaptive suite are of the suite as it is now."
    return (
        f"Not all records are of the suite as it is now. The attack `margin@classifier` is not in "
        f"{', '.join(names)}. Of these, {', '.join(unconfirmed) or 'none'} took an image for "
        "broken after five wrong draws, where now fifteen more must agree, which leaves the worst "
        "case a little too good in the mean of the draws; what is right on all draws is hardly "
        "touched by that. The last passes on the weakest images are not in "
        f"{', '.join(short) or 'none'}."
    )


UNCONFIRMED = ("84108d4", "8afb1ec", "d31a2aa", "bd685fb")
"""Revisions of records that were made before fresh draws had to confirm that an image is broken."""


def clean_classifier() -> str:
    """The paper's purifier around a classifier without robustness of its own."""
    published, adaptive = (
        record(RESULTS / f"fashion-clean-{name}.json")
        for name in ("randaa-released", "adaptive-few")
    )
    says = "object" if published["unreliable"] else "do not object"
    return (
        "Around a classifier trained on clean images the published protocol leaves "
        f"{share_right(published)}, and the diagnostics {says}; the adaptive suite leaves "
        f"{share_right(adaptive)} ([ablation](#ablation))."
    )


def share_right(found: dict[str, Any]) -> str:
    """What is right under attack, of what is right without."""
    accuracy = found["accuracy"]
    return (
        f"{accuracy['worst']['value']:.3f} of {accuracy['clean']['value']:.3f} on "
        f"{found['data']['count']} images"
    )


def l2_agreement() -> str:
    """The classifier alone in L2, by this package and, where that was run, by the library."""
    found = record(RESULTS / "fashion-bare-l2-standard.json")
    words = (
        f"In L2, within {found['threat']['eps']:g}, AutoAttack standard leaves the classifier of "
        f"`fashion` {share_right(found)} (`{found['provenance']['command']}`)."
    )
    called = RESULTS / "agreement" / "fashion-bare-l2-standard.json"
    if not called.exists():
        return words
    direct = record(called)
    assert direct["recorded"] == found["images"]["worst_right"]
    count, differ = len(direct["direct"]), len(direct["differ"])
    same = "the same images right" if not differ else f"{differ} images otherwise"
    return (
        f"{words} `pyautoattack`, called directly (`scripts/call_pyautoattack.py`), leaves it "
        f"{sum(direct['direct']) / count:.3f}, and finds {same}."
    )


def last_pass() -> str:
    """What each last pass leaves of the weakest validation images."""
    found = record(RESULTS / "last_pass.json")
    many = len(found["before"])
    rows = [
        f"| {name} | {one['seed']} | {one['gradients']:.0f} | {one['broken']} | "
        f"{sum(max(0.0, lead) for lead in one['leads']) / many:.4f} |"
        for name, each in found["passes"].items()
        for one in each
    ]
    header = f"| last pass | seed | gradients per image | broken of {many} | mean lead left |"
    return f"{table(header, rows)}\n\nBefore it the mean lead is {sum(found['before']) / many:.4f}."


EVALUATION_PARTS = {
    "l2-agreement": l2_agreement,
    "clean-classifier": clean_classifier,
    "demo": demo,
    "demo-beside": demo_beside,
    "recipe": recipe,
    "paper-hint": paper_hint,
    "evaluations": evaluations,
    "verdicts": verdicts,
    "adaptive": adaptive,
    "older-records": older,
    "last-pass": last_pass,
}
