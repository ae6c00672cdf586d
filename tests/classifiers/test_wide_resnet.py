"""The WideResNet is the published one: its size, its names, its arithmetic."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.defence.representation import Representation
from carso.errors import CarsoError

LAYERS_OF_THE_PAPER = [
    "layer.0.block.0.conv_0",
    "layer.0.block.0.conv_1",
    "layer.0.block.1.conv_0",
    "layer.0.block.1.conv_1",
    "layer.0.block.2.conv_0",
    "layer.0.block.2.conv_1",
    "layer.0.block.3.conv_0",
    "layer.0.block.3.conv_1",
    "layer.1.block.0.conv_0",
    "layer.1.block.0.conv_1",
    "layer.1.block.0.shortcut",
    "layer.1.block.1.conv_0",
    "layer.1.block.1.conv_1",
    "layer.1.block.2.conv_0",
    "layer.1.block.2.conv_1",
    "layer.1.block.3.conv_0",
    "layer.1.block.3.conv_1",
    "layer.2.block.0.conv_0",
    "layer.2.block.0.conv_1",
    "layer.2.block.0.shortcut",
    "layer.2.block.1.conv_0",
    "layer.2.block.1.conv_1",
    "layer.2.block.2.conv_0",
    "layer.2.block.2.conv_1",
    "layer.2.block.3.conv_0",
    "layer.2.block.3.conv_1",
]

NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def on_meta(depth: int = 28, width: int = 10, classes: int = 10) -> WideResNet:
    """A network of full size that takes no memory."""
    with torch.device("meta"):
        return WideResNet(depth, width, classes=classes)


def randomised(network: WideResNet, seed: int = 0) -> WideResNet:
    """Weights and batch-norm statistics that all leave a trace in the output; in float64."""
    source = torch.Generator().manual_seed(seed)
    network = network.double().eval()
    for name, value in network.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        noise = torch.rand(value.shape, generator=source, dtype=torch.float64)
        if name.endswith("running_var"):
            value.copy_(0.5 + noise)
        elif value.ndim == 4:
            value.copy_((2 * noise - 1) * (6 / value[0].numel()) ** 0.5)
        else:
            value.copy_(2 * noise - 1)
    return network


# The forward pass of the published networks, written straight down from the named tensors.


def norm(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
    mean, var, weight, bias = (t.view(-1, 1, 1) for t in (mean, var, weight, bias))
    return (x - mean) / (var + 1e-5).sqrt() * weight + bias


def block(state: dict[str, Tensor], name: str, x: Tensor, pad: tuple[int, ...], s: int) -> Tensor:
    a = F.silu(norm(state, f"{name}.batchnorm_0", x))
    shortcut = state.get(f"{name}.shortcut.weight")
    residual = x if shortcut is None else F.conv2d(a, shortcut, stride=s)
    out = F.conv2d(F.pad(a, pad), state[f"{name}.conv_0.weight"], stride=s)
    out = F.silu(norm(state, f"{name}.batchnorm_1", out))
    return residual + F.conv2d(F.pad(out, (1, 1, 1, 1)), state[f"{name}.conv_1.weight"])


def tail(state: dict[str, Tensor], x: Tensor) -> Tensor:
    x = F.silu(norm(state, "batchnorm", x))
    pooled = x.flatten(2).sum(dim=2) / x[0, 0].numel()
    return pooled @ state["logits.weight"].T + state["logits.bias"]


def published_wrn_16(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """WRN-16 on 32x32 images: two blocks in each group, strides 1, 2, 2."""
    x = F.conv2d(F.pad(images, (1, 1, 1, 1)), state["init_conv.weight"])
    x = block(state, "layer.0.block.0", x, (1, 1, 1, 1), 1)
    x = block(state, "layer.0.block.1", x, (1, 1, 1, 1), 1)
    x = block(state, "layer.1.block.0", x, (0, 1, 0, 1), 2)
    x = block(state, "layer.1.block.1", x, (1, 1, 1, 1), 1)
    x = block(state, "layer.2.block.0", x, (0, 1, 0, 1), 2)
    x = block(state, "layer.2.block.1", x, (1, 1, 1, 1), 1)
    assert x.shape[2:] == (8, 8)
    return tail(state, x)


def same(side: int) -> tuple[int, int]:
    """TensorFlow's "same" padding, before and after, of a 3-wide kernel at stride 2."""
    total = max((-(-side // 2) - 1) * 2 + 3 - side, 0)
    return total // 2, total - total // 2


def wrn_10_with_strides_of_2(state: dict[str, Tensor], images: Tensor) -> Tensor:
    x = F.conv2d(F.pad(images, (1, 1, 1, 1)), state["init_conv.weight"])
    for g in range(3):
        x = block(state, f"layer.{g}.block.0", x, (*same(x.shape[3]), *same(x.shape[2])), 2)
    return tail(state, x)


def test_wrn_28_10_has_the_published_number_of_parameters() -> None:
    millions = sum(p.numel() for p in on_meta().parameters()) / 1e6
    assert f"{millions:.2f}" == "36.48"


def test_state_dict_has_the_published_names_and_no_others() -> None:
    expected = {"init_conv.weight", "logits.weight", "logits.bias"}
    expected |= {f"batchnorm.{part}" for part in NORM}
    for g in range(3):
        for b in range(4):
            name = f"layer.{g}.block.{b}"
            expected |= {f"{name}.conv_0.weight", f"{name}.conv_1.weight"}
            expected |= {f"{name}.batchnorm_{i}.{part}" for i in (0, 1) for part in NORM}
        expected.add(f"layer.{g}.block.0.shortcut.weight")
    assert set(on_meta().state_dict()) == expected


def test_weights_have_the_published_shapes() -> None:
    state = on_meta(classes=100).state_dict()
    assert state["init_conv.weight"].shape == (16, 3, 3, 3)
    assert state["layer.0.block.0.conv_0.weight"].shape == (160, 16, 3, 3)
    assert state["layer.0.block.0.shortcut.weight"].shape == (160, 16, 1, 1)
    assert state["layer.1.block.0.conv_0.weight"].shape == (320, 160, 3, 3)
    assert state["layer.2.block.0.batchnorm_0.weight"].shape == (320,)
    assert state["layer.2.block.3.conv_1.weight"].shape == (640, 640, 3, 3)
    assert state["batchnorm.weight"].shape == (640,)
    assert state["logits.weight"].shape == (100, 640)


def test_forward_is_the_published_arithmetic() -> None:
    network = randomised(WideResNet(16, 2, classes=7))
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        expected = published_wrn_16(network.state_dict(), images)
        torch.testing.assert_close(network(images), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("size", [(28, 28), (12, 20), (9, 14), (7, 7)])
def test_other_sizes_are_padded_as_tensorflow_does(size: tuple[int, int]) -> None:
    network = randomised(WideResNet(10, 1, classes=5, channels=1, strides=(2, 2, 2)))
    images = torch.rand(2, 1, *size, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad():
        expected = wrn_10_with_strides_of_2(network.state_dict(), images)
        torch.testing.assert_close(network(images), expected, rtol=1e-11, atol=1e-11)


def test_sides_are_halved_and_rounded_up() -> None:
    network = WideResNet(10, 1, classes=5, channels=1, strides=(2, 2, 2))
    layers = [f"layer.{g}.block.0.{part}" for g in range(3) for part in ("conv_1", "shortcut")]
    shapes = Representation(network, layers).shapes((1, 28, 28))
    assert [shape[1:] for shape in shapes] == [(14, 14)] * 2 + [(7, 7)] * 2 + [(4, 4)] * 2


def test_the_representation_is_that_of_the_paper() -> None:
    layers = conditioning_layers(28)
    assert list(layers) == LAYERS_OF_THE_PAPER
    shapes = Representation(on_meta(), layers).shapes((3, 32, 32))
    assert shapes == [(160, 32, 32)] * 8 + [(320, 16, 16)] * 9 + [(640, 8, 8)] * 9


@pytest.mark.parametrize("depth", [10, 16, 22])
def test_conditioning_layers_of_smaller_networks_exist(depth: int) -> None:
    modules = dict(on_meta(depth, 2).named_modules())
    layers = conditioning_layers(depth)
    assert len(layers) == len(set(layers)) == 6 * (depth - 4) // 6 + 2
    assert all(isinstance(modules[name], nn.Conv2d) for name in layers)


def test_images_are_normalised_inside_and_the_statistics_stay_out_of_the_file() -> None:
    mean, std = (0.5, 0.2, 0.1), (0.3, 0.25, 2.0)
    plain = randomised(WideResNet(10, 1, classes=5))
    normalising = WideResNet(10, 1, classes=5, mean=mean, std=std).double().eval()
    normalising.load_state_dict(plain.state_dict())
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()
    standardised = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(normalising(images), plain(standardised), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("depth", [-2, 0, 4, 9, 12, 27, 29])
def test_a_depth_that_does_not_exist_is_named(depth: int) -> None:
    with pytest.raises(CarsoError, match=rf"6n \+ 4 .*got {depth}$"):
        WideResNet(depth, 2, classes=10)


@pytest.mark.parametrize("strides", [(1, 2), (1, 2, 2, 2), (1, 2, 3), (0, 1, 2)])
def test_strides_that_do_not_exist_are_named(strides: tuple[int, ...]) -> None:
    with pytest.raises(CarsoError, match=r"three numbers of 1 or 2") as caught:
        WideResNet(16, 2, classes=10, strides=strides)
    assert str(strides) in str(caught.value)
