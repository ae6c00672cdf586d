"""Learning rates and the weight of the KL term, as plain functions of time."""

from __future__ import annotations

import math

from carso.scenario.purifier_training_settings import PurifierTrainingSettings

START, END = 1 / 25, 1e-4
"""The one-cycle rate at its start and end, as shares of the peak."""


def one_cycle(progress: float, *, peak: float, warmup: float, end: float = END) -> float:
    """The rate when a share `progress` of the run is done: up linearly, down as a cosine to a
    share `end` of the peak."""
    if progress < warmup:
        return peak * (START + (1 - START) * progress / warmup)
    down = (progress - warmup) / (1 - warmup)
    return peak * (end + (1 - end) * (1 + math.cos(math.pi * down)) / 2)


def three_phase(epoch: int, training: PurifierTrainingSettings) -> float:
    """The purifier's rate in `epoch` (from 0): linear warm-up, plateau, linear annealing that
    reaches the final rate in the last epoch (section 5.1 and the paper's table)."""
    warm, flat = training.warmup_epochs, training.plateau_epochs
    initial, plateau = training.initial_rate, training.plateau_rate
    if epoch < warm:
        return initial + (plateau - initial) * epoch / warm
    if epoch < warm + flat:
        return plateau
    last = training.epochs - 1
    annealed = (epoch - warm - flat) / (last - warm - flat) if epoch < last else 1.0
    return plateau + (training.final_rate - plateau) * annealed


def kl_weight(epoch: int, training: PurifierTrainingSettings) -> float:
    """The beta of `epoch`: 0 up to `beta_start`, then linear to its full weight at `beta_end`."""
    if epoch >= training.beta_end:
        return training.beta
    if epoch <= training.beta_start:
        return 0.0
    return training.beta * (epoch - training.beta_start) / (training.beta_end - training.beta_start)
