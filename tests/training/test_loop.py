"""Training that is stopped, however it is stopped, and taken up again ends with the same bits."""

import csv
import functools
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso import data as data_sets
from carso.classifiers.frozen import Frozen, freeze
from carso.classifiers.wide_resnet import WideResNet
from carso.data import ImageData, Split
from carso.distributed.processes import ALONE
from carso.errors import CarsoError
from carso.randomness import seeded
from carso.scenario.parser import parse
from carso.scenario.schema import Scenario
from carso.storage import files, tensor_files
from carso.training import checkpoint, loop
from carso.training.batches import AdversarialBatches
from carso.training.checkpoint import Checkpoint, pack, unpack
from carso.training.classifier_stage import ClassifierStage
from carso.training.epoch_cursor import EpochCursor, batches_in, shuffled
from carso.training.loop import Quiet, Row, Stage, run, train_in_memory
from carso.training.purifier_stage import PurifierStage
from carso.training.scenario_stages import classifier_stage, purifier_stage
from carso.training.train import train, train_purifier

CPU = torch.device("cpu")
TRAINING_IMAGES = 41  # five batches of 8, and one image that is left out
SCENARIO = """\
name = "small"
summary = "small enough for a test"
seed = 3
[data]
set = "fashion-embedded"
[threat]
eps = 0.1
[classifier]
depth = 10
width = 1
strides = [2, 2, 2]
layers = ["layer.0.block.0.conv_1", "layer.1.block.0.shortcut", "layer.2.block.0.conv_1"]
[classifier.training]
method = "{method}"
epochs = 3
batch_size = 8
attack_steps = 2
attack_step_size = 0.05
label_smoothing = 0.1
augment = "flip-shift"
[purifier]
condition = 16
latent = 8
decoder_width = 16
[purifier.attacks]
fraction = 0.5
steps = 2
step_size = 0.05
bank = "{bank}"
bank_refresh = {refresh}
[purifier.training]
epochs = 3
batch_size = 8
initial_rate = 1e-3
plateau_rate = 1e-2
final_rate = 1e-3
warmup_epochs = 1
plateau_epochs = 1
beta_start = 0
beta_end = 2
lookahead_steps = 4
"""
"""Five steps an epoch: RAdam moves nothing in the first five, and with four Lookahead steps every
resume falls into the middle of a round."""


class Interrupted(Exception):
    """Stands for Ctrl-C."""


class Stopping(Quiet):
    """Calls `stop` in the middle of an epoch (from 0), or at its end where `step` is None."""

    def __init__(self, epoch: int, step: int | None, stop: Callable[[], None]) -> None:
        self.epoch, self.step, self.stop = epoch, step, stop
        self.began: tuple[int, int] | None = None

    def start(
        self, stage: str, epoch: int, epochs: int, steps: int, done: int = 0
    ) -> Callable[[], None]:
        self.began = self.began or (epoch, done)

        def advance() -> None:
            nonlocal done
            done += 1
            if (epoch, done) == (self.epoch, self.step):
                self.stop()

        return advance

    def finish(self, stage: str, epoch: int, row: Row) -> None:
        if self.step is None and epoch == self.epoch:
            self.stop()


def interrupt() -> None:
    raise Interrupted


def scenario(*, method: str = "pgd", bank: str = "off", refresh: int = 0) -> Scenario:
    text = SCENARIO.format(method=method, bank=bank, refresh=refresh)
    return parse(text, source="small.toml")


@functools.cache
def images() -> ImageData:
    """A few images of the embedded set, at half their resolution."""
    whole = data_sets.load("fashion-embedded")

    def few(split: Split, count: int) -> Split:
        taken = split.balanced(count)
        return replace(taken, images=taken.images[:, :, ::2, ::2].contiguous())

    return replace(
        whole,
        train=few(whole.train, TRAINING_IMAGES),
        validation=few(whole.validation, 20),
        test=few(whole.test, 10),
        fingerprint="a part of it",
    )


def frozen_classifier() -> Frozen:
    with seeded(0, "test"):
        classifier = WideResNet(10, 1, classes=10, channels=1, strides=(2, 2, 2))
        for module in classifier.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.2, 0.2)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
    return freeze(classifier)


