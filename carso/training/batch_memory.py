"""Whether the batches of a training fit in memory, asked before it begins."""

from __future__ import annotations

import torch
from torch import nn

from carso.data import ImageData
from carso.distributed.processes import ALONE, Processes
from carso.machine.limits import check_fits, need_of_an_image
from carso.scenario.schema import Scenario


def check_batches(
    scenario: Scenario,
    classifier: nn.Module,
    data: ImageData,
    device: torch.device,
    processes: Processes = ALONE,
) -> None:
    """Refuse batches that would not fit in memory: every stage puts them through the classifier
    with gradients, if nothing else."""
    if device.type != "cpu":
        return  # a GPU that is full says so itself, at once
    stages = (scenario.classifier.training, scenario.purifier.training, scenario.hardening)
    most = max((stage.batch_size for stage in stages if stage is not None), default=0)
    image = data.train.batch(slice(1))[0].to(device)
    training = classifier.training
    classifier.eval()  # batch norm learns nothing from this
    each, base = need_of_an_image(
        lambda count: classifier(image.repeat(count, 1, 1, 1).requires_grad_(True))
    )
    classifier.train(training)
    share = -(-min(most, len(data.train)) // processes.world_size)
    check_fits("images of a batch", share, each, base=base, option="batch_size =")
