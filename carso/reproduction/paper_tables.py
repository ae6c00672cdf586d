"""The paper's tables, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from carso.reproduction.plan import Bench
from carso.reproduction.published import PaperColumn
from carso.reproduction.sheet import ADAPTIVE, Reproduced, Sheet
from carso.reproduction.workshop import MeasuredDefence, Workshop


def results(shop: Workshop) -> Reproduced:
    """The classifier alone, the defence under published attacks, and the worst case of both; the
    paper's columns of others' results are in `literature`."""
    sheet = Sheet(
        shop,
        "results",
        without=("best_training_aa", "best_purification_aa", "best_purification_pgd_eot"),
        extra=(PaperColumn("alone", "Classifier alone, adaptive", "accuracy"), ADAPTIVE),
    )
    for bench, run in defences(shop, "results"):
        alone, defence = MeasuredDefence(run=bench.defence, bare=True), MeasuredDefence(run=run)
        sheet.row(
            who(shop, run),
            scenario=bench.name,
            dataset=shop.scenario(run).data.set,
            classifier_clean=sheet.clean(alone, "standard"),
            carso_clean=sheet.clean(defence, "adaptive"),
            classifier_aa=sheet.worst(alone, "standard"),
            carso_randaa=sheet.worst(defence, "randaa-released"),
            carso_pgd_eot=sheet.worst(defence, "pgd-eot"),
            alone=sheet.worst(alone, "adaptive"),
            adaptive=sheet.worst(defence, "adaptive"),
        )
    return sheet.finished()


NO_BANK = (
    "Over: the making of the attacked images, before the first epoch, was not timed for this run."
)


def times(shop: Workshop) -> Reproduced:
    """Minutes to train."""
    stages = ("classifier", "hardening")
    extra = tuple(PaperColumn(stage, f"Training: {stage}", "minutes") for stage in stages)
    sheet = Sheet(shop, "times", extra=(*extra, PaperColumn("with", "with", "text")))
    for bench, run in defences(shop, "times"):

        def minutes(stage: str, run: str = run) -> Callable[[], str]:
            def cell() -> str:
                found = shop.minutes(run).get(stage)
                if found is None:
                    return ""
                if not found["whole"]:
                    sheet.note(NO_BANK)
                return ("" if found["whole"] else "over ") + f"{found['minutes']:.0f}"

            return cell

        def hardware(run: str = run) -> str:
            found = next(iter(shop.minutes(run).values()))["hardware"]
            gpus = ", ".join(found["gpus"])
            number = found.get("processes", 1)
            words = gpus or f"CPU, {found['threads']} thread{'s' if found['threads'] > 1 else ''}"
            return words if number == 1 else f"{number} processes, each: {words}"

        sheet.row(
            who(shop, run),
            scenario=bench.name,
            training=minutes("purifier"),
            classifier=minutes("classifier"),
            hardening=minutes("hardening"),
            **{"with": hardware},
        )
    sheet.note(
        "In minutes, from the record of each training, most of them beside other work, so no "
        "benchmark; the paper's on 8, 4 and 8 A100 GPUs."
    )
    return sheet.finished()


def high_eps(shop: Workshop) -> Reproduced:
    """With nearly any perturbation allowed, nothing may hold."""
    found = PaperColumn("found", "AutoAttack rand, measured", "accuracy")
    sheet = Sheet(shop, "high-eps", extra=(found, ADAPTIVE))
    eps = shop.scale.measurements["high-eps"].eps
    for bench, run in defences(shop, "high-eps"):
        sheet.row(
            who(shop, run),
            scenario=bench.name,
            eps=f"{eps:g}",
            found=sheet.worst(MeasuredDefence(run=run), "high-eps"),
            adaptive=sheet.worst(MeasuredDefence(run=run), "high-eps-adaptive"),
        )
    return sheet.finished()


def aggregation(shop: Workshop) -> Reproduced:
    """Other aggregations of the same candidates."""
    means = ("mean-logits", "mean-probabilities")
    extra = tuple(
        PaperColumn(f"{key}_adaptive", f"{name}, adaptive", "accuracy")
        for key, name in (
            ("mean_logits", "Mean logits"),
            ("mean_probabilities", "Mean probabilities"),
            ("carso", "CARSO"),
        )
    )
    sheet = Sheet(shop, "aggregation", extra=extra)
    for bench in benches(shop, "aggregation"):
        run = bench.defence  # an anchor, as hardened defences have it, is an aggregation of its own
        cells: dict[str, str | Callable[[], str]] = {}
        for name in means:
            key, subject = name.replace("-", "_"), MeasuredDefence(run=run, aggregation=name)
            cells[f"{key}_clean"] = sheet.clean(subject, "adaptive-few")
            cells[f"{key}_randaa"] = sheet.worst(subject, "randaa")
            cells[f"{key}_adaptive"] = sheet.worst(subject, "adaptive-few")
        subject = MeasuredDefence(run=run)
        sheet.row(
            who(shop, run),
            scenario=bench.name,
            dataset=shop.scenario(run).data.set,
            carso_clean=sheet.clean(subject, "adaptive-few"),
            carso_randaa=sheet.worst(subject, "randaa-released"),
            carso_adaptive=sheet.worst(subject, "adaptive-few"),
            **cells,
        )
    sheet.note("randAA is on each aggregation's output; of CARSO, as the released code has it.")
    return sheet.finished()


def majority_vote(shop: Workshop) -> Reproduced:
    """A vote has no gradient, so an attack on it shows nothing."""
    sheet = Sheet(shop, "majority-vote")
    for bench in benches(shop, "majority-vote"):
        subject = MeasuredDefence(run=bench.defence, aggregation="majority-vote")
        sheet.row(
            who(shop, bench.defence),
            scenario=bench.name,
            dataset=shop.scenario(bench.defence).data.set,
            majority_vote_clean=sheet.clean(subject, "adaptive-few"),
            majority_vote_randaa=sheet.worst(subject, "randaa"),
            adaptive=sheet.worst(subject, "adaptive-few"),
        )
    return sheet.finished()


def ablation(shop: Workshop) -> Reproduced:
    """The classifier that is read, and the one that answers, trained on clean images."""
    sheet = Sheet(shop, "ablation")
    for bench in shop.scale.benches:
        if not bench.clean:
            continue
        rows = [
            ("clean/clean", MeasuredDefence(run=bench.clean)),
            ("AT/clean", MeasuredDefence(run=bench.defence, final=bench.clean)),
            ("clean/AT", MeasuredDefence(run=bench.clean, final=bench.defence)),
            ("none", MeasuredDefence(run=bench.defence)),
            ("clean/clean", MeasuredDefence(run=bench.retrofit)),
            ("none", MeasuredDefence(run=bench.hardened)),
        ]
        for name, subject in rows:
            if not subject.run:
                continue
            sheet.row(
                who(shop, subject.run),
                dataset=shop.scenario(bench.defence).data.set,
                ablation=name,
                clean=sheet.clean(subject, "adaptive-few"),
                randaa=sheet.worst(subject, "randaa-released"),
                adaptive=sheet.worst(subject, "adaptive-few"),
            )
    sheet.note(
        "Hardened rows are of purifiers of their own, trained and used in other ways: what they "
        "share with the row of the same name above is the classifiers."
    )
    return sheet.finished()


def classifiers(shop: Workshop) -> Reproduced:
    """Around weaker robust classifiers."""
    sheet = Sheet(shop, "classifiers", without=("source",))
    for bench in shop.scale.benches:
        for run in bench.weaker:
            taken = shop.scale.runs[run].classifier or run  # whose classifier it is
            alone, defence = MeasuredDefence(run=taken, bare=True), MeasuredDefence(run=run)
            sheet.row(
                who(shop, run),
                dataset=shop.scenario(run).data.set,
                authors=taken,
                classifier_clean=sheet.clean(alone, "standard-few"),
                classifier_aa=sheet.worst(alone, "standard-few"),
                carso_clean=sheet.clean(defence, "adaptive-few"),
                carso_randaa=sheet.worst(defence, "randaa-released"),
                adaptive=sheet.worst(defence, "adaptive-few"),
            )
    return sheet.finished()


def literature(shop: Workshop) -> Reproduced:
    """Among other defences; ours in the worst case of the adaptive suite."""
    attack = PaperColumn("attack", "Robust under", "text")
    sheet = Sheet(shop, "literature", without=("source",), extra=(attack,))
    for bench, run in defences(shop, "literature"):
        settings = shop.scenario(run)
        network = settings.classifier
        alone, defence = MeasuredDefence(run=run, bare=True), MeasuredDefence(run=run)
        about = {
            "dataset": settings.data.set,
            "architecture": f"WideResNet-{network.depth}-{network.width}",
        }
        if run == bench.defence:
            sheet.row(
                "measured here",
                authors=f"{run}, classifier alone",
                clean=sheet.clean(alone, "standard"),
                robust=sheet.worst(alone, "standard"),
                defence="AT",
                attack="AutoAttack standard",
                **about,
            )
        sheet.row(
            "measured here",
            authors=f"{run}, CARSO" + (", hardened" if run == bench.hardened else ""),
            clean=sheet.clean(defence, "adaptive"),
            robust=sheet.worst(defence, "adaptive"),
            defence="AT+P",
            attack="adaptive",
            **about,
        )
    sheet.note("The paper's figures are the lowest that it knew of, of its own defence by randAA.")
    return sheet.finished()


def benches(shop: Workshop, table: str) -> list[Bench]:
    """Those that have a row in a table."""
    return [bench for bench in shop.scale.benches if not bench.tables or table in bench.tables]


def defences(shop: Workshop, table: str) -> list[tuple[Bench, str]]:
    """Of every bench of a table the paper's defence and, where there is one, the hardened."""
    found = benches(shop, table)
    return [(bench, run) for bench in found for run in (bench.defence, bench.hardened) if run]


def who(shop: Workshop, run: str) -> str:
    """The first cell of a row of ours."""
    return "measured here" + (", hardened" if shop.scenario(run).hardening else "")


def runs_needed(shop: Workshop, names: Iterable[str]) -> list[str]:
    """The runs that these tables rest on and that are not there yet, in the plan's order."""
    looking = replace(shop, make=False, asked=set())
    for name in names:
        TABLES[name](looking)
    return [name for name in shop.scale.runs if name in looking.asked]


TABLES: dict[str, Callable[[Workshop], Reproduced]] = {
    "results": results,
    "times": times,
    "high-eps": high_eps,
    "aggregation": aggregation,
    "majority-vote": majority_vote,
    "ablation": ablation,
    "classifiers": classifiers,
    "literature": literature,
}
