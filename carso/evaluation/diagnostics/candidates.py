"""What the candidates are worth, and the arithmetic that makes an answer of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from carso.defence.aggregation import WITHOUT_FLOAT64, view_released
from carso.defence.defence import Carso
from carso.errors import reason
from carso.evaluation.diagnostics.diagnosis import Diagnosis, DiagnosticContext, slack
from carso.evaluation.statistics import percent
from carso.machine.microbatches import in_microbatches


def diversity(context: DiagnosticContext) -> Diagnosis:
    """Are N samples worth more than one?"""
    evaluation, defence = context.evaluation, context.evaluation.model.defence
    if defence is None:
        return Diagnosis(name="diversity", ok=None, verdict="A plain classifier has no candidates.")
    worst = context.results.worst.examples[: context.count].to(evaluation.device)
    labels = context.labels.to(evaluation.device)
    defence.seed(evaluation.seed)
    found = defence.explain(worst)
    samples, votes = len(found.candidates), found.aggregated.argmax(dim=2)  # (N, B)
    deviation = float(found.candidates.std(dim=0).mean()) if samples > 1 else 0.0
    disagreeing = float((votes != votes[0]).any(dim=0).double().mean())
    together = float((found.labels == labels).double().mean())
    alone = float((votes == labels).double().mean())
    gain = together - alone
    worth = "worth more than one" if gain > slack(context.count) else "worth no more than one"
    kl = context.training_kl
    learnt = "" if kl is None else f"; KL of the posterior after training: {kl:.3f} nats"
    words = (
        f"On the worst examples {samples} samples are {worth}: together they label {together:.3f} "
        f"right, one alone {alone:.3f}. Candidates differ by {deviation:.4f} per pixel; their "
        f"labels differ on {percent(disagreeing)} of the images{learnt}."
    )
    return Diagnosis(
        name="diversity",
        ok=None,
        verdict=words,
        figures={
            "samples": samples,
            "pixel_deviation": deviation,
            "disagreeing": disagreeing,
            "together": together,
            "alone": alone,
            "by_samples": by_samples(defence, found.aggregated, labels),
            "posterior_kl": kl,
        },
    )


def by_samples(defence: Carso, aggregated: Tensor, labels: Tensor) -> dict[str, float]:
    """What 1, 2, 4, ... of these candidates would have labelled right, averaged over all groups of
    so many among them; `aggregated` are their logits (N, B, K)."""
    shares, size = {}, 1
    while size <= len(aggregated):
        groups = [group for group in torch.split(aggregated, size) if len(group) == size]
        right = [(defence.aggregate(group).argmax(dim=1) == labels).double() for group in groups]
        shares[str(size)] = float(torch.stack(right).mean())
        size *= 2
    return shares


def precision(context: DiagnosticContext) -> Diagnosis:
    """What the answers owe to rounding: the same candidates, classified and aggregated as deployed
    and in float64."""
    evaluation, defence = context.evaluation, context.evaluation.model.defence
    if defence is None:
        words = "A plain classifier has no aggregation."
        return Diagnosis(name="precision", ok=None, verdict=words)
    images = context.images.to(evaluation.device)
    defence.seed(evaluation.seed)
    found = defence.explain(images)
    try:
        exact = in_float64(defence, images, found.candidates).to(found.labels.device)
    except RuntimeError as refusal:
        words = f"This classifier does not compute in float64: {reason(refusal)}."
        return Diagnosis(name="precision", ok=None, verdict=words)
    changed = float((found.labels != exact.argmax(dim=1)).double().mean())
    errors = (found.log_probabilities.to(exact.dtype).exp() - exact.exp()).abs()
    error = float(errors.nan_to_num(nan=0.0).max())  # answers of NaN are another diagnosis
    released = ~view_released(found.aggregated).isfinite()
    infinite = float(released.any(dim=1).double().mean())
    words = (
        f"On the same candidates the deployed arithmetic of classifier and {defence.aggregation} "
        f"aggregation changes {percent(changed)} of the labels against float64, and a probability "
        f"by at most {error:.1e}. The released float32 log-odds of the same logits are infinite on "
        f"{percent(infinite)} of the images."
    )
    if changed > slack(context.count):
        words += " So many labels are decided by rounding."
    return Diagnosis(
        name="precision",
        ok=changed <= slack(context.count),
        verdict=words,
        figures={"largest_error": error, "labels_changed": changed, "released_infinite": infinite},
    )


@torch.no_grad()
def in_float64(defence: Carso, images: Tensor, candidates: Tensor) -> Tensor:
    """The log-probabilities (B, K) of candidates (N, B, C, H, W), with every step in float64."""
    own = double_logits(defence.classifier, images)
    logits = double_logits(defence.final_classifier, candidates.flatten(0, 1))  # (N * B, K)
    logits = logits.reshape(*candidates.shape[:2], -1)
    return defence.aggregate(defence.anchored(logits, own))


def double_logits(network: nn.Module, images: Tensor) -> Tensor:
    """The logits (B, K) of `network` with its parameters and buffers in float64; it stays as it
    is."""
    place = torch.device("cpu") if images.device.type in WITHOUT_FLOAT64 else images.device
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    wide = {
        name: value.to(place, torch.float64) if value.is_floating_point() else value.to(place)
        for name, value in tensors.items()
    }
    return in_microbatches(
        lambda batch: functional_call(network, wide, (batch,)), images.to(place, torch.float64)
    )
