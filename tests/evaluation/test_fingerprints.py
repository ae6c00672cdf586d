"""Which model an evaluation is of: what its weights do not say counts, too."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

import carso
from carso.defence.defence import Carso
from carso.errors import CarsoError
from carso.evaluation.attacked_model import under_test
from carso.evaluation.evaluation import Evaluation
from carso.evaluation.fingerprints import model_identity, weights

EPS = 0.03


def identity(model: nn.Module) -> str | None:
    return model_identity(under_test(model).components())


class Normalised(nn.Module):
    """Its mean is a buffer that no file of its weights holds."""

    def __init__(self, network: nn.Module, mean: float) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x - self.mean)  # type: ignore[no-any-return]


class Tempered(nn.Module):
    def __init__(self, network: nn.Module, temperature: float) -> None:
        super().__init__()
        self.network, self.temperature = network, temperature

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x) / self.temperature  # type: ignore[no-any-return]


def test_buffers_that_no_file_holds_and_plain_settings_count(classifier: nn.Module) -> None:
    for kind in (Normalised, Tempered):
        first, same, other = (kind(classifier, value) for value in (0.5, 0.5, 0.25))
        assert weights(first) == weights(other)  # what records were compared by
        assert identity(first) == identity(same) != identity(other)


def test_the_class_counts(classifier: nn.Module) -> None:
    class Otherwise(Tempered):
        def forward(self, x: Tensor) -> Tensor:
            return -super().forward(x)

    assert identity(Tempered(classifier, 1.0)) != identity(Otherwise(classifier, 1.0))


def test_a_purifier_that_is_no_module_counts(classifier: nn.Module, purifier: type) -> None:
    first, same, other = (Carso(classifier, purifier(size=size)) for size in (0.1, 0.1, 0.2))
    assert weights(first) == weights(other)
    assert identity(first) == identity(same) != identity(other)
    first(torch.rand(2, 1, 8, 8))  # its noise goes on, and it is still the same
    assert identity(first) == identity(same)


def test_memory_limits_and_devices_are_not_who_it_is(classifier: nn.Module, purifier: type) -> None:
    first, second = (Carso(classifier, purifier(), max_batch=most) for most in (None, 4))
    assert identity(first) == identity(second)


def test_every_kind_of_state_counts(purifier: type, classifier: nn.Module) -> None:
    class Holding(purifier):  # type: ignore[valid-type, misc]
        def __init__(self, state: Any) -> None:
            super().__init__()
            self.state = state

    def found(state: Any) -> str | None:
        return identity(Carso(classifier, Holding(state)))

    pairs: list[tuple[Callable[[], Any], Any]] = [
        (lambda: torch.zeros(2), torch.ones(2)),
        (lambda: {"a": [1, 2.0]}, {"a": [1, 2.5]}),
        (lambda: purifier(0.1), purifier(0.2)),
        (lambda: torch.zeros(2).numpy(), torch.ones(2).numpy()),
        (lambda: "mean", "median"),
        (lambda: 1, True),
    ]
    for make, other in pairs:
        assert found(make()) == found(make()) != found(other), other
    for unknown in (lambda x: x, {1, 2}, object()):
        assert found(unknown) is None


class Secret:
    """A purifier whose state nobody can read."""

    layers = ("see",)
    image_shape = None

    def __init__(self, size: float = 0.05) -> None:
        self.noise = lambda images: size * torch.zeros_like(images)

    def sample(self, activations: Sequence[Tensor], samples: int, generator: Generator) -> Tensor:
        (images,) = activations
        return torch.stack([(images + self.noise(images)).clamp(0, 1)] * samples)


class Open(Secret):
    """The same, which says itself which one it is."""

    def fingerprint(self) -> str:
        return "open"


class Hurried(RuntimeError):
    pass


@pytest.fixture
def stopped(
    monkeypatch: pytest.MonkeyPatch, images: Tensor, labels: Tensor, tmp_path: Path
) -> Callable[[nn.Module], Path]:
    """Begin an evaluation that is stopped after the first attack."""

    def begin(model: nn.Module) -> Path:
        def stop(*given: Any, **named: Any) -> Any:
            raise Hurried

        with monkeypatch.context() as patch:
            patch.setattr(Evaluation, "run_attack", stop)
            with pytest.raises(Hurried):
                evaluated(model, images, labels, tmp_path / "record.json")
        assert (tmp_path / "record.parts").is_dir()
        return tmp_path / "record.json"

    return begin


def evaluated(model: nn.Module, images: Tensor, labels: Tensor, out: Path) -> dict[str, Any]:
    return carso.evaluate(
        model, images, labels, eps=EPS, suite="tiny", attacks=("square",), draws=2, samples=1,
        out=out,
    )  # fmt: skip


def test_a_stopped_evaluation_does_not_go_on_with_another_model(
    classifier: nn.Module, purifier: type, images: Tensor, labels: Tensor,
    stopped: Callable[[nn.Module], Path],
) -> None:  # fmt: skip
    out = stopped(Carso(classifier, purifier(size=0.1), samples=2))
    with pytest.raises(CarsoError, match="unfinished evaluation that differs in subject"):
        evaluated(Carso(classifier, purifier(size=0.2), samples=2), images, labels, out)


def test_nor_with_one_that_cannot_be_told_from_another(
    classifier: nn.Module, images: Tensor, labels: Tensor, stopped: Callable[[nn.Module], Path]
) -> None:
    out = stopped(Carso(classifier, Secret(), samples=2))
    with pytest.raises(CarsoError, match=r"nothing tells whether .* fingerprint\(\)") as error:
        evaluated(Carso(classifier, Secret(), samples=2), images, labels, out)
    assert "\n" not in str(error.value)


def test_but_with_one_that_says_that_it_is_the_same(
    classifier: nn.Module, images: Tensor, labels: Tensor, stopped: Callable[[nn.Module], Path]
) -> None:
    out = stopped(Carso(classifier, Open(), samples=2))
    record = evaluated(Carso(classifier, Open(), samples=2), images, labels, out)
    assert record["subject"]["model"] == identity(Carso(classifier, Open()))
