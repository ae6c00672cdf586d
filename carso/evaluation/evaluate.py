"""`carso.evaluate`: attack a defence or a classifier, judge it, and say how far to trust it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from carso.defence.defence import Carso
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError, reason
from carso.evaluation import record as records
from carso.evaluation.attacked_model import AttackedClassifier, AttackedModel, under_test
from carso.evaluation.diagnostics.diagnosis import Examination
from carso.evaluation.diagnostics.examine import examine
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.gallery import gallery
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.protocol import (
    PILOT_IMAGES,
    Battle,
    Counted,
    candidates_needed,
    fight,
)
from carso.evaluation.resume import FinishedParts
from carso.evaluation.suites import for_classes, for_classifier, of_examples
from carso.evaluation.suites import suite as suite_called
from carso.randomness import seeded
from carso.storage import tensor_files
from carso.storage.provenance import provenance
from carso.threats.linf import Linf

CHUNK = 100
DRAWS = 5


def silent(what: str, total: int) -> Callable[[int], None]:
    return lambda done: None


def evaluate(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    suite: str | Suite = "",
    attacks: Sequence[str] = (),
    examples: Path | str | None = None,
    seed: int = 0,
    draws: int = DRAWS,
    samples: int = 0,
    chunk: int = CHUNK,
    name: str | None = None,
    classes: Sequence[str] = (),
    out: Path | str | None = None,
    save_examples: Path | str | None = None,
    device: torch.device | str = "cpu",
    counted: Counted = silent,
    about: dict[str, Any] | None = None,
    answered_by: str = "",
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """The record of an evaluation of `model` on `images` (B, C, H, W) in [0, 1].

    `model` is a `Carso` defence, or any module from images to logits. `suite` is quick, paper,
    adaptive, full or standard (default: quick for a defence, standard, which is AutoAttack, for a
    classifier) or a `Suite` of your own; `attacks` picks some of its attacks, or others, by name;
    `examples` evaluates the adversarial images that another call has written to `save_examples`
    instead. A stochastic model is judged on `draws` independent draws. `samples` is how many
    candidates an attack averages in a step (0: measured). With `out` the record is written there,
    and a call that was stopped goes on where it was when it is repeated. `answered_by` names the
    classifier that labels the candidates where it is another than the one that is read. Many
    processes (`ranks`) share the images; `out` is where they meet, and all of them return the
    record.
    """
    about = about or {}
    if not isinstance(model, nn.Module):
        raise CarsoError(
            "evaluate takes a defence or a torch.nn.Module from images to logits, got "
            f"{type(model).__name__}"
        )
    if min(draws, chunk) < 1 or samples < 0:
        raise CarsoError(
            f"draws and chunk are at least 1 and samples not negative, got {draws}, {chunk} and "
            f"{samples}"
        )
    if save_examples is not None and Path(save_examples).suffix != ".safetensors":
        raise CarsoError(f"examples are saved as .safetensors, got {Path(save_examples).name}")
    if any(p.is_floating_point() and p.dtype != torch.float32 for p in model.parameters()):
        raise CarsoError("evaluate computes in float32: give it model.float()")
    path = None if out is None else Path(out)
    if processes.world_size > 1 and path is None:
        raise CarsoError("many processes share an evaluation through a file: give out")
    for place in (path, None if save_examples is None else Path(save_examples)):
        if place is not None and place.is_dir():
            raise CarsoError(f"cannot write {place}: it is a folder")
    with torch.random.fork_rng(), as_found(model):
        case, alike = prepared(
            model, images, labels, threat=Linf(eps=eps), name=name, seed=seed, draws=draws,
            samples=samples, device=torch.device(device), processes=processes,
        )  # fmt: skip
        plan = planned(case, suite, tuple(attacks), examples)
        settings = settings_of(case, plan, chunk=chunk, weights=weights(model))
        settings["data"] |= about.get("data", {})
        if answered_by:
            settings["subject"]["answered_by"] = answered_by
        if path is not None:
            records.refuse_another(path, settings)
        place = None if path is None else path.with_suffix(".parts")
        parts = processes.first_then_others(lambda: FinishedParts(place, settings))
        battle = fight(case, plan, parts, chunk=chunk, counted=counted, processes=processes)
        kl = about.get("posterior_kl")
        exam = Examination(case=case, plan=plan, battle=battle, training_kl=kl)
        diagnoses = examine(exam, parts, counted, processes)
        shown = gallery(case, battle, classes)
    del settings["attacks"]  # the record says more of them
    settings["suite"]["gradient_cosine"] = alike
    settings["scenario"], settings["title"] = about.get("scenario"), about.get("title")
    settings["provenance"] = {**provenance(), "seconds": round(parts.seconds, 1)}
    record = records.assembled(case, plan, battle, diagnoses, **settings)
    record = cast(dict[str, Any], records.finite({**record, "gallery": shown}))
    processes.barrier()  # everyone has read the parts
    if processes.is_first and save_examples is not None:
        write_examples(Path(save_examples), case, battle)
    if processes.is_first and path is not None:
        records.write(path, record)
        parts.remove()
    return cast(dict[str, Any], processes.broadcast(record))


def prepared(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Linf,
    name: str | None,
    seed: int,
    draws: int,
    samples: int,
    device: torch.device,
    processes: Processes,
) -> tuple[Evaluation, float | None]:
    """The case, and how alike the gradients of two candidates are, where that was measured."""
    subject = under_test(model, name)
    images, labels = checked(images, labels)
    some = images[:PILOT_IMAGES].to(device)
    try:
        known = subject.answers(some[:1])[1].shape[1]
    except RuntimeError as error:
        raise CarsoError(
            f"{subject.name} takes no images of shape {tuple(images.shape[1:])} (C, H, W): "
            f"{reason(error)}"
        ) from None
    if not bool(((labels >= 0) & (labels < known)).all()):
        raise CarsoError(
            f"labels must be class numbers from 0 to {known - 1}, got {int(labels.min())} to "
            f"{int(labels.max())}"
        )
    if isinstance(subject, AttackedClassifier):
        subject.stochastic = processes.broadcast(varies(subject, some, seed))
    alike = None
    if not samples:
        pilot = labels[:PILOT_IMAGES].to(device)
        samples, alike = processes.broadcast(candidates_needed(subject, some, pilot, seed=seed))
    case = Evaluation(
        subject=subject, images=images, labels=labels, threat=threat, seed=seed,
        draws=draws if subject.stochastic else 1, samples=samples, classes=known, device=device,
    )  # fmt: skip
    return case, alike


def settings_of(case: Evaluation, plan: Suite, *, chunk: int, weights: str) -> dict[str, Any]:
    """All that decides the result: what is asked of whom, on what."""
    subject = case.subject
    return {
        "subject": {"name": subject.name, **subject.description(), "weights": weights},
        "suite": {
            "name": plan.name,
            "draws": case.draws,
            "chunk": chunk,
            "samples": case.samples,
            "independent": plan.independent,
            "diagnostics": asdict(plan.effort),
        },
        "attacks": [(p.name, p.what, str(p.through), str(p.attack)) for p in plan.attacks],
        "threat": {"norm": "Linf", "eps": case.threat.eps},
        "seed": case.seed,
        "data": digest(case.images, case.labels),
    }


def planned(
    case: Evaluation, chosen: str | Suite, attacks: tuple[str, ...], examples: Path | str | None
) -> Suite:
    """The attacks to run."""
    plain = isinstance(case.subject, AttackedClassifier)
    if examples is not None:
        if chosen or attacks:
            raise CarsoError("examples are evaluated as they are: give no suite or attacks beside")
        return of_examples(Path(examples))
    if isinstance(chosen, Suite):
        if attacks:
            raise CarsoError("a suite of your own has its attacks: give none beside")
        plan = chosen
    else:
        name = chosen or ("standard" if plain else "quick")
        plan = suite_called(name, seed=case.seed, samples=case.samples, attacks=attacks)
    if not plain and any(planned.name == "autoattack" for planned in plan.attacks):
        raise CarsoError(
            "AutoAttack standard is for classifiers; a defence takes quick, paper, adaptive or full"
        )
    if plain and any(planned.released for planned in plan.attacks):
        raise CarsoError(
            f"{plan.name} attacks the released log-odds, which only a defence has; a classifier "
            "takes quick, adaptive, full or standard"
        )
    plan = for_classes(for_classifier(plan) if plain else plan, case.classes)
    if not plan.attacks:
        raise CarsoError(f"no attack of {plan.name} works with {case.classes} classes")
    return plan


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Leave a module of the user's in the mode, and with the gradients and noise, it came with."""
    modes = [(module, module.training) for module in model.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    noise = model.noise.get_state() if isinstance(model, Carso) else None
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
        if noise is not None:
            cast(Carso, model).noise = Generator(cast(Carso, model).noise.device)
            cast(Carso, model).noise.set_state(noise)


def checked(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Images and labels that fit together, on the CPU."""
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        raise CarsoError("images must be a float tensor (B, C, H, W) in [0, 1]")
    if not isinstance(labels, Tensor) or labels.shape != images.shape[:1]:
        raise CarsoError(f"labels must be a tensor of {len(images)} class numbers, one per image")
    if not len(images) or not bool(((images >= 0) & (images <= 1)).all()):
        raise CarsoError("images must lie in [0, 1], at least one, without NaN")
    return images.detach().cpu().float(), labels.detach().cpu().long()


def varies(subject: AttackedModel, images: Tensor, seed: int) -> bool:
    """Whether two passes of the same images differ."""
    with seeded(seed, "varies"):
        first, second = (subject.answers(images[:10])[1] for _ in range(2))
    return not torch.equal(first.nan_to_num(), second.nan_to_num())  # NaN is no noise


def weights(model: nn.Module) -> str:
    """Which weights these are."""
    return tensor_files.fingerprint(model.state_dict())


def digest(images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Which images these are."""
    found = hashlib.sha256(images.contiguous().numpy().tobytes())
    found.update(labels.contiguous().numpy().tobytes())
    return {"count": len(images), "sha256": found.hexdigest()}


def write_examples(path: Path, case: Evaluation, battle: Battle) -> None:
    """The worst example of each image, for other evaluations."""
    tensor_files.save(
        path,
        {
            "images": case.images,
            "labels": case.labels,
            "examples": battle.worst.examples,
            "eps": torch.tensor(case.threat.eps, dtype=torch.float64),
        },
    )
