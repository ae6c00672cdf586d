"""The paper's tables, row by row: what each cell of ours rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from carso.reproduction.plan import STAGES, Bench, MeasuredDefence, Scale
from carso.reproduction.planned_table import (
    ADAPTIVE,
    MeasuredCell,
    PlannedRow,
    PlannedTable,
    TimeCell,
    clean,
    planned,
    worst,
)
from carso.reproduction.published import PaperColumn


def results(scale: Scale) -> PlannedTable:
    """The classifier alone, the defence under published attacks, and the worst case of both; the
    paper's columns of others' results are in `literature`."""
    rows = []
    for bench, run in defences(scale, "results"):
        alone, defence = MeasuredDefence(run=bench.defence, bare=True), MeasuredDefence(run=run)
        measured = {
            "classifier_clean": clean(alone, "standard"),
            "carso_clean": clean(defence, "adaptive"),
            "classifier_aa": worst(alone, "standard"),
            "carso_randaa": worst(defence, "randaa-released"),
            "carso_pgd_eot": worst(defence, "pgd-eot"),
            "alone": worst(alone, "adaptive"),
            "adaptive": worst(defence, "adaptive"),
        }
        rows.append(row(scale, run, measured, scenario=bench.name, dataset=data_of(scale, run)))
    return planned(
        "results",
        rows,
        without=("best_training_aa", "best_purification_aa", "best_purification_pgd_eot"),
        extra=(PaperColumn("alone", "Classifier alone, adaptive", "accuracy"), ADAPTIVE),
    )


def times(scale: Scale) -> PlannedTable:
    """Minutes to train."""
    columns = {"classifier": "classifier", "purifier": "training", "hardening": "hardening"}
    rows = [
        PlannedRow(
            who=who(scale, run),
            texts={"scenario": bench.name},
            timed={
                **{columns[stage]: TimeCell(run=run, stage=stage) for stage in STAGES},
                "with": TimeCell(run=run),
            },
        )
        for bench, run in defences(scale, "times")
    ]
    extra = [
        PaperColumn(stage, f"Training: {stage}", "minutes") for stage in ("classifier", "hardening")
    ]
    return planned(
        "times",
        rows,
        "In minutes, from the record of each training, most of them beside other work, so no "
        "benchmark; the paper's on 8, 4 and 8 A100 GPUs.",
        extra=(*extra, PaperColumn("with", "with", "text")),
    )


def high_eps(scale: Scale) -> PlannedTable:
    """With nearly any perturbation allowed, nothing may hold."""
    rows = []
    for bench, run in defences(scale, "high-eps"):
        measured = {
            "found": worst(MeasuredDefence(run=run), "high-eps"),
            "adaptive": worst(MeasuredDefence(run=run), "high-eps-adaptive"),
        }
        eps = f"{scale.measurements['high-eps'].eps:g}"
        rows.append(row(scale, run, measured, scenario=bench.name, eps=eps))
    found = PaperColumn("found", "AutoAttack rand, measured", "accuracy")
    return planned("high-eps", rows, extra=(found, ADAPTIVE))


def aggregation(scale: Scale) -> PlannedTable:
    """Other aggregations of the same candidates."""
    rows = []
    for bench in benches(scale, "aggregation"):
        run = bench.defence  # an anchor, as hardened defences have it, is an aggregation of its own
        own = MeasuredDefence(run=run)
        measured = {
            "carso_clean": clean(own, "adaptive-few"),
            "carso_randaa": worst(own, "randaa-released"),
            "carso_adaptive": worst(own, "adaptive-few"),
        }
        for name in ("mean-logits", "mean-probabilities"):
            key, defence = name.replace("-", "_"), MeasuredDefence(run=run, aggregation=name)
            measured[f"{key}_clean"] = clean(defence, "adaptive-few")
            measured[f"{key}_randaa"] = worst(defence, "randaa")
            measured[f"{key}_adaptive"] = worst(defence, "adaptive-few")
        rows.append(row(scale, run, measured, scenario=bench.name, dataset=data_of(scale, run)))
    headings = {
        "mean_logits": "Mean logits",
        "mean_probabilities": "Mean probabilities",
        "carso": "CARSO",
    }
    return planned(
        "aggregation",
        rows,
        "randAA is on each aggregation's output; of CARSO, as the released code has it.",
        extra=tuple(
            PaperColumn(f"{key}_adaptive", f"{heading}, adaptive", "accuracy")
            for key, heading in headings.items()
        ),
    )


def majority_vote(scale: Scale) -> PlannedTable:
    """A vote has no gradient, so an attack on it shows nothing."""
    rows = []
    for bench in benches(scale, "majority-vote"):
        run = bench.defence
        defence = MeasuredDefence(run=run, aggregation="majority-vote")
        measured = {
            "majority_vote_clean": clean(defence, "adaptive-few"),
            "majority_vote_randaa": worst(defence, "randaa"),
            "adaptive": worst(defence, "adaptive-few"),
        }
        rows.append(row(scale, run, measured, scenario=bench.name, dataset=data_of(scale, run)))
    return planned("majority-vote", rows)


def ablation(scale: Scale) -> PlannedTable:
    """The classifier that is read, and the one that answers, trained on clean images."""
    rows = []
    for bench in scale.benches:
        if not bench.clean:
            continue
        ablated = [
            ("clean/clean", MeasuredDefence(run=bench.clean)),
            ("AT/clean", MeasuredDefence(run=bench.defence, final=bench.clean)),
            ("clean/AT", MeasuredDefence(run=bench.clean, final=bench.defence)),
            ("none", MeasuredDefence(run=bench.defence)),
            ("clean/clean", MeasuredDefence(run=bench.retrofit)),
            ("none", MeasuredDefence(run=bench.hardened)),
        ]
        data = data_of(scale, bench.defence)
        for name, defence in ablated:
            if not defence.run:
                continue
            measured = {
                "clean": clean(defence, "adaptive-few"),
                "randaa": worst(defence, "randaa-released"),
                "adaptive": worst(defence, "adaptive-few"),
            }
            rows.append(row(scale, defence.run, measured, dataset=data, ablation=name))
    return planned(
        "ablation",
        rows,
        "Hardened rows are of purifiers of their own, trained and used in other ways: what they "
        "share with the row of the same name above is the classifiers.",
    )


def classifiers(scale: Scale) -> PlannedTable:
    """Around weaker robust classifiers."""
    rows = []
    for run in (run for bench in scale.benches for run in bench.weaker):
        taken = scale.runs[run].classifier or run  # whose classifier it is
        alone, defence = MeasuredDefence(run=taken, bare=True), MeasuredDefence(run=run)
        measured = {
            "classifier_clean": clean(alone, "standard-few"),
            "classifier_aa": worst(alone, "standard-few"),
            "carso_clean": clean(defence, "adaptive-few"),
            "carso_randaa": worst(defence, "randaa-released"),
            "adaptive": worst(defence, "adaptive-few"),
        }
        rows.append(row(scale, run, measured, dataset=data_of(scale, run), authors=taken))
    return planned("classifiers", rows, without=("source",))


def literature(scale: Scale) -> PlannedTable:
    """Among other defences; ours in the worst case of the adaptive suite."""
    rows = []
    for bench, run in defences(scale, "literature"):
        network = scale.scenario(run).classifier
        about = {
            "dataset": data_of(scale, run),
            "architecture": f"WideResNet-{network.depth}-{network.width}",
        }
        hardened = ", hardened" if run == bench.hardened else ""
        told = [
            (f"{run}, classifier alone", True, "standard", "AT", "AutoAttack standard"),
            (f"{run}, CARSO{hardened}", False, "adaptive", "AT+P", "adaptive"),
        ]
        for authors, bare, measurement, kind, attack in told[0 if run == bench.defence else 1 :]:
            defence = MeasuredDefence(run=run, bare=bare)
            rows.append(
                PlannedRow(
                    who="measured here",
                    texts={**about, "authors": authors, "defence": kind, "attack": attack},
                    measured={
                        "clean": clean(defence, measurement),
                        "robust": worst(defence, measurement),
                    },
                )
            )
    return planned(
        "literature",
        rows,
        "The paper's figures are the lowest that it knew of, of its own defence by randAA.",
        without=("source",),
        extra=(PaperColumn("attack", "Robust under", "text"),),
    )


def benches(scale: Scale, table: str) -> list[Bench]:
    """Those that have a row in a table."""
    return [bench for bench in scale.benches if not bench.tables or table in bench.tables]


def defences(scale: Scale, table: str) -> list[tuple[Bench, str]]:
    """Of every bench of a table the paper's defence and, where there is one, the hardened."""
    found = benches(scale, table)
    return [(bench, run) for bench in found for run in (bench.defence, bench.hardened) if run]


def row(scale: Scale, run: str, measured: Mapping[str, MeasuredCell], **texts: str) -> PlannedRow:
    """A row of measurements of a run."""
    return PlannedRow(who=who(scale, run), texts=texts, measured=measured)


def who(scale: Scale, run: str) -> str:
    """The first cell of a row of ours."""
    return "measured here" + (", hardened" if scale.scenario(run).hardening else "")


def data_of(scale: Scale, run: str) -> str:
    """The data set that a run is trained on."""
    return scale.scenario(run).data.set


TABLES: dict[str, Callable[[Scale], PlannedTable]] = {
    "results": results,
    "times": times,
    "high-eps": high_eps,
    "aggregation": aggregation,
    "majority-vote": majority_vote,
    "ablation": ablation,
    "classifiers": classifiers,
    "literature": literature,
}
