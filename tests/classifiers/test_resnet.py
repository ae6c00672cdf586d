"""The small ResNets compute what their published weights were trained for."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from carso.classifiers.resnet import ResidualBlock, SmallResNet
from carso.errors import CarsoError


@pytest.mark.parametrize(("depth", "blocks"), [(20, 3), (32, 5), (44, 7), (56, 9)])
def test_a_depth_has_its_number_of_blocks_and_of_layers(depth: int, blocks: int) -> None:
    network = SmallResNet(depth, classes=10)
    assert [len(part) for part in (network.layer1, network.layer2, network.layer3)] == [blocks] * 3
    weighted = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(weighted) == depth


def test_the_resnet20_has_as_many_parameters_as_is_published() -> None:
    assert sum(p.numel() for p in SmallResNet(20, classes=10).parameters()) == 269_722


def test_another_depth_is_refused() -> None:
    with pytest.raises(CarsoError, match="6n \\+ 2"):
        SmallResNet(18, classes=10)


def test_the_shortcut_takes_every_second_pixel_and_pads_both_ends_of_the_channels() -> None:
    images = torch.rand(2, 16, 8, 8)
    found = ResidualBlock(16, 32, 2).shortcut(images)
    assert found.shape == (2, 32, 4, 4)
    assert torch.equal(found[:, 8:24], images[:, :, 0::2, 0::2])
    assert not found[:, :8].any()
    assert not found[:, 24:].any()
    assert torch.equal(ResidualBlock(16, 16, 1).shortcut(images), images)


def by_hand(network: SmallResNet, images: Tensor) -> Tensor:
    """The same from the weights alone, at stride 1 and 2, written another way."""
    state = network.state_dict()

    def norm(x: Tensor, name: str) -> Tensor:
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        scale = state[f"{name}.weight"] / (var + 1e-5).sqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + state[f"{name}.bias"][
            :, None, None
        ]

    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.4])
    x = (images - mean[:, None, None]) / std[:, None, None]
    x = norm(F.conv2d(x, state["conv1.weight"], padding=1), "bn1").clamp(min=0)
    for group, channels in ((1, 16), (2, 32), (3, 64)):
        for block in range(3):
            name = f"layer{group}.{block}"
            stride = 2 if group > 1 and block == 0 else 1
            y = F.conv2d(x, state[f"{name}.conv1.weight"], padding=1, stride=stride)
            y = norm(y, f"{name}.bn1").clamp(min=0)
            y = norm(F.conv2d(y, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
            if stride == 2:
                half = torch.zeros(len(x), channels // 4, *y.shape[2:])
                x = torch.cat([half, x[:, :, ::2, ::2], half], dim=1)
            x = (x + y).clamp(min=0)
    return x.flatten(2).mean(dim=2) @ state["linear.weight"].T + state["linear.bias"]


def test_the_network_is_the_published_layout() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = SmallResNet(20, classes=10, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)).eval()
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.normal_(module.running_mean, std=0.1)
                torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
                torch.nn.init.normal_(module.bias, std=0.1)
        images = torch.rand(3, 3, 32, 32)
    torch.testing.assert_close(network(images), by_hand(network, images), rtol=1e-4, atol=1e-4)


def test_mean_and_std_are_no_weights_but_move_with_the_network() -> None:
    network = SmallResNet(20, classes=10, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    assert not {"mean", "std"} & network.state_dict().keys()
    assert network.double().mean.dtype == torch.float64
