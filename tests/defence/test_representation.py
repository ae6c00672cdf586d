"""Activations at named layers: in order, in one pass, and without a trace on the classifier."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carso.classifiers.wide_resnet import WideResNet, conditioning_layers
from carso.defence.representation import Representation
from carso.errors import CarsoError


class Convolutional(nn.Module):
    """A small network that counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.head = nn.Linear(6, 3)
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        x = torch.tanh(self.first(images))
        x = torch.tanh(self.second(x))
        return self.head(x.mean(dim=(2, 3)))


class Transformer(nn.Module):
    """Patches to tokens, one encoder layer, and a vector at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, stride=4)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)  # (B, T, C)
        return self.head(self.norm(self.encoder(tokens)).mean(dim=1))


class Awkward(nn.Module):
    """Has a layer that never runs, one that gives a tuple, and one that gives a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(4, 4)
        self.recurrent = nn.GRU(4, 4, batch_first=True)
        self.volume = nn.Unflatten(1, (1, 2, 2, 1))
        self.total = nn.Flatten(0)
        self.head = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        tokens = images.flatten(2).mean(dim=1, keepdim=True)  # (B, 1, 4)
        out, _ = self.recurrent(tokens)
        self.volume(out[:, 0])
        self.total(out)
        return self.head(out[:, 0])


