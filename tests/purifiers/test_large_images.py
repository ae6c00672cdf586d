"""The U-Net learns from images of 224 pixels a side within the memory of a small machine."""

import pytest
import torch

from carso.classifiers.frozen import freeze
from carso.classifiers.resnet import SmallResNet
from carso.data import ImageData, Split
from carso.defence.around import purifier_around
from carso.scenario.hardening_settings import HardeningSettings
from carso.threats.linf import Linf
from carso.training.hardening import HardeningStage

SIDE = 224


def photographs() -> ImageData:
    source = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        pixels = torch.randint(0, 256, (count, 3, SIDE, SIDE), generator=source)
        return Split(images=pixels.to(torch.uint8), labels=torch.arange(count) % 10)

    return ImageData(
        name="photographs",
        classes=tuple("abcdefghij"),
        train=split(2),
        validation=split(10),
        test=split(10),
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        origin="a test",
        fingerprint="photographs",
    )


@pytest.mark.slow
def test_a_unet_is_hardened_by_a_step_on_two_images_of_224_pixels() -> None:
    torch.manual_seed(0)
    data, network = photographs(), freeze(SmallResNet(20, 10))
    purifier = purifier_around(
        network, (3, SIDE, SIDE), layers=["conv1", "layer2", "layer3"], kind="unet"
    )
    stage = HardeningStage(
        network,
        purifier,
        data,
        hardening=HardeningSettings(epochs=1, batch_size=2, attack_steps=1, attack_step_size=0.02),
        threat=Linf(eps=8 / 255),
        seed=0,
        device=torch.device("cpu"),
        identity={},
    )
    images, labels = data.train.batch(slice(None))
    found = stage.update(images, labels, torch.Generator().manual_seed(0))
    assert found.isfinite().all()
    assert stage.step == 1
    for name, parameter in purifier.named_parameters():  # type: ignore[attr-defined]
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert any(float(p.grad.abs().max()) > 0 for p in purifier.parameters() if p.grad is not None)
    assert tuple(stage.defence.purify(images).shape) == (1, 2, 3, SIDE, SIDE)
