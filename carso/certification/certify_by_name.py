"""`carso certify`: a shipped defence or a run, on images of its data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from carso.certification.certify import certify
from carso.distributed.processes import ALONE, Processes
from carso.errors import CarsoError
from carso.evaluation.by_name import Images, named_model
from carso.evaluation.protocol import Counted
from carso.scenario.schema import Scenario


def certify_by_name(
    name: str,
    images: Images,
    *,
    sigma: float | None,
    bare: bool,
    hardened: bool | None = None,
    classifier: nn.Module | None = None,
    called: str = "",
    device: torch.device,
    counted: Counted,
    seed: int,
    processes: Processes = ALONE,
    **settings: Any,
) -> dict[str, Any]:
    """The certificates of a shipped defence or of a run; with `bare`, of its classifier alone.
    Without a `sigma`, under the noise that it was trained on."""
    if bare and hardened is not None:
        raise CarsoError("--unhardened chooses a purifier, and --bare has none: give one of them")
    chosen = {} if bare else {"hardened": hardened, "seed": seed}
    model, known = named_model(name, bare=bare, classifier=classifier, device=device, **chosen)
    if sigma is None:
        sigma = trained_on(known.scenario, name, bare=bare)
    data, split = processes.first_then_others(lambda: images.load(known))
    pixels, labels = split.batch(slice(None))
    return certify(
        model,
        pixels,
        labels,
        sigma=sigma,
        seed=seed,
        name=called or (f"{Path(name).name}, bare" if bare else Path(name).name),
        device=device,
        counted=counted,
        about={"data": images.described(data)},
        processes=processes,
        **settings,
    )


def trained_on(scenario: Scenario, name: str, *, bare: bool) -> float:
    """The deviation of the noise that a defence, or its classifier, was trained on."""
    stage = scenario.classifier.training if bare else scenario.hardening
    if stage is None or not stage.sigma:
        what = f"the classifier of {name}" if bare else name
        raise CarsoError(
            f"--sigma is missing, and {what} was trained on no noise that would say it"
        )
    return stage.sigma
