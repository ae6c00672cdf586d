"""`carso.fit` and `carso.harden`: a defence for a classifier of the user's own, in one call."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from carso.classifiers.frozen import freeze
from carso.data import ImageData
from carso.defence.around import purifier_around
from carso.defence.defence import Carso
from carso.defence.representation import check_fit
from carso.errors import CarsoError
from carso.purifiers.vae.vae import VAEPurifier
from carso.randomness import seeded
from carso.scenario.training_settings import (
    BatchAttackSettings,
    HardeningSettings,
    PurifierTrainingSettings,
)
from carso.threats.linf import Linf
from carso.training.anchoring import choose
from carso.training.batches import AdversarialBatches
from carso.training.hardening import HardeningStage
from carso.training.loop import Display, Quiet, train_in_memory
from carso.training.purifier_stage import PurifierStage


def fit(
    classifier: nn.Module,
    data: ImageData,
    *,
    layers: Sequence[str],
    eps: float,
    epochs: int = 10,
    samples: int = 8,
    batch_size: int = 128,
    rate: float = 2e-3,
    fraction: float = 0.5,
    condition: int = 256,
    latent: int = 64,
    decoder_width: int = 128,
    steps: int = 10,
    seed: int = 0,
    device: torch.device | str = "cpu",
    display: Display | None = None,
) -> Carso:
    """Train the paper's purifier around `classifier`, which maps images in [0, 1] to logits and
    whose weights do not change: it is frozen in place. `layers` names the activations that the
    purifier reads."""
    place, threat = torch.device(device), Linf(eps=eps)
    frozen = freeze(classifier).to(place)
    check_fit(frozen, data, layers=layers)
    sizes: dict[str, Any] = {
        "condition": condition,
        "latent": latent,
        "decoder_width": decoder_width,
    }
    with seeded(seed, "purifier", "weights"):
        purifier = purifier_around(
            frozen, data.image_shape, layers=layers, mean=data.mean, std=data.std, **sizes
        )
    attacks = BatchAttackSettings(
        fraction=fraction, steps=steps, step_size=2.5 * eps / max(1, steps), bank="memory"
    )
    training = PurifierTrainingSettings(
        epochs=epochs,
        batch_size=batch_size,
        initial_rate=rate / 2,
        plateau_rate=rate,
        final_rate=rate / 100,
        warmup_epochs=math.ceil(epochs / 8),
        plateau_epochs=epochs // 8,
        beta_start=epochs // 8,
        beta_end=epochs // 4,
    )
    stage = PurifierStage(
        frozen,
        purifier,
        AdversarialBatches(
            frozen, data.train, settings=attacks, threat=threat, seed=seed, device=place
        ),
        data,
        training=training,
        threat=threat,
        seed=seed,
        device=place,
        identity={},
    )
    train_in_memory(stage, display or Quiet())
    return Carso(frozen, stage.result().deployed(), samples=samples, seed=seed)


def harden(
    classifier: nn.Module,
    data: ImageData,
    *,
    layers: Sequence[str],
    eps: float,
    epochs: int = 8,
    start: VAEPurifier | None = None,
    steps: int = 2,
    condition: int = 256,
    latent: int = 64,
    decoder_width: int = 128,
    seed: int = 0,
    device: torch.device | str = "cpu",
    display: Display | None = None,
    **settings: Any,
) -> Carso:
    """A defence whose purifier is trained against attacks on the whole of it, from `start` or
    from scratch; `classifier` is frozen in place.

    `settings` are the others of `[hardening]` in a scenario file; `steps` is its attack_steps.
    Over a classifier that is robust by itself, aggregation="anchored" keeps what it has; how much
    its own logits count is then chosen on validation images.
    """
    place, threat = torch.device(device), Linf(eps=eps)
    frozen = freeze(classifier).to(place)
    check_fit(frozen, data, layers=layers)
    if start is not None and start.layers != tuple(layers):
        raise CarsoError(f"the purifier to start from reads the layers {', '.join(start.layers)}")
    sizes: dict[str, Any] = {
        "condition": condition,
        "latent": latent,
        "decoder_width": decoder_width,
    }
    with seeded(seed, "hardening", "weights"):
        purifier = start or purifier_around(frozen, data.image_shape, layers=layers, **sizes)
    chosen = {"attack_step_size": 1.5 * eps / max(1, steps), "eps_epochs": epochs / 4, **settings}
    hardening = HardeningSettings(epochs=epochs, attack_steps=steps, **chosen)
    stage = HardeningStage(
        frozen,
        copy.deepcopy(purifier),
        data,
        hardening=hardening,
        threat=threat,
        seed=seed,
        device=place,
        identity={},
    )
    train_in_memory(stage, display or Quiet())
    defence = stage.around(frozen, stage.result(), samples=hardening.samples)
    if defence.aggregation == "anchored":
        count = hardening.validation_images
        choose(defence, data, threat=threat, count=count, seed=seed, device=place)
    return defence