def new_classifier_stage(method: str, folder: Path) -> ClassifierStage:
    return classifier_stage(scenario(method=method), images(), CPU)


def new_purifier_stage(bank: str, folder: Path) -> PurifierStage:
    name, _, refresh = bank.partition("-")
    settings = scenario(bank=name, refresh=int(refresh or 0))
    return purifier_stage(settings, images(), frozen_classifier(), CPU, folder=folder)


STAGES = [
    *((new_classifier_stage, method) for method in ("pgd", "trades")),
    *((new_purifier_stage, bank) for bank in ("off", "memory-2", "disk", "disk-1")),
]


def tensors_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor and number in nested containers, with where it is."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_of(item, f"{path}/{key!r}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from tensors_of(item, f"{path}/{i}")
    else:
        yield path, value


def same(one: Any, other: Any) -> bool:
    """Whether two nested containers hold the same values, bit for bit."""
    first, second = dict(tensors_of(one)), dict(tensors_of(other))
    if first.keys() != second.keys():
        return False
    for path, value in first.items():
        twin = second[path]
        if isinstance(value, Tensor) != isinstance(twin, Tensor):
            return False
        if isinstance(value, Tensor):
            if value.dtype != twin.dtype or not torch.equal(value, twin):
                return False
        elif value != twin:
            return False
    return True


def without_time(history: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in history]


@functools.cache
def uninterrupted(make: Callable[..., Stage], kind: str) -> tuple[Any, list[Row], list[float]]:
    """Final state, history and first losses of a run that nothing disturbed."""
    trained = make(kind, None)
    history = train_in_memory(trained, Quiet())
    return trained.state(), without_time(history), list(trained.first_losses)


def is_the_uninterrupted(trained: Stage, history: list[Row], make: Any, kind: str) -> None:
    state, rows, first_losses = uninterrupted(make, kind)
    assert same(trained.state(), state)
    assert without_time(history) == rows
    assert trained.first_losses == first_losses
    assert len(first_losses) == loop.FIRST_STEPS


