"""`carso.evaluate`: attack a defence or a classifier, judge it, and say how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from carso import arguments
from carso.attacks.saved import Examples, read_examples, write_examples
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError, CarsoTypeError
from carso.evaluation import record as records
from carso.evaluation.assemble import assembled
from carso.evaluation.diagnostics.diagnosis import DiagnosticContext
from carso.evaluation.diagnostics.run_diagnostics import run_diagnostics
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.fingerprints import (
    examples_identity,
    images_identity,
    model_identity,
    weights,
)
from carso.evaluation.gallery import gallery
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.preparation import as_found, check_memory, planned, prepared
from carso.evaluation.protocol import Counted, run_attacks
from carso.evaluation.request_checks import check_attacks, check_places, check_request, judged
from carso.evaluation.resume import FinishedResults, begun
from carso.machine.progress import by_default
from carso.randomness import global_generators_kept
from carso.storage import files
from carso.storage.provenance import provenance
from carso.threats.norms import DEFAULT, threat_of
from carso.threats.threat import Threat

CHUNK = 100
DRAWS = 5


def silent(what: str, total: int) -> Callable[[int], None]:
    return lambda done: None


@arguments.door
def evaluate(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float | None = None,
    norm: str = DEFAULT,
    threat: Threat | None = None,
    suite: str | Suite = "",
    attacks: Sequence[str] = (),
    examples: Path | str | None = None,
    seed: int = 0,
    draws: int = DRAWS,
    samples: int = 0,
    backward: nn.Module | None = None,
    chunk: int = CHUNK,
    name: str | None = None,
    classes: Sequence[str] = (),
    out: Path | str | None = None,
    again: bool = False,
    save_examples: Path | str | None = None,
    device: torch.device | str = "cpu",
    quiet: bool = False,
    counted: Counted | None = None,
    about: dict[str, Any] | None = None,
    answered_by: str = "",
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """The record of an evaluation of `model` on `images` (B, C, H, W) in [0, 1].

    `model` is a `Carso` defence, or any module from images to logits. An attacker may go as far as
    `eps` in `norm`, or as a `threat` of your own says. `suite` is quick, paper,
    adaptive, full or standard (default: quick for a defence, standard, which is AutoAttack, for a
    classifier) or a `Suite` of your own; `attacks` picks some of its attacks, or others, by name;
    `examples` evaluates the adversarial images that another call has written to `save_examples`
    instead. A stochastic model is judged on `draws` independent draws. `samples` is how many
    candidates (of a noisy module: passes) an attack averages in a step (0: measured). Where the
    gradient of `model` is useless or none, attacks follow that of `backward` at the same images
    (BPDA), while scores and verdicts are those of `model`. With `out`
    the record is written there, and a call that was stopped goes on where it was when it is
    repeated; one that was finished returns the record that is there, unless it is to be made
    `again`. A bar shows how far it is, in a terminal or a notebook, unless it is to be `quiet`,
    or `counted` shows it. `answered_by` names the classifier that labels the candidates where it is
    another than the one that is read. Many processes (`ranks`) share the images; `out` is where
    they meet, and all of them return the record.
    """
    path, kept_examples, examples = (
        None if place is None else arguments.place(what, place)
        for what, place in (("out", out), ("save_examples", save_examples), ("examples", examples))
    )
    model = check_request(model, suite=suite, name=name)
    if backward is not None:
        backward = judged(backward, "backward")
    seed, place = arguments.seed_number(seed), arguments.device(device)
    draws, chunk = (arguments.whole(*one, least=1) for one in (("draws", draws), ("chunk", chunk)))
    samples = arguments.whole("samples", samples, least=0)
    if counted is not None and not callable(counted):
        raise CarsoTypeError(f"counted must be a function, got {arguments.shown(counted)}")
    attacks, classes = arguments.names("attacks", attacks), arguments.names("classes", classes)
    check_places(path, kept_examples, processes)
    check_attacks(model, suite, attacks, examples)
    about, ball = about or {}, threat_of(threat, norm=norm, eps=eps)

    def request(samples: int) -> Request:
        evaluation, gradient_cosine = prepared(
            model, images, labels, threat=ball, name=name, named=len(classes), seed=seed,
            draws=draws, samples=samples, device=place, processes=processes, backward=backward,
        )  # fmt: skip
        plan = planned(evaluation, suite, attacks, examples)
        settings = settings_of(evaluation, plan, chunk=chunk, weights=weights(model))
        settings["data"] |= about.get("data", {})
        if answered_by:
            settings["subject"]["answered_by"] = answered_by
        if path is not None:
            records.refuse_another(path, settings)
        check_memory(evaluation, min(chunk, len(images)))
        return Request(evaluation, plan, settings, gradient_cosine)

    with global_generators_kept(), as_found(model), as_found(backward or nn.Identity()):
        if path is not None and path.exists() and not again:
            before = records.read(path)
            asked = request(samples or before["suite"]["samples"])  # measured then, for the same
            if records.same(before, asked.settings) and holds(kept_examples, before):
                return before
        asked = request(samples)
        with sole(path, processes), shown_by(counted, quiet=quiet) as bar:
            return computed(
                asked, path, kept_examples, classes=classes, counted=bar, about=about,
                processes=processes,
            )  # fmt: skip


@contextmanager
def shown_by(counted: Counted | None, *, quiet: bool) -> Iterator[Counted]:
    """Who shows the progress: what the caller gave, or a bar in a terminal or notebook."""
    if counted is not None or quiet:
        yield counted or silent
        return
    with by_default() as bars:
        yield bars.counted


@contextmanager
def sole(path: Path | None, processes: Processes) -> Iterator[None]:
    """Within it, nobody else makes the record at `path`; what a killed process left half written
    is gone."""
    if path is None:
        yield
        return
    with processes.exclusively(unfinished(path), "an evaluation"):
        if processes.is_first:
            files.clear_left_over(path.parent, of=path.name)
            files.clear_left_over(unfinished(path))
        yield


def unfinished(path: Path) -> Path:
    """Where the parts of a record lie until it is whole."""
    return path.with_suffix(".parts")


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    evaluation: Evaluation
    plan: Suite
    settings: dict[str, Any]
    """All that decides the result, as the record says it."""
    gradient_cosine: float | None
    """How alike the gradients of two draws are, where that was measured."""


def computed(
    asked: Request,
    path: Path | None,
    save_examples: Path | None,
    *,
    classes: Sequence[str],
    counted: Counted,
    about: dict[str, Any],
    processes: Processes,
) -> dict[str, Any]:
    """The record of what is asked, from the attacks to the file."""
    evaluation, plan, settings = asked.evaluation, asked.plan, dict(asked.settings)
    finished = processes.first_then_others(lambda: opened(path, settings, processes))
    chunk = settings["suite"]["chunk"]
    results = run_attacks(
        evaluation, plan, finished, chunk=chunk, counted=counted, processes=processes
    )
    kl = about.get("posterior_kl")
    context = DiagnosticContext(evaluation=evaluation, plan=plan, results=results, training_kl=kl)
    diagnoses = run_diagnostics(context, finished, counted, processes)
    shown = gallery(evaluation, results, classes)
    del settings["attacks"]  # the record says more of them
    settings["suite"]["gradient_cosine"] = asked.gradient_cosine
    settings["scenario"], settings["title"] = about.get("scenario"), about.get("title")
    settings["provenance"] = {**provenance(), "seconds": round(finished.seconds, 1)}
    record = assembled(evaluation, plan, results, diagnoses, **settings)
    record = cast(dict[str, Any], records.finite({**record, "gallery": shown}))
    processes.barrier()  # everyone has read what is finished
    if processes.is_first and save_examples is not None:
        ball = evaluation.threat
        found = Examples(
            images=evaluation.images, labels=evaluation.labels, examples=results.worst.examples,
            norm=ball.norm, eps=ball.eps,
        )  # fmt: skip
        write_examples(save_examples, found)
    if processes.is_first and path is not None:
        records.write(path, record)
        finished.remove()
    return cast(dict[str, Any], processes.broadcast(record))


def opened(path: Path | None, settings: dict[str, Any], processes: Processes) -> FinishedResults:
    """What is finished of the record at `path`."""
    folder = None if path is None else unfinished(path)
    unknown = settings["subject"]["model"] is None
    if folder is not None and begun(folder) and unknown and processes.is_first:
        raise CarsoError(
            f"{folder} holds an unfinished evaluation, and nothing tells whether it is of this "
            "model: delete it, or give the purifier a method fingerprint() that returns a text"
        )
    return FinishedResults(folder, settings)


def settings_of(evaluation: Evaluation, plan: Suite, *, chunk: int, weights: str) -> dict[str, Any]:
    """All that decides the result: what is asked of whom, on what."""
    model = evaluation.model
    return {
        "subject": {
            "name": model.name,
            **model.description(),
            **({} if evaluation.gradients else {"gradients": False}),
            "weights": weights,
            "model": model_identity(model.components()),
        },
        "suite": {
            "name": plan.name,
            "draws": evaluation.draws,
            "chunk": chunk,
            "samples": evaluation.samples,
            "independent": plan.independent,
            "diagnostics": asdict(plan.effort),
        },
        "attacks": [(p.name, p.what, str(p.through), p.attack.identity()) for p in plan.attacks],
        "threat": {"norm": evaluation.threat.norm, "eps": evaluation.threat.eps},
        "seed": evaluation.seed,
        "data": images_identity(evaluation.images, evaluation.labels),
    }


def holds(path: Path | None, record: dict[str, Any]) -> bool:
    """Whether the examples of a record lie at `path`, if they are asked for at all."""
    if path is None:
        return True
    wanted = record.get("worst_examples")
    return path.exists() and wanted == examples_identity(read_examples(path).examples)
