"""`carso.evaluate`: attack a defence or a classifier, judge it, and say how far to trust it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from carso import tensor_files
from carso.attacks.saved import saved
from carso.errors import CarsoError
from carso.evaluation import record as records
from carso.evaluation.case import Case
from carso.evaluation.diagnostics import Examination, examine
from carso.evaluation.gallery import gallery
from carso.evaluation.parts import Parts
from carso.evaluation.protocol import Battle, Counted, candidates_needed, fight
from carso.evaluation.subject import ClassifierSubject, Subject, Through, subject_of
from carso.evaluation.suites import Effort, Planned, Suite, for_classifier, suite
from carso.provenance import provenance
from carso.randomness import seeded
from carso.threat import Linf

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
    suite: str = "",
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
) -> dict[str, Any]:
    """The record of an evaluation of `model` on `images` (B, C, H, W) in [0, 1].

    `model` is a `Carso` defence, or any module from images to logits. `suite` is quick, paper,
    adaptive, full or standard (default: quick for a defence, standard, which is AutoAttack, for a
    classifier), `attacks` picks some of its attacks or others by name, and `examples` evaluates
    the adversarial images that another call has written to `save_examples` instead. A stochastic
    model is judged on `draws` independent draws. `samples` is how many candidates an attack
    averages in a step (0: measured). With `out` the record is written there, and a call that was
    stopped goes on where it was when it is repeated.
    """
    subject = subject_of(model, name)
    images, labels = checked(images, labels)
    threat = Linf(eps=eps)
    place = torch.device(device)
    path = None if out is None else Path(out)
    with torch.random.fork_rng():
        if isinstance(subject, ClassifierSubject):
            subject.stochastic = varies(subject, images.to(place), seed)
        draws = draws if subject.stochastic else 1
        alike = 1.0
        if not samples:
            samples, alike = candidates_needed(
                subject, images.to(place), labels.to(place), seed=seed
            )
        plan = planned(subject, suite, tuple(attacks), examples, seed=seed, samples=samples)
        settings: dict[str, Any] = {
            "subject": {"name": subject.name, **subject.description(), "weights": weights(model)},
            "suite": {"name": plan.name, "draws": draws, "chunk": chunk, "samples": samples},
            "attacks": [(p.name, p.what, str(p.through), str(p.attack)) for p in plan.attacks],
            "threat": {"norm": "Linf", "eps": eps},
            "seed": seed,
            "data": {**(about or {}).get("data", {}), **digest(images, labels)},
        }
        parts = Parts(None if path is None else path.with_suffix(".parts"), settings)
        case = Case(
            subject=subject, images=images, labels=labels, threat=threat, seed=seed, draws=draws,
            samples=samples, device=place,
        )  # fmt: skip
        battle = fight(case, plan, parts, chunk=chunk, counted=counted)
        exam = Examination(
            case=case, plan=plan, battle=battle, training_kl=(about or {}).get("posterior_kl")
        )
        diagnoses = examine(exam, parts, counted)
        names = classes or [str(i) for i in range(int(labels.max()) + 1)]
        shown = gallery(case, battle, named(names, subject, images[:1].to(place)))
    made = {**provenance(), "seconds": round(parts.seconds, 1)}
    settings["suite"] |= {"gradient_cosine": round(alike, 4), "independent": plan.independent}
    record = records.assembled(
        case,
        plan,
        battle,
        diagnoses,
        subject=settings["subject"],
        scenario=(about or {}).get("scenario"),
        suite=settings["suite"],
        threat=settings["threat"],
        seed=seed,
        data=settings["data"],
        provenance=made,
        rerun=(about or {}).get("rerun", ""),
    )
    record["gallery"] = shown
    if save_examples is not None:
        write_examples(Path(save_examples), case, battle)
    if path is not None:
        records.write(path, record)
        parts.remove()
    return record


def planned(
    subject: Subject,
    name: str,
    attacks: tuple[str, ...],
    examples: Path | str | None,
    *,
    seed: int,
    samples: int,
) -> Suite:
    """The attacks to run."""
    plain = isinstance(subject, ClassifierSubject)
    if examples is not None:
        if name or attacks:
            raise CarsoError("examples are evaluated as they are: give no suite or attacks beside")
        attack = Planned(
            name="saved-examples",
            what=f"adversarial images from {Path(examples).name}, made elsewhere",
            attack=saved(Path(examples)),
            through=Through(),
        )
        return Suite(
            name="examples",
            attacks=(attack,),
            effort=Effort(images=50, steps=15, queries=30, eps=(0.0, 1.0)),
        )
    plan = suite(
        name or ("standard" if plain else "quick"), seed=seed, samples=samples, attacks=attacks
    )
    return for_classifier(plan) if plain else plan


def checked(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Images and labels that fit together, on the CPU."""
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        raise CarsoError("images must be a float tensor (B, C, H, W) in [0, 1]")
    if not isinstance(labels, Tensor) or labels.shape != images.shape[:1]:
        raise CarsoError(f"labels must be a tensor of {len(images)} class numbers, one per image")
    if not len(images) or not bool(((images >= 0) & (images <= 1)).all()):
        raise CarsoError("images must lie in [0, 1], at least one, without NaN")
    return images.detach().cpu().float(), labels.detach().cpu().long()


def varies(subject: Subject, images: Tensor, seed: int) -> bool:
    """Whether two passes of the same images differ."""
    with seeded(seed, "varies"):
        first, second = (subject.answers(images[:10])[1] for _ in range(2))
    return not torch.equal(first, second)


def named(names: Sequence[str], subject: Subject, image: Tensor) -> list[str]:
    """A name for every class that the subject knows."""
    count = subject.answers(image)[1].shape[1]
    return [names[i] if i < len(names) else str(i) for i in range(count)]


def weights(model: nn.Module) -> str:
    """Which weights these are."""
    return tensor_files.fingerprint(model.state_dict())


def digest(images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Which images these are."""
    found = hashlib.sha256(images.contiguous().numpy().tobytes())
    found.update(labels.contiguous().numpy().tobytes())
    return {"count": len(images), "sha256": found.hexdigest()}


def write_examples(path: Path, case: Case, battle: Battle) -> None:
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
