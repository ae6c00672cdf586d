"""From what a user asks for to an evaluation that can run: checks, and what must be measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from torch import Generator, Tensor, nn

from carso.defence.defence import Carso
from carso.distributed.processes import Processes
from carso.errors import CarsoError, reason
from carso.evaluation.attacked_model import AttackedModel, AttackedView, under_test, with_scores
from carso.evaluation.backward import WithBackward
from carso.evaluation.eot import PILOT_IMAGES, candidates_needed
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.inner_classifier import classifier_within
from carso.evaluation.planned_attacks import Suite
from carso.evaluation.request_checks import check_labels, checked
from carso.evaluation.suites import (
    by_queries,
    for_classes,
    for_classifier,
    for_threat,
    for_wrapper,
    of_examples,
)
from carso.evaluation.suites import suite as suite_called
from carso.machine.limits import check_fits, need_of_an_image
from carso.randomness import generator, global_generators_kept, seeded
from carso.threats.threat import Threat


def prepared(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    name: str | None,
    named: int,
    seed: int,
    draws: int,
    samples: int,
    device: torch.device,
    processes: Processes,
    backward: nn.Module | None = None,
) -> tuple[Evaluation, float | None]:
    """The evaluation, and how alike the gradients of two draws are, where that was measured.

    So many classes are `named`; only of a model that answers with labels this must be known.
    """
    images, labels = checked(images, labels)
    pilot = images[:PILOT_IMAGES].to(device)
    count = max(2, named, int(labels.max()) + 1)
    if not isinstance(model, Carso):
        model, name = with_scores(model, pilot[:1], count), name or type(model).__name__
    attacked = under_test(model, name)
    classes = classes_of(attacked, pilot[:1])
    check_labels(labels, classes)
    if attacked.defence is None:
        attacked.inner = classifier_within(attacked.classifier, pilot[:2])
        attacked.stochastic = processes.broadcast(varies(attacked, pilot, seed))
    if backward is not None:
        attacked = with_backward(attacked, backward, pilot, classes, seed, processes)
    gradients = processes.broadcast(differentiable(attacked, pilot[:1], seed))
    gradient_cosine = None
    if not samples and not gradients:
        samples = 1
    if not samples:
        answers = labels[:PILOT_IMAGES].to(device)
        samples, gradient_cosine = processes.broadcast(
            candidates_needed(attacked, pilot, answers, seed=seed)
        )
    evaluation = Evaluation(
        model=attacked, images=images, labels=labels, threat=threat, seed=seed,
        draws=draws if attacked.stochastic else 1, samples=samples, classes=classes, device=device,
        gradients=gradients,
    )  # fmt: skip
    return evaluation, gradient_cosine


def with_backward(
    attacked: AttackedModel,
    backward: nn.Module,
    pilot: Tensor,
    classes: int,
    seed: int,
    processes: Processes,
) -> AttackedModel:
    """The model as it is attacked by the gradients of another."""
    other = under_test(backward, type(backward).__name__)
    found = classes_of(other, pilot[:1])
    if found != classes:
        raise CarsoError(
            f"backward gives {found} scores per image, and {attacked.name} {classes}: the "
            "gradient of the one cannot stand for that of the other"
        )
    if other.defence is None:
        other.stochastic = processes.broadcast(varies(other, pilot, seed))
    if not differentiable(other, pilot[:1], seed):
        raise CarsoError("the scores of backward have no gradient: give a module that has one")
    return WithBackward(attacked, other)


def check_memory(evaluation: Evaluation, chunk: int) -> None:
    """Refuse a chunk whose attack would not fit in memory, by passes of one image and of two."""
    defence, samples = evaluation.model.defence, evaluation.samples
    if evaluation.device.type != "cpu":
        return  # a GPU that is full says so itself, at once
    model = evaluation.model.classifier if defence is None else defence
    image = evaluation.images[:1]

    def forward(count: int) -> Tensor:
        return cast(Tensor, model(image.repeat(count, 1, 1, 1).requires_grad_(True)))

    with as_found(model), global_generators_kept():
        model.eval()  # a pass must not move batch-norm statistics
        each, base = need_of_an_image(forward)
    if defence is not None:
        each = each * samples // defence.samples
        if defence.max_batch is not None:  # what is beyond it is computed again on the way back
            chunk = min(chunk, max(1, defence.max_batch // samples))
    check_fits("images attacked at once", chunk, each, base=base, option="--chunk")


def classes_of(model: AttackedModel, image: Tensor) -> int:
    """How many classes it tells apart; images that it does not take are refused."""
    try:
        return model.answers(image)[1].shape[1]
    except CarsoError:
        raise
    except Exception as error:  # whatever a module of the user's may raise
        raise CarsoError(
            f"{model.name} takes no images of shape {tuple(image.shape[1:])} (C, H, W): "
            f"{reason(error)}"
        ) from None


def differentiable(model: AttackedModel, image: Tensor, seed: int) -> bool:
    """Whether what an attack differentiates has a gradient at all: labels, one-hot scores and
    whatever is computed without gradients have none."""
    with seeded(seed, "gradients"):
        model.reseed(generator(seed, "gradients").initial_seed())
        point = image.detach().clone().requires_grad_(True)
        with torch.enable_grad():
            return bool(model.view(AttackedView(samples=1))(point).requires_grad)


def varies(model: AttackedModel, images: Tensor, seed: int) -> bool:
    """Whether two passes of the same images differ."""
    with seeded(seed, "varies"):
        first, second = (model.answers(images[:10])[1] for _ in range(2))
    return not torch.equal(first.nan_to_num(), second.nan_to_num())  # NaN is no noise


def planned(
    evaluation: Evaluation,
    chosen: str | Suite,
    attacks: tuple[str, ...],
    examples: Path | str | None,
) -> Suite:
    """The attacks to run."""
    plain = evaluation.model.defence is None
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
        plan = suite_called(name, seed=evaluation.seed, samples=evaluation.samples, attacks=attacks)
    if not plain and any(planned.name == "autoattack" for planned in plan.attacks):
        raise CarsoError(
            "AutoAttack standard is for classifiers; a defence takes quick, paper, adaptive or full"
        )
    if plain and any(planned.released for planned in plan.attacks):
        raise CarsoError(
            f"{plan.name} attacks the released log-odds, which only a defence has; a classifier "
            "takes quick, adaptive, full or standard"
        )
    if plain:
        noisy = evaluation.model.stochastic or evaluation.model.noisy_gradient
        plan = for_classifier(plan, stochastic=noisy)
    plan = for_wrapper(plan, evaluation.model.inner)
    plan = for_classes(plan, evaluation.classes)
    picked = bool(attacks) or isinstance(chosen, Suite)
    plan = for_threat(plan, evaluation.threat, picked=picked)
    if not evaluation.gradients:
        plan = by_queries(plan, evaluation.threat, picked=picked)
    if not plan.attacks:
        raise CarsoError(
            f"no attack of {plan.name} works with {evaluation.classes} classes in "
            f"{evaluation.threat.norm}"
        )
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
