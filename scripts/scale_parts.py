"""The generated parts of `docs/scale.md`."""

from __future__ import annotations

from typing import Any

from records import RESULTS, record, table

PAPER = {"cifar10": ("a", 8), "cifar100": ("b", 4), "tinyimagenet": ("c", 8)}
"""The paper's letter of a scenario, and its number of A100 GPUs."""
SUSTAINED = 30e12
"""Operations per second of one A100 that the hours below assume; the table says what the paper's
own minutes imply."""


def scenarios() -> dict[str, Any]:
    found: dict[str, Any] = record(RESULTS / "scale.json")["scenarios"]
    return found


def mebibytes(count: float) -> str:
    return f"{count / 2**20:.3g} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def short(value: float) -> str:
    """Three digits, without powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"


def networks() -> str:
    """Size of the networks, and operations for one image."""
    rows = []
    for name, found in scenarios().items():
        classifier, purifier, defence = (found[k] for k in ("classifier", "purifier", "defence"))
        many = defence["gradient"][str(defence["samples"])]
        rows.append(
            f"| `{name}` | {classifier['parameters'] / 1e6:.2f} M | "
            f"{purifier['parameters'] / 1e6:.2f} M | {classifier['forward'] / 1e9:.3g} | "
            f"{purifier['step'] / 1e9:.3g} | {defence['gradient']['1'] / 1e9:.3g} | "
            f"{many / 1e9:.3g} |"
        )
    return table(
        "| scenario | classifier | purifier | classifier, forward | purifier, training step | "
        "gradient of the defence, N = 1 | the same, N = 8 |",
        rows,
    )


def training() -> str:
    """Operations, memory and hours of the purifier's training."""
    from carso.reproduction import published

    rows = []
    for name, found in scenarios().items():
        work, purifier = found["training"], found["purifier"]
        bank, anew = work["bank"] + work["purifier"], work["made_anew"] + work["purifier"]
        paper, implied = "", ""
        if name in PAPER:
            letter, gpus = PAPER[name]
            minutes = float(published.value("times", {"scenario": letter}, "training") or 0)
            paper = f"{minutes:g} min on {gpus}"
            theirs = anew * work["published_images"] / work["images"]
            implied = f"{theirs / (60 * minutes * gpus) / 1e12:.0f}"
        rows.append(
            f"| `{name}` | {short(bank / 1e15)} | {short(anew / 1e15)} | {paper} | {implied} | "
            f"{short(bank / SUSTAINED / 3600)} | {short(anew / SUSTAINED / 3600)} | "
            f"{'kept' if work['keeps_bank'] else 'made anew'} | {mebibytes(work['state_bytes'])} | "
            f"{mebibytes(purifier['activation_bytes'])} | {mebibytes(work['bank_bytes'])} |"
        )
    return table(
        "| scenario | Pflop with the bank | Pflop, attacks made anew | the paper's time on A100s | "
        "Tflop/s of each that implies | GPU-hours with the bank | made anew | "
        "the scenario's default | weights and optimiser | activations of one image | "
        "bank on disk |",
        rows,
    )


def hardening() -> str:
    """Operations and hours of hardening."""
    rows = []
    for name, found in scenarios().items():
        work = found["hardening"]
        rows.append(
            f"| `{name}` | {work['epochs']} | {work['attack_steps']} | "
            f"{short(work['whole'] / 1e15)} | {short(work['whole'] / SUSTAINED / 3600)} | "
            f"{mebibytes(work['activation_bytes'])} |"
        )
    return table(
        "| scenario | epochs | attack steps | Pflop | GPU-hours | memory of one image |", rows
    )


def evaluation() -> str:
    """Operations and hours of the attacks on 10,000 images."""
    rows = []
    for name, found in scenarios().items():
        work = found["evaluation"]
        rows.append(
            f"| `{name}` | {short(work['randaa'] / 1e15)} | "
            f"{short(work['randaa'] / SUSTAINED / 3600)} | {short(work['adaptive'] / 1e15)} | "
            f"{short(work['adaptive'] / SUSTAINED / 3600)} |"
        )
    return table(
        "| scenario | randAA, Pflop | GPU-hours | adaptive, Pflop | GPU-hours |",
        rows,
    )


def passes() -> str:
    found = record(RESULTS / "scale.json")
    one, two = (found["adaptive_gradients_per_image"][n] for n in ("1", "2"))
    return (
        f"AutoAttack rand takes {found['randaa_gradients_per_image']} gradients of the whole "
        "defence for every image that stands to the end; the adaptive suite took "
        f"{one:.0f} gradients of one candidate and {two:.0f} of two per image of `fashion` "
        "(`docs/results/fashion-adaptive.json`), where its first attack left "
        f"{found['standing_after_the_first']:.3f} of the images standing."
    )


SCALE_PARTS = {
    "scale-networks": networks,
    "scale-training": training,
    "scale-hardening": hardening,
    "scale-evaluation": evaluation,
    "scale-passes": passes,
}
