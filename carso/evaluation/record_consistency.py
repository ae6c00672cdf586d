"""Does a record say of itself what its own images say? One that was edited by hand does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from carso.evaluation.statistics import share
from carso.evaluation.tries import survival

ROUNDING = 1e-6


def contradiction(record: dict[str, Any]) -> str:
    """The first key that the outcomes of the images contradict, and how; empty: none does.

    Not everything can be found out: what an attack left standing was judged on draws that are not
    kept.
    """
    try:
        return next(contradictions(record), "")
    except (TypeError, KeyError, ValueError, AttributeError, IndexError, RuntimeError):
        return "its images or attacks are not laid out as they are written"


def contradictions(record: dict[str, Any]) -> Iterator[str]:
    """Every key that is not what the outcomes of the images make it."""
    images, draws, count = record["images"], record["suite"]["draws"], record["data"]["count"]
    for key, values in images.items():
        if len(values) != count:
            yield f"data.count is {count}, but images.{key} has {len(values)}"
    clean, worst = (draws_right(images[key], draws) for key in ("clean_right", "worst_right"))
    found = {
        "clean": clean / draws,
        "worst": worst / draws,
        "worst_on_all_draws": (worst == draws).double(),
    }
    if "while_optimising" in record["accuracy"]:
        found["while_optimising"] = draws_right(images["while_optimising"], 1)
    for name, outcomes in found.items():
        yield from other_share(f"accuracy.{name}", record["accuracy"][name], outcomes)
    yield from of_tries(record.get("tries"), images)
    for attack in record["attacks"]:
        yield from of_attack(attack, clean, draws)
    failed = any(diagnosis["ok"] is False for diagnosis in record["diagnostics"])
    if record["unreliable"] is not failed:
        yield f"unreliable is {record['unreliable']}, but the diagnostics say {failed}"
    value = f"{record['accuracy']['worst']['value']:.3f} of {count} images"
    if value not in record["verdict"]:
        yield f"verdict does not say {value}, as accuracy.worst does"


def of_tries(tries: dict[str, Any] | None, images: dict[str, Any]) -> Iterator[str]:
    """The same of the curve against the number of tries, where there is one."""
    if tries is None:
        return
    right = draws_right(images["tries_right"], tries["draws"])
    if len(tries["accuracy"]) != tries["draws"]:
        yield f"tries.accuracy has {len(tries['accuracy'])} points of {tries['draws']} draws"
    for number, written in enumerate(tries["accuracy"], start=1):
        outcomes = survival(right, tries["draws"], number)
        yield from other_share(f"tries.accuracy.{number}", written, outcomes)


def of_attack(attack: dict[str, Any], clean: Tensor, draws: int) -> Iterator[str]:
    """The same of one attack."""
    key = f"attacks.{attack['name']}"
    outcomes = attack["right"]
    if len(outcomes) != len(clean):
        yield f"{key}.right has {len(outcomes)} outcomes for {len(clean)} images"
    attacked = [outcome for outcome in outcomes if outcome is not None]
    if attack["attacked"] != len(attacked):
        yield f"{key}.attacked is {attack['attacked']}, its images say {len(attacked)}"
    if not 0 <= attack["broken"] <= sum(right == 0 for right in attacked):
        yield f"{key}.broken is {attack['broken']}, more than its images say"
    if attack["accuracy_alone"] is not None:
        before = clean.tolist()
        alone = [b if o is None else o for o, b in zip(outcomes, before, strict=True)]
        outcome = draws_right(alone, draws) / draws
        yield from other_share(f"{key}.accuracy_alone", attack["accuracy_alone"], outcome)


def draws_right(counts: list[Any], draws: int) -> Tensor:
    """How many of the draws were right, of each image (B,); anything else is no count."""
    if any(count not in range(draws + 1) for count in counts):
        raise ValueError(f"counts of {draws} draws")
    return torch.tensor(counts, dtype=torch.float64)


def other_share(key: str, written: dict[str, float], outcomes: Tensor) -> Iterator[str]:
    """The parts of a share that `outcomes`, one per image, do not give."""
    for part, value in asdict(share(outcomes)).items():
        if abs(written[part] - value) > ROUNDING:
            yield f"{key}.{part} is {written[part]:.6g}, its images say {value:.6g}"
