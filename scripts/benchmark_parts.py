"""The generated parts about speed and memory."""

from __future__ import annotations

from typing import Any

from records import RESULTS, record, table

from carso.report.table_formats import as_markdown

SMALL = "`cifar10-small`"


def benchmarks() -> str:
    found = record(RESULTS / "benchmarks.json")
    train, inference = found["train_step"], found["inference"]
    rows = [
        (
            f"{SMALL}, purifier epoch with the bank, over its floor (median of turns)",
            f"{train['with_bank_over_floor']:.3f}",
        ),
        (
            f"{SMALL}, a step with the paper's PGD-40 made anew, over one from a finished bank",
            f"{train['regenerating_over_with_bank']:.1f}",
        ),
        (f"{SMALL}, prediction, over the sum of its parts", f"{inference['time_over_parts']:.3f}"),
        *eot_rows(found["eot"]),
        *(
            (
                f"{SMALL}, peak memory of a {what} at N = 8, whole / in chunks of 32",
                f"{inference[f'{what}_whole_mib']:.0f} / "
                f"{inference[f'{what}_chunked_mib']:.0f} MiB",
            )
            for what in ("prediction", "gradient")
        ),
    ]
    return table("| | measured |", (f"| {a} | {b} |" for a, b in rows))


def eot_rows(found: Any) -> list[tuple[str, str]]:
    """A gradient over many draws of the noise, the shared way over the two others."""
    rows = []
    for size, words in (("one_candidate", "one candidate"), ("eight_candidates", "8 candidates")):
        part = found[size]
        name = f"`fashion`, gradient over {found['draws']} draws of {words}"
        rows += [
            (f"{name}, over separate passes", f"{part['shared_over_separate']:.2f}"),
            (f"{name}, over pyautoattack's loop", f"{part['shared_over_pyautoattack']:.2f}"),
            (
                f"{name}, peak memory: shared / separate / pyautoattack",
                " / ".join(f"{part[f'{way}_mib']:.0f}" for way in EOT_WAYS) + " MiB",
            ),
        ]
    return rows


EOT_WAYS = ("shared", "separate", "pyautoattack")


def hardening_step() -> str:
    """What a step of hardening takes."""
    found = record(RESULTS / "benchmarks.json")["hardening"]
    rows = [
        ("images per second", f"{found['images_per_second']:.0f}"),
        ("a step over its floor", f"{found['step_over_floor']:.3f}"),
        ("its attack, share of the step", f"{found['attack_over_step']:.2f}"),
        ("attack in bfloat16 over float32", f"{found['bfloat16_over_float32']:.1f}"),
    ]
    return as_markdown(((f"`{found['scenario']}`, batches of {found['batch']}", "measured"), rows))


def suite_times() -> str:
    """The adaptive suite as it is now, beside an earlier one."""
    found = record(RESULTS / "suite_times.json")
    rows = []
    for number, turn in enumerate(found["turns"], 1):
        earlier, now = turn["earlier"], turn["now"]
        rows.append(
            (
                f"turn {number}",
                f"{now['seconds'] / earlier['seconds']:.2f}",
                f"{earlier['worst']:.3f}",
                f"{now['worst']:.3f}",
            )
        )
    what = f"`{found['defence']}`, {found['images']} test images"
    return as_markdown(((what, "time over the earlier's", "earlier leaves", "leaves now"), rows))


def kinds() -> str:
    """Alternatives over the default."""
    found = record(RESULTS / "benchmarks.json")["kinds"]
    rows = [(name, f"{value:.2f}") for name, value in found["ratios"].items()]
    return as_markdown(((f"`{found['scenario']}`", "time over the default's"), rows))


def growth() -> str:
    """Time and memory, one thing at a time."""
    found = record(RESULTS / "benchmarks.json")["growth"]
    rows = []
    for name, entries in found["rows"].items():
        for entry in entries:
            cells = [
                cell
                for action in ("prediction", "gradient")
                for cell in (f"{entry[f'{action}_time']:.2f}", f"{entry[f'{action}_mib']:.0f}")
            ]
            rows.append((f"{GROWING[name]} = {entry[name]:g}", *cells))
    header = (
        "", "prediction, time over the first", "MiB", "gradient, time over the first", "MiB",
    )  # fmt: skip
    return as_markdown((header, rows))


GROWING = {"samples": "N", "batch": "batch", "side": "side of the image", "layers": "layers"}


def sides() -> str:
    """A training step of each purifier as images grow."""
    found = record(RESULTS / "benchmarks.json")["sides"]
    rows = []
    for row in found["rows"]:
        taken = ("does not fit", "")
        if "mib" in row:
            taken = (f"{row['mib']:.0f}", f"{row['seconds']:.2f}")
        rows.append((row["kind"], f"{row['side']}", f"{row['parameters'] / 1e6:.1f}", *taken))
    header = ("kind", "side", "million parameters", "peak MiB", "processor seconds")
    return as_markdown((header, rows))


def start_up() -> str:
    found = record(RESULTS / "benchmarks.json")["start_up"]
    return (
        f"`carso --help` answers in {found['help_seconds']:.2f} s, "
        f"{found['help_over_torch']:.2f} of what importing torch alone takes "
        "(`benchmarks/start_up.py`, median of turns): it does without, which a test asserts."
    )


def play_times() -> str:
    """What an answer of `carso play` takes."""
    found = record(RESULTS / "benchmarks.json")["play"]
    rows = [
        (words, f"{found[aim]['seconds']:.2f} s", f"{found[aim]['processor_seconds']:.2f} s")
        for aim, words in (("classifier", "the classifier alone"), ("defence", "the whole defence"))
    ]
    heading = f"`fashion`, an attack of {found['steps']} steps on"
    table = as_markdown(((heading, "on the clock", "of a core"), rows))
    cores = found["provenance"]["hardware"]["cores"]
    return (
        f"{table}\n\nMedians of turns, one thread, on {cores} cores while on average "
        f"{found['load']:.1f} processes wanted one (`benchmarks/play.py`)."
    )


def conditions() -> str:
    """With what the benchmarks ran."""
    found = record(RESULTS / "benchmarks.json")
    words = []
    for name, part in found.items():
        if name == "checksum":
            continue
        made = part["provenance"]
        threads = made["hardware"]["threads"]
        words.append(
            f"`{name}`: {threads} thread{'s' if threads > 1 else ''}, torch "
            f"{made['versions']['torch']}, revision `{made['revision'][:12]}`"
        )
    return "\n".join(f"- {line}" for line in words)


BENCHMARK_PARTS = {
    "benchmarks": benchmarks,
    "benchmark-hardening": hardening_step,
    "benchmark-suite": suite_times,
    "benchmark-kinds": kinds,
    "benchmark-growth": growth,
    "benchmark-sides": sides,
    "benchmark-start-up": start_up,
    "benchmark-play": play_times,
    "benchmark-conditions": conditions,
}
