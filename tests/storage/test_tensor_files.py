"""Weight files: read whatever wraps them, refuse what is not weights, never lose the old one."""

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from carso.classifiers.wide_resnet import WideResNet
from carso.errors import CarsoError
from carso.storage import files, tensor_files
from carso.storage.tensor_files import fingerprint, load, load_into, save


def network(seed: int = 0, classes: int = 3) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, classes))


def assert_same(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert got[name].dtype == value.dtype
        assert torch.equal(got[name], value), name


def refused(path: Path) -> str:
    """The one line with which `path` is refused."""
    with pytest.raises(CarsoError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


# What can be read.


def test_safetensors_come_back_as_they_were_saved(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "weights.safetensors"
    tensors = {
        **network().state_dict(),
        "transposed": torch.arange(6.0).view(2, 3).T,
        "half": torch.ones(2, dtype=torch.bfloat16),
        "trained": nn.Parameter(torch.ones(1)),
    }
    tensors["shared"] = tensors["transposed"]
    save(path, tensors)
    assert_same(load(path), {name: value.detach() for name, value in tensors.items()})
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save(tmp_path / name, network().state_dict())
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


WRAPPINGS: dict[str, Callable[[dict[str, Tensor]], Any]] = {
    "bare": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3},
    "model_state_dict": lambda state: {"model_state_dict": state, "loss": 0.5},
    "twice": lambda state: {"model": {"state_dict": state}, "optimiser": {"lr": 0.1}},
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("suffix", [".pt", ".pth"])
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_pt_files_are_read_through_their_wrapping(
    tmp_path: Path, wrapping: str, suffix: str, zipped: bool
) -> None:
    state = network().state_dict()
    path = tmp_path / f"weights{suffix}"
    torch.save(WRAPPINGS[wrapping](state), path, _use_new_zipfile_serialization=zipped)
    assert_same(load(path), dict(state))


@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_are_loaded_with_or_without_the_prefix_of_parallel_training(prefix: str) -> None:
    source, target = network(0), network(1)
    load_into(target, {prefix + k: v for k, v in source.state_dict().items()}, source="it")
    assert_same(target.state_dict(), source.state_dict())


def test_a_published_layout_is_loaded_from_a_wrapped_parallel_file(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        source, target = (WideResNet(10, 1, classes=3, channels=1) for _ in range(2))
    state = {f"module.{name}": value for name, value in source.state_dict().items()}
    torch.save({"model_state_dict": state}, tmp_path / "published.pt")
    load_into(target, load(tmp_path / "published.pt"), source="published.pt")
    assert_same(target.state_dict(), source.state_dict())


def test_files_without_batch_counters_are_loaded() -> None:
    source, target = network(0), network(1)
    state = {k: v for k, v in source.state_dict().items() if "num_batches" not in k}
    load_into(target, state, source="it")
    assert_same(target.state_dict(), source.state_dict())


# What does not fit.


def test_missing_unexpected_and_misshapen_keys_are_listed_and_nothing_is_loaded() -> None:
    target = network(1)
    before = {name: value.clone() for name, value in target.state_dict().items()}
    state = dict(network(0, classes=5).state_dict())
    del state["0.bias"]
    state["extra.weight"] = torch.ones(1)
    with pytest.raises(CarsoError, match=r"^a\.pt does not fit Sequential: ") as caught:
        load_into(target, state, source="a.pt")
    message = str(caught.value)
    assert "\n" not in message
    missing, unexpected, misshapen = message.split(": ", 1)[1].split("; ")
    assert "missing" in missing
    assert "0.bias" in missing
    assert "unexpected" in unexpected
    assert "extra.weight" in unexpected
    assert "misshapen" in misshapen
    assert "2.weight is (5, 2), not (3, 2)" in misshapen
    assert "2.bias is (5,), not (3,)" in misshapen
    assert_same(target.state_dict(), before)


def test_weights_that_are_not_finite_are_refused() -> None:
    state = network().state_dict()
    name = next(iter(state))
    state[name].view(-1)[0] = float("nan")
    other = network(seed=1)
    with pytest.raises(CarsoError, match=rf"^file holds values that are not finite: in {name}$"):
        load_into(other, state, source="file")
    assert_same(other.state_dict(), network(seed=1).state_dict())


def test_a_wholly_different_file_is_one_short_line() -> None:
    state = {f"encoder.{i}.weight": torch.ones(1) for i in range(300)}
    with pytest.raises(CarsoError, match=r"300 keys unexpected .*296 more") as caught:
        load_into(network(), state, source="a.pt")
    assert len(str(caught.value)) < 600


# What is no weight file.


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "there is no file" in refused(tmp_path / "missing.safetensors")
    assert "there is no file" in refused(tmp_path / "missing.pt")
    (tmp_path / "folder.pt").mkdir()
    assert "there is no file" in refused(tmp_path / "folder.pt")


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.onnx"
    path.write_bytes(b"\x08\x07")
    assert ".safetensors, .pt, .pth or .th" in refused(path)


def test_truncated_safetensors_are_refused_wherever_they_end(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save(path, network().state_dict())
    whole = path.read_bytes()
    for length in {0, 1, 7, 8, 9, *range(0, len(whole), 37), len(whole) - 1}:
        path.write_bytes(whole[:length])
        assert "damaged" in refused(path)


@pytest.mark.parametrize("zipped", [True, False])
def test_truncated_pt_files_are_refused_wherever_they_end(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "weights.pt"
    torch.save(network().state_dict(), path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    for length in {0, 1, 2, 3, *range(0, len(whole), 23), len(whole) - 1}:
        path.write_bytes(whole[:length])
        assert "damaged" in refused(path)


FOREIGN = {
    "text": b"<html><body>404 Not Found</body></html>",
    "git lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "zeros": bytes(1000),
    "zip": b"PK\x05\x06" + bytes(18),
    "gzip": b"\x1f\x8b\x08\x00" + bytes(50),
    "huge header": b"\xff" * 8 + b"{}",
}


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth"])
@pytest.mark.parametrize("content", FOREIGN)
def test_a_foreign_file_is_refused_in_one_line(tmp_path: Path, content: str, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(FOREIGN[content])
    assert "damaged" in refused(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_bytes_raise_no_other_error(tmp_path: Path, zipped: bool) -> None:
    """Some damage only changes a weight and cannot be seen; all the rest gets one clear line."""
    path = tmp_path / "weights.pt"
    torch.save(network().state_dict(), path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    source = torch.Generator().manual_seed(0)
    messages = []
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(3):
            where, what = torch.randint(2**30, (2,), generator=source).tolist()
            damaged[where % len(whole)] = what % 256
        path.write_bytes(damaged)
        try:
            load(path)
        except CarsoError as error:
            messages.append(str(error))
    assert len(messages) > 10
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize("content", [{}, [1, 2], 3, {"epoch": 3}, {"state_dict": {"a": "b"}}])
def test_a_pt_file_without_a_state_dict_is_named(tmp_path: Path, content: object) -> None:
    path = tmp_path / "weights.pt"
    torch.save(content, path)
    assert "no state dict" in refused(path)


class Payload:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("how", ["zipped", "legacy", "pickle"])
def test_a_file_that_is_a_program_is_refused_and_not_run(tmp_path: Path, how: str) -> None:
    path, mark = tmp_path / "weights.pt", tmp_path / "owned"
    content = {"state_dict": network().state_dict(), "note": Payload(mark)}
    if how == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "zipped")
    assert "more than weights" in refused(path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.exists()  # it would have left its mark


def test_a_whole_pickled_module_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(network(), path)
    message = refused(path)
    assert "more than weights: it would run torch.nn" in message
    for advice in ("weights_only", "can still", "trust", "safe_globals"):
        assert advice not in message  # torch's own message tells how to load it nevertheless


# Writing loses nothing.


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A good file that a failing save must leave alone."""
    path = tmp_path / "weights.safetensors"
    save(path, network(0).state_dict())
    return path


FAILURES: dict[str, BaseException] = {
    "disk full": OSError(errno.ENOSPC, "No space left on device"),
    "disk full, as safetensors says it": SafetensorError("I/O error: No space left on device"),
    "bug": RuntimeError("something else"),
    "interrupt": KeyboardInterrupt(),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_save_that_fails_midway_keeps_the_old_file(
    old: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    before = old.read_bytes()

    def failing(tensors: dict[str, Tensor], path: Path, metadata: object = None) -> None:
        save_file(tensors, path)
        Path(path).write_bytes(Path(path).read_bytes()[:50])
        raise FAILURES[failure]

    monkeypatch.setattr(tensor_files, "save_file", failing)
    expected = CarsoError if "disk full" in failure else type(FAILURES[failure])
    with pytest.raises(expected) as caught:
        save(old, network(1).state_dict())
    if "disk full" in failure:
        assert "No space left on device" in str(caught.value)
        assert str(old) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert old.read_bytes() == before
    assert [entry.name for entry in old.parent.iterdir()] == [old.name]


def test_a_save_that_succeeds_replaces_the_old_file(old: Path) -> None:
    before = old.read_bytes()
    with old.open("rb") as reader:
        save(old, network(1).state_dict())
        assert reader.read() == before  # who reads meanwhile never sees half of each
    assert_same(load(old), dict(network(1).state_dict()))
    assert [entry.name for entry in old.parent.iterdir()] == [old.name]


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_takes_no_file_is_one_clear_line(
    old: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error), "somewhere")

    before = old.read_bytes()
    monkeypatch.setattr(files.tempfile, "mkstemp", failing)
    with pytest.raises(CarsoError, match=f"cannot write .*{os.strerror(error)}") as caught:
        save(old, network(1).state_dict())
    assert str(old) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert old.read_bytes() == before


def test_a_path_that_cannot_be_written_is_one_clear_line(old: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (old / "below a file.safetensors", tmp_path / "folder"):
        with pytest.raises(CarsoError, match="cannot write") as caught:
            save(path, network().state_dict())
        assert "\n" not in str(caught.value)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", old.name]


# Which weights these are.


def test_a_fingerprint_tells_weights_apart_and_nothing_else() -> None:
    state = network().state_dict()
    expected = fingerprint(state)
    assert fingerprint(dict(reversed(state.items()))) == expected
    assert fingerprint({k: v.clone().requires_grad_(False) for k, v in state.items()}) == expected
    for name, value in state.items():
        changed = {**state, name: value + 1}
        assert fingerprint(changed) != expected
        renamed = {(k + "x" if k == name else k): v for k, v in state.items()}
        assert fingerprint(renamed) != expected
    assert fingerprint({**state, "0.weight": state["0.weight"].mT.contiguous()}) != expected
    assert fingerprint({**state, "0.weight": state["0.weight"].double()}) != expected
    assert fingerprint({**state, "0.weight": state["0.weight"].flatten()}) != expected
