"""A frozen classifier never changes, whoever calls train(), requires_grad_() or an optimiser."""

import torch
from torch import Tensor, nn

from carso.classifiers.frozen import Frozen, freeze
from carso.defence.defence import Carso
from carso.defence.representation import Representation
from carso.purifiers.vae.vae import VAEPurifier

SHAPE = (1, 12, 12)


def small_network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(4 * 36, 3),
        )


def defence(classifier: nn.Module) -> Carso:
    shapes = Representation(classifier, ["0"]).shapes(SHAPE)
    purifier = VAEPurifier(
        SHAPE, layers=["0"], shapes=shapes, condition=8, latent=8, decoder_width=16
    )
    return Carso(classifier, purifier, samples=2)


def images(count: int = 4) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_unchanged(module: nn.Module, before: dict[str, Tensor]) -> None:
    after = module.state_dict()
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert torch.equal(after[name], value), f"{name} changed"


def optimise(module: nn.Module, output: Tensor) -> None:
    """One step with everything an optimiser could do to a parameter that it holds."""
    optimiser = torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.9, weight_decay=0.1)
    output.square().sum().backward()
    optimiser.step()


def test_freezing_twice_is_freezing_once() -> None:
    frozen = freeze(small_network())
    assert isinstance(frozen, Frozen)
    assert freeze(frozen) is frozen


def test_freezing_changes_no_output() -> None:
    network = small_network().eval()
    expected = network(images())
    assert torch.equal(freeze(network)(images()), expected)


def test_train_never_reaches_the_classifier() -> None:
    network = small_network()
    before = snapshot(network)
    frozen = freeze(network)
    assert frozen.train() is frozen
    assert not any(module.training for module in frozen.modules())
    frozen(images())
    assert_unchanged(network, before)


def test_train_of_an_enclosing_module_never_reaches_the_classifier() -> None:
    network = small_network()
    before = snapshot(network)
    outer = defence(network).train()
    assert not outer.training
    assert not any(module.training for module in network.modules())
    assert not any(module.training for module in outer.representation.classifier.modules())
    outer(images())
    outer.representation(images())
    assert_unchanged(network, before)


def test_train_of_the_wrapped_network_itself_does_not_move_its_statistics() -> None:
    """The user still holds the network that was frozen, and may go on using it."""
    network = small_network()
    before = snapshot(network)
    frozen = freeze(network)
    network.train().requires_grad_(True)
    frozen(images()).sum()
    assert_unchanged(network, before)


def test_the_classifier_gets_no_gradients_but_its_input_does() -> None:
    network = small_network()
    inputs = images().requires_grad_(True)
    freeze(network)(inputs).sum().backward()
    assert all(parameter.grad is None for parameter in network.parameters())
    assert inputs.grad is not None
    assert inputs.grad.abs().sum() > 0


def test_requires_grad_does_not_thaw_the_classifier() -> None:
    frozen = freeze(small_network())
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert frozen.requires_grad_(True) is frozen
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    frozen(images().requires_grad_(True)).sum().backward()
    assert all(parameter.grad is None for parameter in frozen.parameters())


def test_requires_grad_of_an_enclosing_module_does_not_thaw_the_classifier() -> None:
    """`nn.Module.requires_grad_` goes straight to the parameters of its children."""
    network = small_network()
    before = snapshot(network)
    outer = defence(network).train().requires_grad_(True)
    optimise(outer, outer(images().requires_grad_(True)))
    assert all(parameter.grad is None for parameter in network.parameters())
    assert_unchanged(network, before)


def test_an_optimiser_of_everything_moves_the_purifier_only() -> None:
    network = small_network()
    before = snapshot(network)
    outer = defence(network).train()
    purifier_before = snapshot(outer.purifier)
    for _ in range(3):
        optimise(outer, outer(images().requires_grad_(True)))
    assert_unchanged(network, before)
    after = outer.purifier.state_dict()
    moved = [name for name, value in purifier_before.items() if not after[name].equal(value)]
    assert "decoder.0.1.weight" in moved


def test_a_final_classifier_is_frozen_as_well() -> None:
    network, final = small_network(), small_network()
    before = snapshot(final)
    outer = defence(network)
    outer = Carso(network, outer.purifier, samples=2, final_classifier=final).train()
    optimise(outer, outer(images().requires_grad_(True)))
    assert not any(module.training for module in final.modules())
    assert_unchanged(final, before)