@pytest.mark.parametrize(("make", "kind"), STAGES)
@pytest.mark.parametrize(("epoch", "step"), [(1, None), (2, 3)])
def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(
    make: Callable[..., Stage], kind: str, epoch: int, step: int | None, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        run(make(kind, tmp_path), tmp_path, Stopping(epoch, step, interrupt))
    resumed = make(kind, tmp_path)
    history = run(resumed, tmp_path, Quiet())
    is_the_uninterrupted(resumed, history, make, kind)


@pytest.mark.parametrize(("make", "kind"), STAGES)
def test_a_run_that_is_stopped_within_epochs_goes_on_there_with_the_same_bits(
    make: Callable[..., Stage], kind: str, tmp_path: Path
) -> None:
    """A checkpoint after every step, and a stop at steps of every epoch, the last among them."""
    steps = make(kind, tmp_path).steps()
    done = []
    for epoch, step in ((0, 1), (0, steps), (1, 2), (2, 4)):
        display = Stopping(epoch, step, interrupt)
        with pytest.raises(Interrupted):
            run(make(kind, tmp_path), tmp_path, display, minutes=0)
        done.append(display.began)
    assert done == [(0, 0), (0, 1), (0, steps), (1, 2)]  # nothing is done twice
    resumed = make(kind, tmp_path)
    history = run(resumed, tmp_path, Quiet())
    is_the_uninterrupted(resumed, history, make, kind)
    assert len(list(tmp_path.glob("epoch-*"))) == 2


def test_a_checkpoint_within_an_epoch_waits_for_its_minutes(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(new_classifier_stage("pgd", tmp_path), tmp_path, Stopping(0, 4, interrupt), minutes=5)
    assert not (tmp_path / checkpoint.INDEX).exists()


def test_a_damaged_checkpoint_within_an_epoch_falls_back_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Interrupted):
        run(new_classifier_stage("pgd", tmp_path), tmp_path, Stopping(1, 3, interrupt), minutes=0)
    flip(tmp_path / "epoch-0001-step-000003.safetensors")
    display = Stopping(2, 1, interrupt)
    with pytest.raises(Interrupted):
        run(new_classifier_stage("pgd", tmp_path), tmp_path, display)
    assert display.began == (1, 2)
    assert "going on from the one before it" in capsys.readouterr().err
    # The damaged one must not have become the one before.
    flip(tmp_path / "epoch-0002.safetensors")
    resumed = new_classifier_stage("pgd", tmp_path)
    history = run(resumed, tmp_path, Quiet())
    is_the_uninterrupted(resumed, history, new_classifier_stage, "pgd")


@pytest.mark.parametrize(("make", "kind"), [STAGES[0], STAGES[-1]])
def test_a_run_in_a_folder_has_the_bits_of_one_in_memory(
    make: Callable[..., Stage], kind: str, tmp_path: Path
) -> None:
    trained = make(kind, tmp_path)
    history = run(trained, tmp_path, Quiet())
    is_the_uninterrupted(trained, history, make, kind)


def test_a_run_resumed_after_every_epoch_gives_the_same_deployed_purifier(tmp_path: Path) -> None:
    for epoch in range(3):
        with pytest.raises(Interrupted):
            run(new_purifier_stage("off", tmp_path), tmp_path, Stopping(epoch, None, interrupt))
    resumed, straight = new_purifier_stage("off", tmp_path), new_purifier_stage("off", tmp_path)
    run(resumed, tmp_path, Quiet())
    train_in_memory(straight, Quiet())
    fast = {name: value.clone() for name, value in straight.purifier.state_dict().items()}
    slow = straight.result().deployed().state_dict()
    assert same(resumed.result().deployed().state_dict(), slow)
    # Fifteen steps, of which the last three moved the fast weights alone.
    assert any(not torch.equal(slow[name], fast[name]) for name in slow)


def test_training_learns(tmp_path: Path) -> None:
    """What is compared bit for bit above is a training and not a standstill."""
    for make, kind in STAGES:
        _, rows, _ = uninterrupted(make, kind)
        column = "loss" if "loss" in rows[0] else "reconstruction"
        assert rows[-1][column] < rows[0][column]
        assert [row["epoch"] for row in rows] == [1, 2, 3]


def train_and_be_killed(folder: Path) -> None:
    """The other process of the next test: it kills itself as `kill -9` would."""
    kill = functools.partial(os.kill, os.getpid(), signal.SIGKILL)
    run(new_purifier_stage("disk", folder), folder, Stopping(2, 3, kill))


def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    command = [sys.executable, __file__, str(tmp_path), str(torch.get_num_threads())]
    environment = {**os.environ, "PYTHONPATH": str(Path(carso.__file__).parents[1])}
    killed = subprocess.run(command, env=environment, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(files.read_json(tmp_path / checkpoint.INDEX)["history"]) == 2
    resumed = new_purifier_stage("disk", tmp_path)
    history = run(resumed, tmp_path, Quiet())
    is_the_uninterrupted(resumed, history, new_purifier_stage, "disk")


@pytest.mark.parametrize("bank", ["off", "memory"])
def test_training_a_purifier_leaves_the_classifier_as_it_was(bank: str, tmp_path: Path) -> None:
    trained = new_purifier_stage(bank, tmp_path)
    before = {name: value.clone() for name, value in trained.classifier.state_dict().items()}
    weights = [value.clone() for value in trained.purifier.state_dict().values()]
    train_in_memory(trained, Quiet())
    assert same(dict(trained.classifier.state_dict()), before)
    assert same(dict(frozen_classifier().state_dict()), before)
    assert not any(p.requires_grad or p.grad is not None for p in trained.classifier.parameters())
    assert not trained.classifier.training
    after = trained.purifier.state_dict().values()
    assert all(not torch.equal(a, b) for a, b in zip(after, weights, strict=True))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The generation of the bank of every chunk that is attacked, in order."""
    generations: list[int] = []
    differences = AdversarialBatches.differences

    def counted(self: AdversarialBatches, number: int, start: int, generation: int) -> Tensor:
        generations.append(generation)
        return differences(self, number, start, generation)

    monkeypatch.setattr(AdversarialBatches, "differences", counted)
    return generations


def train_purifier_in(folder: Path, settings: Scenario, display: Quiet) -> None:
    train_purifier(settings, images(), frozen_classifier(), folder, CPU, display)


@pytest.mark.parametrize("bank", ["memory", "disk"])
def test_only_the_banks_that_are_needed_are_made(
    bank: str, made: list[int], tmp_path: Path
) -> None:
    """A bank is the dearest part of training: neither a resume nor a finished run makes one anew
    that it has no use for."""
    settings = scenario(bank=bank, refresh=1)
    with pytest.raises(Interrupted):
        train_purifier_in(tmp_path, settings, Stopping(1, None, interrupt))
    assert sorted(set(made)) == [0, 1]
    made.clear()
    train_purifier_in(tmp_path, settings, Quiet())
    assert set(made) == {2}
    made.clear()
    train_purifier_in(tmp_path, settings, Quiet())
    assert made == []


def test_a_run_that_is_refused_leaves_the_bank_of_the_other(
    made: list[int], tmp_path: Path
) -> None:
    train_purifier_in(tmp_path, scenario(bank="disk"), Quiet())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    made.clear()
    with pytest.raises(CarsoError, match="other settings"):
        train_purifier_in(tmp_path, scenario(bank="disk", refresh=2), Quiet())
    assert made == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("other", [{"bank": "memory"}, {"method": "trades"}])
def test_training_in_the_folder_of_another_run_is_refused_and_loses_nothing(
    other: dict[str, str], tmp_path: Path
) -> None:
    """What describes the run that is there must not be overwritten by the one that is refused."""
    train(scenario(), images(), tmp_path, device=CPU, display=Quiet())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CarsoError, match=r"settings"):
        train(scenario(**other), images(), tmp_path, device=CPU, display=Quiet())
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [path.name for path in before if after.get(path) != before[path]] == []
    assert after.keys() == before.keys()


class Counting:
    """A stage that does nothing but count, for tests of the loop itself."""

    name = "counting"
    stopped = False
    processes = ALONE

    def __init__(self, epochs: int = 4, *, loss: float = 0.5, **identity: Any) -> None:
        self.epochs, self.identity = epochs, {"stage": "counting", "seed": 0, **identity}
        self.first_losses: list[float] = []
        self.total, self.ran, self.loss = torch.zeros(2), [], loss
        self.cursor = EpochCursor(2, 2)

    def steps(self) -> int:
        return 1

    def epoch(self, number: int, advance: Callable[[], None]) -> Row:
        self.cursor.begin(order=torch.Generator())
        for _ in self.cursor.batches(advance):
            self.total += number
            self.ran.append(number)
        return {"loss": self.loss, "number": number}

    def state(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def rows_of_csv(folder: Path) -> list[dict[str, str]]:
    with (folder / "losses.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_losses_are_in_a_csv_with_one_row_per_epoch_after_any_interruption(tmp_path: Path) -> None:
    for epoch in (0, 2):
        with pytest.raises(Interrupted):
            run(Counting(), tmp_path, Stopping(epoch, None, interrupt))
        assert [row["epoch"] for row in rows_of_csv(tmp_path)] == [
            str(number + 1) for number in range(epoch + 1)
        ]
    with pytest.raises(Interrupted):
        run(Counting(), tmp_path, Stopping(3, 1, interrupt))
    history = run(Counting(), tmp_path, Quiet())
    rows = rows_of_csv(tmp_path)
    assert [row["epoch"] for row in rows] == ["1", "2", "3", "4"]
    assert [float(row["number"]) for row in rows] == [0, 1, 2, 3]
    assert list(rows[0]) == ["epoch", "loss", "number", "seconds"]
    assert [float(row["seconds"]) for row in rows] == [row["seconds"] for row in history]


def test_the_csv_is_whole_even_if_the_last_row_was_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the last checkpoint and before the CSV: nothing is left to train."""
    write = files.write_text

    def write_text(path: Path, text: str) -> None:
        if path.name == "losses.csv" and text.count("\n") == 5:
            raise Interrupted
        write(path, text)

    monkeypatch.setattr(files, "write_text", write_text)
    with pytest.raises(Interrupted):
        run(Counting(), tmp_path, Quiet())
    monkeypatch.undo()
    again = Counting()
    run(again, tmp_path, Quiet())
    assert again.ran == []
    assert [row["epoch"] for row in rows_of_csv(tmp_path)] == ["1", "2", "3", "4"]


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = run(Counting(), tmp_path, Quiet())
    before = files_in(tmp_path)
    again = Counting()
    assert run(again, tmp_path, Quiet()) == first
    assert again.ran == []
    assert again.total.tolist() == [6, 6]
    assert files_in(tmp_path) == before


def test_only_epochs_that_are_missing_are_run(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(Counting(), tmp_path, Stopping(1, None, interrupt))
    resumed = Counting()
    run(resumed, tmp_path, Quiet())
    assert resumed.ran == [2, 3]
    assert resumed.total.tolist() == [6, 6]


def test_a_checkpoint_of_other_settings_is_refused_and_kept(tmp_path: Path) -> None:
    run(Counting(2, settings="a", data="x"), tmp_path, Quiet())
    before = files_in(tmp_path)
    other = Counting(2, settings="b", data="x")
    with pytest.raises(CarsoError, match=r"other settings \(settings changed\)") as error:
        run(other, tmp_path, Quiet())
    assert str(tmp_path) in str(error.value)
    assert other.ran == []
    assert files_in(tmp_path) == before
    with pytest.raises(CarsoError, match=r"settings, data changed"):
        run(Counting(2, settings="b", data="y"), tmp_path, Quiet())


def test_a_trained_stage_of_other_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(new_classifier_stage("pgd", tmp_path), tmp_path, Stopping(0, None, interrupt))
    before = files_in(tmp_path)
    with pytest.raises(CarsoError, match=r"settings\.classifier\.training\.method changed"):
        run(new_classifier_stage("trades", tmp_path), tmp_path, Quiet())
    with pytest.raises(CarsoError, match="stage"):
        run(new_purifier_stage("off", tmp_path), tmp_path, Quiet())
    assert files_in(tmp_path) == before


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def foreign_tensors(path: Path) -> None:
    tensor_files.save(path, {"something/else": torch.zeros(3)})


def flip(path: Path) -> None:
    """Eight bytes near the end, where the tensors or the numbers are."""
    content = bytearray(path.read_bytes())
    for place in range(len(content) - 16, len(content) - 8):
        content[place] ^= 1
    path.write_bytes(bytes(content))


DAMAGES = [
    ("epoch-0003.safetensors", cut),
    ("epoch-0003.safetensors", Path.unlink),
    ("epoch-0003.safetensors", lambda path: path.write_bytes(b"")),
    ("epoch-0003.safetensors", foreign_tensors),
    ("epoch-0003.safetensors", flip),
    (checkpoint.INDEX, cut),
    (checkpoint.INDEX, lambda path: path.write_bytes(b"")),
    (checkpoint.INDEX, lambda path: path.write_text("{}")),
    (checkpoint.INDEX, lambda path: path.write_text("[1, 2]")),
    (checkpoint.INDEX, lambda path: path.write_bytes(b"\xff\xfe\x00")),
    (checkpoint.INDEX, lambda path: path.write_text(path.read_text().replace("0.5", "0.25"))),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    name: str,
    damage: Callable[[Path], object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(Counting(3), tmp_path, Quiet())
    damage(tmp_path / name)
    again = Counting(4)
    history = run(again, tmp_path, Quiet())
    assert again.ran == [2, 3]
    assert torch.equal(again.total, torch.full((2,), 6.0))
    assert [row["loss"] for row in history] == [0.5] * 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(tmp_path) in said
    assert "going on from the one before it" in said
    run(Counting(5), tmp_path, Quiet())  # what was written since is whole
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_where_both_checkpoints_are_damaged_nothing_is_touched(
    name: str, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    run(Counting(3), tmp_path, Quiet())
    damage(tmp_path / name)
    cut(tmp_path / "epoch-0002.safetensors")
    before = files_in(tmp_path)
    fresh = Counting(3)
    with pytest.raises(CarsoError, match=str(tmp_path)) as error:
        run(fresh, tmp_path, Quiet())
    assert "\n" not in str(error.value)
    assert fresh.ran == []
    assert files_in(tmp_path) == before


def test_a_checkpoint_whose_writing_failed_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Checkpoint(identity={"a": 1}, history=[{"epoch": 1.0}], state={"w": torch.ones(3)})
    new = replace(old, history=[{"epoch": 1.0}, {"epoch": 2.0}], state={"w": torch.zeros(3)})
    checkpoint.save(tmp_path, old)
    for module, function in ((tensor_files, "save"), (files, "write_json")):
        with monkeypatch.context() as patch:
            patch.setattr(module, function, lambda *_, **__: interrupt())
            with pytest.raises(Interrupted):
                checkpoint.save(tmp_path, new)
        found = checkpoint.load(tmp_path, {"a": 1})
        assert found is not None
        assert found.history == old.history
        assert torch.equal(found.state["w"], torch.ones(3))
    checkpoint.save(tmp_path, new)
    found = checkpoint.load(tmp_path, {"a": 1})
    assert found is not None
    assert torch.equal(found.state["w"], torch.zeros(3))
    assert len(list(tmp_path.glob("epoch-*"))) == 2  # and the one before it


def test_a_loss_that_is_not_finite_stops_the_run_with_one_clear_line(tmp_path: Path) -> None:
    run(Counting(1), tmp_path, Quiet())
    with pytest.raises(CarsoError, match=r"(?i)finite|diverged|nan") as error:
        run(Counting(3, loss=math.nan), tmp_path, Quiet())
    assert "\n" not in str(error.value)
    assert len(files.read_json(tmp_path / checkpoint.INDEX)["history"]) == 1


def test_there_is_no_checkpoint_in_an_empty_or_absent_folder(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path, {}) is None
    assert checkpoint.load(tmp_path / "absent", {}) is None


def test_everything_that_a_checkpoint_may_hold_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "nothing": None,
        "numbers": [1, -2, 0.1, 1e-300, True, False, 2**60],
        "pair": (0.9, 0.999),
        "nested": ({"a": [()]}, [], {}, ""),
        ("a", 0): {3: torch.arange(4), None: "x", True: 1.5},
        "kinds": [
            torch.tensor(3),
            torch.zeros(0, 2),
            torch.randn(2, 3).bfloat16(),
            torch.tensor([True, False]),
            torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
            torch.randn(4, 4).T,
        ],
        "shared": [torch.ones(2)] * 2,
    }
    kept = Checkpoint(identity={"a": 1}, history=[], state=state)
    checkpoint.save(tmp_path, kept)
    found = checkpoint.load(tmp_path, {"a": 1})
    assert found is not None
    assert same(found.state, state)
    assert list(map(type, found.state)) == list(map(type, state))
    types = [type(value) for _, value in tensors_of(found.state)]
    assert types == [type(value) for _, value in tensors_of(state)]
    assert type(found.state["pair"]) is tuple
    assert type(found.state["nested"][0]["a"][0]) is tuple


@pytest.mark.parametrize(
    "state",
    [
        {0: torch.zeros(1), "0": torch.ones(1)},
        {"a": {"b": torch.zeros(1)}, "a/b": torch.ones(1)},
        {(0, 1): torch.zeros(1), "(0, 1)": torch.ones(1)},
        [{"1": torch.zeros(1)}, {1: torch.ones(1)}],
    ],
)
def test_no_two_tensors_of_a_checkpoint_are_mistaken_for_each_other(state: Any) -> None:
    tensors: dict[str, Tensor] = {}
    assert same(unpack(pack(state, tensors, path="state"), tensors), state)


def test_what_a_checkpoint_cannot_hold_is_refused_and_not_lost() -> None:
    with pytest.raises(TypeError, match="set at state/x"):
        pack({"x": {1, 2}}, {}, path="state")


@pytest.mark.parametrize(("count", "size"), [(161, 32), (160, 32), (31, 32), (2, 2), (33, 32)])
def test_an_epoch_has_every_image_once_in_an_order_of_its_own(count: int, size: int) -> None:
    batches = list(shuffled(count, size, torch.Generator().manual_seed(0)))
    again = list(shuffled(count, size, torch.Generator().manual_seed(0)))
    other = list(shuffled(count, size, torch.Generator().manual_seed(1)))
    assert len(batches) == batches_in(count, size)
    assert all(torch.equal(a, b) for a, b in zip(batches, again, strict=True))
    seen = torch.cat(batches)
    left_out = 1 if count % size == 1 else 0
    assert len(seen) == len(set(seen.tolist())) == count - left_out
    assert all(2 <= len(batch) <= size for batch in batches)
    if count > 2:
        assert not torch.equal(seen, torch.arange(count)[: len(seen)])
        assert not torch.equal(seen, torch.cat(other))


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    train_and_be_killed(Path(sys.argv[1]))