class Breaking(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("broken on purpose")


def images(count: int = 3, side: int = 8) -> Tensor:
    return torch.rand(count, 1, side, side, generator=torch.Generator().manual_seed(0))


def hooks(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def test_activations_come_in_the_order_asked_for() -> None:
    network = Convolutional().eval()
    x = images()
    first = network.first(x)
    second = network.second(torch.tanh(first))
    logits = network.head(torch.tanh(second).mean(dim=(2, 3)))
    outputs = {"first": first, "second": second, "head": logits}
    for layers in (["first", "second", "head"], ["head", "first"], ["second", "first", "second"]):
        got = Representation(network, layers)(x)
        assert len(got) == len(layers)
        for activation, name in zip(got, layers, strict=True):
            torch.testing.assert_close(activation, outputs[name])


def test_one_pass_gives_all_activations_and_the_logits() -> None:
    network = Convolutional()
    representation = Representation(network, ["second", "first", "head"])
    activations, logits = representation.with_logits(images())
    assert network.passes == 1
    assert torch.equal(logits, network(images()))
    assert torch.equal(activations[2], logits)
    representation(images())
    assert network.passes == 3


def test_hooks_are_gone_after_a_pass() -> None:
    network = Convolutional()
    representation = Representation(network, ["first", "second"])
    assert hooks(network) == 0
    representation(images())
    representation.shapes((1, 8, 8))
    assert hooks(network) == 0


def test_hooks_of_others_stay() -> None:
    network = Convolutional()
    seen: list[int] = []
    network.first.register_forward_hook(lambda *_: seen.append(1))
    Representation(network, ["first", "second"])(images())
    assert seen == [1]
    assert hooks(network) == 1


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_hooks_are_gone_after_a_failure_inside_the_classifier(failing: int) -> None:
    stack: list[nn.Module] = [nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, 3)]
    stack.insert(failing, Breaking())
    network = nn.Sequential(*stack)
    representation = Representation(network, ["1", "2", "3"])
    with pytest.raises(RuntimeError, match="broken on purpose"):
        representation(images())
    assert hooks(network) == 0


def test_gradients_are_kept_by_default() -> None:
    x = images().requires_grad_(True)
    for activation in Representation(Convolutional(), ["first", "second", "head"])(x):
        (gradient,) = torch.autograd.grad(activation.square().sum(), x, retain_graph=True)
        assert gradient.abs().sum() > 0


def test_gradients_are_those_of_the_network_itself() -> None:
    network = Convolutional()
    x = images().requires_grad_(True)
    (activation,) = Representation(network, ["second"])(x)
    (got,) = torch.autograd.grad(activation.square().sum(), x)
    direct = network.second(torch.tanh(network.first(x)))
    (expected,) = torch.autograd.grad(direct.square().sum(), x)
    torch.testing.assert_close(got, expected)


def test_gradients_are_cut_when_asked() -> None:
    x = images().requires_grad_(True)
    representation = Representation(Convolutional(), ["first", "head"])
    assert not any(a.requires_grad for a in representation(x, gradients=False))
    with torch.no_grad():
        assert not any(a.requires_grad for a in representation(x, gradients=True))
    assert torch.is_grad_enabled()


def test_images_tokens_and_vectors() -> None:
    network = Transformer()
    representation = Representation(network, ["patches", "encoder", "norm", "head"])
    expected = [(8, 2, 2), (4, 8), (4, 8), (3,)]
    assert representation.shapes((1, 8, 8)) == expected
    with torch.no_grad():
        activations = representation(images())
        tokens = network.patches(images()).flatten(2).transpose(1, 2)
        torch.testing.assert_close(activations[1], network.encoder(tokens))
    assert [tuple(a.shape[1:]) for a in activations] == expected


def test_shapes_take_the_dtype_of_the_classifier() -> None:
    assert Representation(Convolutional().double(), ["second"]).shapes((1, 9, 8)) == [(6, 5, 4)]


def test_layers_inside_layers_are_found_by_their_full_name() -> None:
    network = WideResNet(10, 1, classes=4, channels=1)
    layers = conditioning_layers(10)
    activations = Representation(network, layers)(images())
    assert len(activations) == len(layers)
    assert all(isinstance(activation, Tensor) for activation in activations)


class InPlace(nn.Module):
    """Overwrites the output of its convolution, in one of the usual ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.relu = nn.ReLU(inplace=way == "module")
        self.head = nn.Linear(4, 3)
        self.way = way

    def forward(self, images: Tensor) -> Tensor:
        x = self.conv(images)
        if self.way == "module":
            x = self.relu(x)
        elif self.way == "function":
            x = F.relu(x, inplace=True)
        elif self.way == "method":
            x = x.clamp_(min=0)
        elif self.way == "residual":
            x += images
        elif self.way == "view":
            x.flatten(1).mul_(2)
        return self.head(x.mean(dim=(2, 3)))


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("way", ["module", "function", "method", "residual", "view"])
def test_an_activation_is_kept_as_it_was_when_a_later_operation_overwrites_it(
    way: str, gradients: bool
) -> None:
    network = InPlace(way)
    x = images().requires_grad_(gradients)
    expected = network.conv(x)
    (activation,) = Representation(network, ["conv"])(x, gradients=gradients)
    assert torch.equal(activation, expected)
    if gradients:
        (got,) = torch.autograd.grad(activation.square().sum(), x)
        (direct,) = torch.autograd.grad(expected.square().sum(), x)
        torch.testing.assert_close(got, direct)


@pytest.mark.parametrize("way", ["module", "function", "residual"])
def test_an_activation_is_kept_as_it_was_in_inference_mode(way: str) -> None:
    network = InPlace(way)
    with torch.inference_mode():
        (activation,) = Representation(network, ["conv"])(images())
        assert torch.equal(activation, network.conv(images()))


@pytest.mark.parametrize("wrong", ["layer.1.block.0.conv0", "layer.1.block.0.conv_2"])
def test_an_unknown_layer_is_an_error_that_lists_the_nearest(wrong: str) -> None:
    with pytest.raises(CarsoError) as caught:
        Representation(WideResNet(10, 1, classes=4), ["init_conv", wrong])
    message = str(caught.value)
    assert repr(wrong) in message
    assert "'layer.1.block.0.conv_0'" in message
    assert "'layer.1.block.0.conv_1'" in message
    assert "\n" not in message


@pytest.mark.parametrize("wrong", ["", "nothing like it at all"])
def test_a_layer_near_to_none_still_gets_examples(wrong: str) -> None:
    with pytest.raises(CarsoError, match="'first'"):
        Representation(Convolutional(), [wrong])


def test_no_layers_are_refused() -> None:
    with pytest.raises(CarsoError, match="at least one layer"):
        Representation(Convolutional(), [])


def test_a_layer_that_never_runs_is_named() -> None:
    representation = Representation(Awkward(), ["head", "unused"])
    with pytest.raises(CarsoError, match="never runs layer 'unused'"):
        representation(images(side=2))


@pytest.mark.parametrize(
    ("layer", "found"),
    [("recurrent", "tuple"), ("volume", r"\(3, 1, 2, 2, 1\)"), ("total", r"\(12,\)")],
)
def test_a_layer_that_no_purifier_can_read_is_named(layer: str, found: str) -> None:
    network = Awkward()
    representation = Representation(network, ["head", layer])
    with pytest.raises(CarsoError, match=rf"'{layer}' gives {found}.*\(B, C, H, W\)"):
        representation(images(side=2))
    assert hooks(network) == 0
