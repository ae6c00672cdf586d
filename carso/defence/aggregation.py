"""Step 4: the logits of N candidates to one prediction.

Every aggregation takes logits (N, B, K) and gives log-probabilities (B, K). The arithmetic is in
float64 and in log space, so that float32 logits from -1e4 to 1e4 give what exact arithmetic
would; the result has the dtype of the logits, and its largest entry is the largest before that
rounding. `VIEWS` are the scores that an attacker would
rather differentiate. "anchored" is ours, not the paper's: before it, and before every view of a
defence that uses it, the classifier's own logits on the input `join` those of the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from carso.arguments import text
from carso.errors import CarsoError

Reduction = Callable[[Tensor], Tensor]
"""Logits (N, B, K) to one score per class (B, K)."""

LARGEST_EXPONENT = 700.0
"""exp of more overflows float64; a gap scaled by exp(700) is infinite for every purpose."""


def double_exponential(logits: Tensor) -> Tensor:
    """P_i proportional to prod_a exp(exp(l_i^a)), the aggregation of section 4.5.

    With s_i = sum_a exp(l_i^a), P = softmax(s). s itself overflows, but a softmax needs only its
    gaps to the largest, which `score_gaps` finds without ever forming s.
    """
    ordered = wide(logits).clamp(min=-LARGEST_EXPONENT).sort(dim=0).values  # (N, B, K)
    leader = ordered[-1].argmax(dim=-1)  # (B,): a first guess, the class of the largest logit
    gap = score_gaps(ordered, leader)
    for _ in range(ordered.shape[-1]):
        if not bool((gap > 0).any()):
            break
        leader = gap.argmax(dim=-1)
        gap = score_gaps(ordered, leader)
    return rounded(gap.log_softmax(dim=-1), gap.argmax(dim=-1), logits)


def score_gaps(ordered: Tensor, leader: Tensor) -> Tensor:
    """s_i - s_leader, (B, K), of logits (N, B, K) that are sorted over the candidates.

    Candidates are subtracted in pairs, so that equal logits cancel exactly however large they
    are, and the smaller ones decide. A gap beyond exp(700) is scaled down to it.
    """
    reference = ordered.take_along_dim(leader.view(1, -1, 1), dim=-1)  # (N, B, 1)
    difference = ordered - reference
    larger = torch.maximum(ordered, reference)
    decisive = larger.detach().masked_fill(difference == 0, 0.0).amax(dim=0)  # (B, K)
    scale = (decisive - LARGEST_EXPONENT).clamp(min=0)
    relative = torch.where(  # exp(l - larger) - exp(reference - larger)
        difference > 0,
        -torch.expm1(-difference.clamp(min=0)),
        torch.expm1(difference.clamp(max=0)),
    )
    return ((larger - scale).clamp(max=LARGEST_EXPONENT).exp() * relative).sum(dim=0)


def mean_logits(logits: Tensor) -> Tensor:
    """P proportional to exp of the mean logit (the paper's logit averaging)."""
    mean = wide(logits).mean(dim=0)  # (B, K)
    return rounded(mean.log_softmax(dim=-1), mean.argmax(dim=-1), logits)


def mean_probabilities(logits: Tensor) -> Tensor:
    """The mean of the candidates' softmaxes (the paper's probability averaging)."""
    log_probabilities = wide(logits).log_softmax(dim=-1)  # (N, B, K)
    mean = log_probabilities.logsumexp(dim=0) - math.log(len(logits))
    return rounded(mean, most_probable(log_probabilities.detach()), logits)


def most_probable(log_probabilities: Tensor) -> Tensor:
    """The class of the largest sum of probabilities over the candidates, (B,).

    Candidates that are sure of different classes leave sums that differ by less than float64 can
    tell from 1. So each probability is split into a whole number, 1 for the candidate's own class,
    and a small rest that keeps its digits; where whole numbers tie, the rests decide.
    """
    own = log_probabilities.argmax(dim=-1, keepdim=True)  # (N, B, 1)
    others = log_probabilities.scatter(-1, own, -torch.inf).logsumexp(dim=-1, keepdim=True)
    whole = torch.zeros_like(log_probabilities).scatter_(-1, own, 1.0).sum(dim=0)  # (B, K)
    rest = log_probabilities.exp().scatter(-1, own, -others.exp()).sum(dim=0)
    leader = (whole + rest).argmax(dim=-1, keepdim=True)  # (B, 1)
    for _ in range(whole.shape[-1]):
        behind = whole - whole.take_along_dim(leader, dim=-1)
        gap = behind + (rest - rest.take_along_dim(leader, dim=-1))  # exact where behind is 0
        if not bool((gap > 0).any()):
            break
        leader = gap.argmax(dim=-1, keepdim=True)
    return leader.squeeze(-1)


def majority_vote(logits: Tensor) -> Tensor:
    """Each candidate votes for its largest logit; the share of votes is the probability.

    It is piecewise constant: its gradient is zero, and exists only so that attacks run.
    """
    votes = torch.zeros_like(logits).scatter_(-1, logits.argmax(dim=-1, keepdim=True), 1.0)
    return votes.mean(dim=0).log() + 0 * logits.sum(dim=0)


def join(logits: Tensor, own: Tensor, weight: float) -> Tensor:
    """Each candidate's logits, averaged with the classifier's `own` on the input, (B, K).

    The candidate counts once and the classifier `weight` times: the defence starts from the bare
    classifier's answer instead of from nothing. At weight 0 only the candidates count, and as it
    grows only the classifier.
    """
    return own + (logits - own) / (1 + weight)


AGGREGATIONS: dict[str, Reduction] = {
    "double-exponential": double_exponential,
    "mean-logits": mean_logits,
    "mean-probabilities": mean_probabilities,
    "majority-vote": majority_vote,
    "anchored": mean_logits,  # of logits that `join` has anchored
}


def aggregation(name: str) -> Reduction:
    """The aggregation called `name`."""
    return chosen(name, AGGREGATIONS, "aggregation")


def view(name: str, aggregate: Reduction) -> Reduction:
    """The scores called `name`, of a defence that aggregates by `aggregate`."""
    return chosen(name, {**VIEWS, "log-prob": aggregate}, "view")


def view_mean_logits(logits: Tensor) -> Tensor:
    """The mean logit: never saturates, and nearly always has the argmax of every aggregation."""
    return logits.mean(dim=0)


def view_logsumexp(logits: Tensor) -> Tensor:
    """log s: the double exponential's own score on a scale that does not overflow."""
    return logits.logsumexp(dim=0)


def view_score(logits: Tensor) -> Tensor:
    """s = sum_a exp(l^a), of which P is the softmax."""
    return logits.exp().sum(dim=0)


def view_released(logits: Tensor) -> Tensor:
    """The log-odds as the released code computes them, in the dtype of the logits.

    In float32 p rounds to 1 as soon as s leads by about 17; then log(p / (1 - p)) is infinite and
    the gradient of a loss on it NaN. Kept to reproduce the published number, and to show what it
    rests on.
    """
    probability = logits.exp().sum(dim=0).softmax(dim=-1)
    return torch.log(probability / (1 - probability))


VIEWS: dict[str, Reduction] = {
    "mean-logits": view_mean_logits,
    "logsumexp": view_logsumexp,
    "score": view_score,
    "released": view_released,
}


def chosen(name: str, table: dict[str, Reduction], kind: str) -> Reduction:
    """An entry of `table`, or an error that lists them all."""
    if text(kind, name) not in table:
        raise CarsoError(f"there is no {kind} {name!r}; there are {', '.join(table)}")
    return table[name]


WITHOUT_FLOAT64 = ("mps",)
"""Kinds of device; their logits, which are few, are aggregated on the CPU."""


def wide(logits: Tensor) -> Tensor:
    """The logits in float64."""
    place = "cpu" if logits.device.type in WITHOUT_FLOAT64 else logits.device
    return logits.to(device=place, dtype=torch.float64)


def rounded(exact: Tensor, leader: Tensor, like: Tensor) -> Tensor:
    """`exact` (B, K) with the dtype and device of `like`; rounding takes the lead from no `leader`.

    Classes that rounding would lift to the leader's value or above stay the next number below it.
    """
    close = exact.to(like.dtype)
    top = close.detach().take_along_dim(leader.unsqueeze(-1), dim=-1)  # (B, 1)
    ties = (close.detach() >= top).scatter(-1, leader.unsqueeze(-1), False)
    below = torch.nextafter(top, torch.full_like(top, -torch.inf)) - close.detach()
    return (close + torch.where(ties, below, 0.0)).to(like.device)
