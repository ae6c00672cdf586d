"""What the candidates and their aggregation are worth."""

from __future__ import annotations

import torch
from torch import Tensor

from carso.defence.aggregation import view_released
from carso.evaluation.attacked_model import AttackedDefence
from carso.evaluation.diagnostics.diagnosis import Diagnosis, Examination, slack
from carso.evaluation.statistics import percent


def diversity(exam: Examination) -> Diagnosis:
    """Are N samples worth more than one?"""
    subject = exam.case.subject
    if not isinstance(subject, AttackedDefence):
        return Diagnosis(name="diversity", ok=None, verdict="A plain classifier has no candidates.")
    defence, samples = subject.defence, subject.defence.samples
    worst = exam.battle.worst.examples[: exam.count].to(exam.case.device)
    labels = exam.labels.to(exam.case.device)
    defence.seed(exam.case.seed)
    candidates = defence.purify(worst)  # (N, B, C, H, W)
    with torch.no_grad():
        logits = defence.classify(candidates, defence.classifier(worst))
    votes = logits.argmax(dim=2)  # (N, B)
    deviation = float(candidates.std(dim=0).mean()) if samples > 1 else 0.0
    disagreeing = float((votes != votes[0]).any(dim=0).double().mean())
    together = float((defence.aggregate(logits).argmax(dim=1) == labels).double().mean())
    alone = float((votes == labels).double().mean())
    gain = together - alone
    worth = "worth more than one" if gain > slack(exam.count) else "worth no more than one"
    kl = exam.training_kl
    posterior = "not recorded" if kl is None else f"{kl:.3f} nats"
    words = (
        f"On the worst examples {samples} samples are {worth}: together they label {together:.3f} "
        f"right, one alone {alone:.3f}. Candidates differ by {deviation:.4f} per pixel; their "
        f"labels differ on {percent(disagreeing)} of the images; KL of the posterior after "
        f"training: {posterior}."
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
            "posterior_kl": kl,
        },
    )


def precision(exam: Examination) -> Diagnosis:
    """What float32 loses against float64 in the aggregation used."""
    subject = exam.case.subject
    if not isinstance(subject, AttackedDefence):
        return Diagnosis(
            name="precision", ok=None, verdict="A plain classifier has no aggregation."
        )
    defence = subject.defence
    collected = []

    def keep(logits: Tensor) -> Tensor:
        collected.append(logits.detach())
        return logits.mean(dim=0)

    defence.seed(exam.case.seed)
    with torch.no_grad():
        defence.scores(exam.images.to(exam.case.device), keep)
    logits = torch.cat(collected, dim=1).float()
    narrow, wide = defence.aggregate(logits), defence.aggregate(logits.double())
    changed = float((narrow.argmax(dim=1) != wide.argmax(dim=1)).double().mean())
    error = float((narrow.double().exp() - wide.exp()).abs().max())
    released = float((~view_released(logits).isfinite()).any(dim=1).double().mean())
    words = (
        f"In float32 the {defence.aggregation} aggregation differs from float64 by at most "
        f"{error:.1e} in a probability and changes {percent(changed)} of the labels. The released "
        f"float32 log-odds of the same logits are infinite on {percent(released)} of the images."
    )
    return Diagnosis(
        name="precision",
        ok=changed == 0 and error < 1e-4,
        verdict=words,
        figures={"largest_error": error, "labels_changed": changed, "released_infinite": released},
    )
