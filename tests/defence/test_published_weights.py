"""`carso import`: the authors' files become a run that computes what their network computes.

The layout of the files, and the forward pass over it, are written out here from what the authors
publish, and not taken from our modules.
"""

import hashlib
import json
import pickle
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from support import mini, run
from torch import Tensor

import carso
from carso import data
from carso.classifiers import registry
from carso.classifiers.frozen import freeze
from carso.defence.on_disk import Deployed, purifier_of
from carso.defence.published_weights import PUBLISHED, find, import_published
from carso.errors import CarsoError
from carso.evaluation import by_name
from carso.evaluation.by_name import Images
from carso.evaluation.diagnostics import run_diagnostics
from carso.purifiers.vae.published_parts import published_parts
from carso.scenario.parser import names, parse, read
from carso.storage import tensor_files

State = dict[str, Tensor]

PAPERS = "wrn_28_10_cifar_10_cui_2023"
CLASSIFIER = "cifar10_a3_b10_t4_20m_w"
CHANNELS = [160] * 8 + [320] * 9 + [640] * 9
"""Of the 26 layers of WideResNet-28-10 that condition the purifier."""


# The published layout, with random numbers of such sizes that activations stay moderate.


class Numbers:
    """Random tensors, one after the other; or only their shapes."""

    def __init__(self, seed: int, *, only_shapes: bool = False) -> None:
        self.source, self.only_shapes = torch.Generator().manual_seed(seed), only_shapes

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        if self.only_shapes:
            return torch.empty(shape, device="meta")
        return torch.empty(shape).uniform_(low, high, generator=self.source)

    def kernel(self, *shape: int, fan_in: int = 0, gain: float = 1.0) -> Tensor:
        largest = gain * (3 / (fan_in or torch.Size(shape[1:]).numel())) ** 0.5
        return self.between(-largest, largest, *shape)

    def norm(self, name: str, features: int) -> State:
        return {
            f"{name}.weight": self.between(0.7, 1.3, features),
            f"{name}.bias": self.between(-0.3, 0.3, features),
            f"{name}.running_mean": self.between(-0.3, 0.3, features),
            f"{name}.running_var": self.between(0.7, 1.3, features),
            f"{name}.num_batches_tracked": torch.tensor(
                7, device="meta" if self.only_shapes else "cpu"
            ),
        }


def classifier_file(numbers: Numbers, *, blocks: int, width: int, classes: int) -> State:
    """`init_conv`, `layer.G.block.B.{batchnorm_0, conv_0, batchnorm_1, conv_1, shortcut}`,
    `batchnorm`, `logits`."""
    state = {"init_conv.weight": numbers.kernel(16, 3, 3, 3)}
    before = 16
    for g, channels in enumerate((16 * width, 32 * width, 64 * width)):
        for b in range(blocks):
            name = f"layer.{g}.block.{b}"
            state |= numbers.norm(f"{name}.batchnorm_0", before)
            state[f"{name}.conv_0.weight"] = numbers.kernel(channels, before, 3, 3)
            state |= numbers.norm(f"{name}.batchnorm_1", channels)
            state[f"{name}.conv_1.weight"] = numbers.kernel(channels, channels, 3, 3)
            if b == 0:
                state[f"{name}.shortcut.weight"] = numbers.kernel(channels, before, 1, 1)
            before = channels
    state |= numbers.norm("batchnorm", before)
    state["logits.weight"] = numbers.kernel(classes, before, gain=6.0)
    state["logits.bias"] = numbers.between(-0.5, 0.5, classes)
    return state


def encoders_file(numbers: Numbers, channels: Sequence[int], *, stages: int = 3) -> State:
    """`LAYER.STAGE.0.weight` (convolution), `LAYER.STAGE.1.*` (batch norm)."""
    state: State = {}
    for layer, count in enumerate(channels):
        for stage in range(stages):
            half = count // 2
            state[f"{layer}.{stage}.0.weight"] = numbers.kernel(half, count, 3, 3)
            state |= numbers.norm(f"{layer}.{stage}.1", half)
            count = half
    return state


def connected_file(numbers: Numbers, features: int, condition: int) -> State:
    """`1.0.weight` (linear, no bias), `1.1.*` (batch norm)."""
    return {
        "1.0.weight": numbers.kernel(condition, features),
        **numbers.norm("1.1", condition),
    }


def decoder_file(
    numbers: Numbers, *, latent: int, condition: int, width: int, side: int = 3, kernel: int = 2
) -> State:
    """`0.1.{weight,bias}` (linear), `{1..4}.0.weight`, `{1..4}.1.*`, `5.{weight,bias}`."""
    start = width * side * side
    state = {
        "0.1.weight": numbers.kernel(start, latent + condition, gain=2.0),
        "0.1.bias": numbers.between(-0.5, 0.5, start),
    }
    widths = (width, width, width // 2, width // 4, width // 8)
    for stage in range(1, 5):
        before, after = widths[stage - 1], widths[stage]
        fan_in = before * 9 // 4  # at stride 2 a pixel is made by a quarter of the kernel
        state[f"{stage}.0.weight"] = numbers.kernel(before, after, 3, 3, fan_in=fan_in)
        state |= numbers.norm(f"{stage}.1", after)
    state["5.weight"] = numbers.kernel(widths[4], 3, kernel, kernel, fan_in=widths[4], gain=2.0)
    state["5.bias"] = numbers.between(-0.5, 0.5, 3)
    return state


# The forward pass, written straight down.


def norm(state: State, name: str, x: Tensor) -> Tensor:
    keys = ("running_mean", "running_var", "weight", "bias")
    return F.batch_norm(x, *(state[f"{name}.{key}"] for key in keys), eps=1e-5)


STATISTICS = {
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2471, 0.2435, 0.2616]),
    "tinyimagenet": ([0.4802, 0.4481, 0.3975], [0.2302, 0.2265, 0.2262]),
}


def wide_resnet(
    state: State, images: Tensor, *, blocks: int = 4, data_set: str = "cifar10"
) -> tuple[list[Tensor], Tensor]:
    """The activations that condition the purifier, and the logits."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in STATISTICS[data_set])
    x = F.conv2d((images - mean) / std, state["init_conv.weight"], padding=1)
    seen = []
    for g in range(3):
        for b in range(blocks):
            name, stride = f"layer.{g}.block.{b}", 2 if g > 0 and b == 0 else 1
            a = F.silu(norm(state, f"{name}.batchnorm_0", x))
            padded = F.pad(a, (1, 1, 1, 1) if stride == 1 else (0, 1, 0, 1))
            first = F.conv2d(padded, state[f"{name}.conv_0.weight"], stride=stride)
            inner = F.silu(norm(state, f"{name}.batchnorm_1", first))
            second = F.conv2d(inner, state[f"{name}.conv_1.weight"], padding=1)
            seen += [first, second]
            if b == 0:
                x = F.conv2d(a, state[f"{name}.shortcut.weight"], stride=stride)
                seen += [x] if g > 0 else []  # the first group's is not in the representation
            x = x + second
    pooled = F.silu(norm(state, "batchnorm", x)).mean(dim=(2, 3))
    return seen, F.linear(pooled, state["logits.weight"], state["logits.bias"])


def condition_of(
    encoders: State, connected: State, activations: list[Tensor], *, stages: int = 3
) -> Tensor:
    encoded = []
    for layer, x in enumerate(activations):
        for stage in range(stages):
            x = F.conv2d(x, encoders[f"{layer}.{stage}.0.weight"])
            x = F.leaky_relu(norm(encoders, f"{layer}.{stage}.1", x), 0.2)
        encoded.append(x.flatten(1))
    x = F.linear(torch.cat(encoded, dim=1), connected["1.0.weight"])
    return F.leaky_relu(norm(connected, "1.1", x), 0.2)


def decoded(state: State, z: Tensor, condition: Tensor, *, side: int = 3) -> Tensor:
    """From 3 pixels a side each stage gives one less than twice as many, from 4 twice as many."""
    x = F.linear(torch.cat([z, condition], dim=1), state["0.1.weight"], state["0.1.bias"])
    x = F.leaky_relu(x, 0.2).unflatten(1, (-1, side, side))
    for stage in range(1, 5):
        kernel = state[f"{stage}.0.weight"]
        x = F.conv_transpose2d(x, kernel, stride=2, padding=1, output_padding=side - 3)
        x = F.leaky_relu(norm(state, f"{stage}.1", x), 0.2)
    x = F.conv_transpose2d(x, state["5.weight"], state["5.bias"], padding=1)
    return torch.sigmoid(x)


# At full size.


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The four files of the paper's scenario (a) at full size; the classifier's has no suffix."""
    folder = tmp_path_factory.mktemp("published")
    save_file(classifier_file(Numbers(0), blocks=4, width=10, classes=10), folder / CLASSIFIER)
    encoders = encoders_file(Numbers(1), CHANNELS)
    save_file(encoders, folder / f"{PAPERS}_repr_compressors.safetensors")
    features = 8 * 20 * 26 * 26 + 9 * 40 * 10 * 10 + 9 * 80 * 2 * 2
    connected = connected_file(Numbers(2), features, 512)
    save_file(connected, folder / f"{PAPERS}_repr_fcn_compressor.safetensors")
    decoder = decoder_file(Numbers(3), latent=128, condition=512, width=256)
    save_file(decoder, folder / f"{PAPERS}_decoder.safetensors")
    yield folder
    shutil.rmtree(folder)  # pytest would keep half a gigabyte


@pytest.fixture(scope="module")
def imported(published: Path) -> Path:
    return import_published(find(published), published / "run")


@pytest.fixture(scope="module")
def defence(imported: Path) -> Deployed:
    return carso.load(imported, samples=2)


def test_the_imported_defence_computes_what_the_published_network_computes(
    published: Path, defence: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = torch.Generator().manual_seed(0)
    images = torch.rand(2, 3, 32, 32, generator=source)
    noise = torch.randn(2, 2, 128, generator=source)  # (N, B, Z)
    monkeypatch.setattr(defence.purifier, "draw", lambda *_, **__: noise)
    files = (f"{PAPERS}_{part}.safetensors" for part in ("repr_compressors", "repr_fcn_compressor"))
    encoders, connected = (load_file(published / name) for name in files)
    decoder = load_file(published / f"{PAPERS}_decoder.safetensors")
    network = load_file(published / CLASSIFIER)
    with torch.no_grad():
        activations, own = wide_resnet(network, images)
        assert len(activations) == 26
        condition = condition_of(encoders, connected, activations)
        candidates = torch.stack([decoded(decoder, z, condition) for z in noise])
        logits = torch.stack([wide_resnet(network, x)[1] for x in candidates])  # (N, B, K)
        answer = logits.exp().sum(dim=0).log_softmax(dim=1)
        torch.testing.assert_close(defence.classifier(images), own, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(defence.purify(images), candidates, rtol=1e-4, atol=1e-4)
        found = defence.scores(images, lambda logits: logits)
        torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(defence(images), answer, rtol=1e-4, atol=1e-4)
    # All of it says little unless numbers are moderate, and image and noise matter.
    assert all(a.abs().max() < 100 for a in (*activations, condition, logits))
    assert (candidates[0] - candidates[1]).std() > 0.01
    assert (candidates[:, 0] - candidates[:, 1]).std() > 0.01
    assert (logits[0] - logits[1]).abs().max() > 0.01
    assert (logits[:, 0] - logits[:, 1]).abs().max() > 0.01
    assert 1 < logits.abs().max() < 8


def test_the_run_says_where_it_comes_from(published: Path, imported: Path) -> None:
    sources = sorted(path for path in published.iterdir() if path.is_file())
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sources}
    description = json.loads((imported / "defence.json").read_text())
    assert description["imported"]["base"] == PAPERS
    assert {row["name"]: row["sha256"] for row in description["imported"]["files"]} == hashes
    assert description["scenario"]["name"] == "cifar10"
    kept: dict[str, str] = {}
    for name in ("classifier", "purifier"):
        record = json.loads((imported / f"{name}.json").read_text())
        content = (imported / f"{name}.safetensors").read_bytes()
        assert record["sha256"] == hashlib.sha256(content).hexdigest()
        assert "versions" in record["provenance"]
        kept |= {row["name"]: row["sha256"] for row in record["imported"]}
    assert kept == hashes
    assert len(list(imported.iterdir())) == 5
    assert not list(published.glob(".*"))


def test_the_imported_defence_knows_its_scenario(defence: Deployed) -> None:
    assert defence.scenario == read("cifar10")
    assert defence.classes[:2] == ("airplane", "automobile")
    assert defence.aggregation == "double-exponential"


def test_the_layout_of_the_largest_scenario_fits() -> None:
    """TinyImageNet: 64 pixels a side, four stages, a decoder from 4x4; as shapes, for its size."""
    numbers = Numbers(0, only_shapes=True)
    features = 8 * 10 * 56 * 56 + 9 * 20 * 24 * 24 + 9 * 40 * 8 * 8
    files = {
        "repr_compressors": encoders_file(numbers, CHANNELS, stages=4),
        "repr_fcn_compressor": connected_file(numbers, features, 768),
        "decoder": decoder_file(numbers, latent=192, condition=768, width=256, side=4, kernel=3),
    }
    scenario, facts = read("tinyimagenet"), data.facts("tinyimagenet")
    with torch.device("meta"):
        classifier = registry.build(scenario.classifier, facts)
        purifier = purifier_of(scenario, freeze(classifier), facts.image_shape)
    network = classifier_file(numbers, blocks=4, width=10, classes=200)
    tensor_files.load_into(classifier, network, source="the classifier")
    for part, module in published_parts(purifier).items():
        tensor_files.load_into(module, files[part], source=part)


def test_every_published_name_is_in_its_scenario() -> None:
    for base, row in PUBLISHED.items():
        scenario = read(row.scenario)
        assert row.classifier in scenario.classifier.weights, base
        assert scenario.data.set == row.scenario, base
    assert {row.scenario for row in PUBLISHED.values()} < set(names())


# What goes wrong, and the command: on a small layout.

GIVEN = """
[classifier]
depth = 10
width = 2
weights = ["small_classifier", "other_classifier"]
"""


def described(data: str) -> str:
    """The layout of the paper."""
    return mini(data, name="small", classifier=GIVEN)


def write_small(place: Path, *, data_set: str, classes: int) -> None:
    """`small.toml` and the folder `theirs`, whose files have no suffix."""
    (place / "small.toml").write_text(described(data_set))
    folder = place / "theirs"
    folder.mkdir()
    large = data_set == "tinyimagenet"  # 64 pixels a side, four stages, a decoder from 4x4
    classifier = classifier_file(Numbers(0), blocks=1, width=2, classes=classes)
    save_file(classifier, folder / "small_classifier")
    channels, stages = [32] * 2 + [64] * 3 + [128] * 3, 4 if large else 3
    encoders = encoders_file(Numbers(1), channels, stages=stages)
    save_file(encoders, folder / "small_repr_compressors")
    features = 2 * 4 * 26 * 26 + 3 * 8 * 10 * 10 + 3 * 16 * 2 * 2
    if large:
        features = 2 * 2 * 56 * 56 + 3 * 4 * 24 * 24 + 3 * 8 * 8 * 8
    save_file(connected_file(Numbers(2), features, 16), folder / "small_repr_fcn_compressor")
    side, kernel = (4, 3) if large else (3, 2)
    decoder = decoder_file(Numbers(3), latent=8, condition=16, width=16, side=side, kernel=kernel)
    save_file(decoder, folder / "small_decoder")


@pytest.mark.parametrize(
    ("data_set", "pixels", "stages", "side"), [("cifar10", 32, 3, 3), ("tinyimagenet", 64, 4, 4)]
)
def test_both_sizes_of_image_compute_what_the_published_network_computes(
    tmp_path: Path, data_set: str, pixels: int, stages: int, side: int
) -> None:
    classes = {"cifar10": 10, "tinyimagenet": 200}[data_set]
    write_small(tmp_path, data_set=data_set, classes=classes)
    folder, scenario = tmp_path / "theirs", read(str(tmp_path / "small.toml"))
    defence = carso.load(import_published(find(folder, scenario=scenario), tmp_path / "run"))
    network, encoders, connected, decoder = (
        load_file(folder / f"small_{part}")
        for part in ("classifier", "repr_compressors", "repr_fcn_compressor", "decoder")
    )
    images, z = torch.rand(2, 3, pixels, pixels), torch.randn(2, 8)
    with torch.no_grad():
        activations, own = wide_resnet(network, images, blocks=1, data_set=data_set)
        condition = condition_of(encoders, connected, activations, stages=stages)
        candidates = decoded(decoder, z, condition, side=side)
        assert candidates.shape == images.shape
        torch.testing.assert_close(defence.classifier(images), own, rtol=1e-4, atol=1e-4)
        found = defence.purifier.decoder(z, defence.purifier.conditioning(activations))
        torch.testing.assert_close(found, candidates, rtol=1e-4, atol=1e-4)
        seen = defence.representation(images)
        torch.testing.assert_close(seen, activations, rtol=1e-4, atol=1e-4)
    assert (candidates[0] - candidates[1]).std() > 0.01


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `theirs` beside its scenario, in the working directory."""
    write_small(tmp_path, data_set="cifar10", classes=10)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "theirs"


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line with which `carso import` refuses; it leaves nothing behind."""
    before = {path: path.stat().st_mtime_ns for path in Path.cwd().rglob("*")}
    code, _, error = run(capsys, "import", *words)
    assert code == 2, error
    assert error.startswith("carso: ")
    assert len(error.strip().splitlines()) == 1, error
    assert {path: path.stat().st_mtime_ns for path in Path.cwd().rglob("*")} == before
    return error


SCENARIO = ("--scenario", "small.toml")


def test_the_command_makes_a_run_and_says_how_to_evaluate_it(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = run(capsys, "import", small, *SCENARIO)
    assert code == 0, error
    for word in (
        "carso evaluate runs/small --suite adaptive --images 1000",
        "carso evaluate runs/small --attacks randaa-released --images 1000",
    ):
        assert word in out
    defence = carso.load("runs/small")
    assert defence.predict(torch.rand(1, 3, 32, 32)).shape == (1,)
    # Again: nothing to do, and nothing touched.
    made = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    assert run(capsys, "import", small, *SCENARIO)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")} == made


@pytest.mark.parametrize(
    ("part", "key", "change", "says"),
    [
        ("decoder", "5.bias", "gone", "1 keys missing (5.bias)"),
        ("decoder", "more.weight", "new", "1 keys unexpected (more.weight)"),
        ("decoder", "0.1.bias", "longer", "1 keys misshapen (0.1.bias is (145,), not (144,))"),
        ("repr_compressors", "7.2.1.weight", "gone", "1 keys missing (7.2.1.weight)"),
        ("repr_compressors", "8.0.0.weight", "new", "1 keys unexpected (8.0.0.weight)"),
        ("repr_fcn_compressor", "1.1.bias", "longer", "(1.1.bias is (17,), not (16,))"),
        ("classifier", "logits.bias", "gone", "1 keys missing (logits.bias)"),
        ("classifier", "logits.bias", "longer", "(logits.bias is (11,), not (10,))"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_keys(
    small: Path, capsys: pytest.CaptureFixture[str], part: str, key: str, change: str, says: str
) -> None:
    path = small / f"small_{part}"
    state = load_file(path)
    if change == "gone":
        del state[key]
    else:
        state[key] = torch.ones(1) if change == "new" else F.pad(state[key], (0, 1))
    save_file(state, path)
    error = refused(capsys, small, *SCENARIO)
    assert f"small_{part} does not fit the " in error
    assert says in error


def test_damaged_files_and_pickles_are_refused(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small / "small_decoder"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1000])
    assert "small_decoder is damaged or no safetensors file" in refused(capsys, small, *SCENARIO)
    path.write_bytes(b"")
    assert "small_decoder is damaged or no safetensors file" in refused(capsys, small, *SCENARIO)

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (Path("exploded"),)

    for name, content in {
        "small_decoder": pickle.dumps(Bomb()),
        "small_decoder.safetensors": pickle.dumps({"5.bias": 1}),
    }.items():
        (small / name).write_bytes(content)
        assert f"{name} is damaged or no safetensors" in refused(capsys, small, *SCENARIO)
    (small / "mine.pt").write_bytes(pickle.dumps(Bomb(), protocol=2))
    error = refused(capsys, small, *SCENARIO, "--classifier", small / "mine.pt")
    assert "mine.pt is damaged or holds more than weights" in error
    assert not Path("exploded").exists()


def test_a_classifier_may_be_a_file_of_torch(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(load_file(small / "small_classifier"), small / "small_classifier.pt")
    (small / "small_classifier").unlink()
    code, _, error = run(capsys, "import", small, *SCENARIO)
    assert code == 0, error
    assert carso.load("runs/small").predict(torch.rand(1, 3, 32, 32)).shape == (1,)


def test_missing_files_are_named(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no folder" in refused(capsys, small / "nowhere", *SCENARIO)
    error = refused(capsys, small, *SCENARIO, "--classifier", "gone.safetensors")
    assert "there is no file gone.safetensors" in error
    (small / "small_decoder").rename(small / "elsewhere")
    assert "lacks small_decoder" in refused(capsys, small, *SCENARIO)
    (small / "elsewhere").rename(small / "small_decoder.safetensors")
    (small / "small_classifier").rename(small / "other_classifier")
    run(capsys, "import", small, *SCENARIO, "--run", "by-its-other-name")
    assert carso.load("by-its-other-name").classes[0] == "airplane"
    shutil.copy(small / "other_classifier", small / "small_classifier")
    error = refused(capsys, small, *SCENARIO)
    assert "has several (small_classifier, other_classifier): give --classifier FILE" in error
    for path in small.glob("*_classifier"):
        path.unlink()
    error = refused(capsys, small, *SCENARIO)
    assert "small_classifier, other_classifier" in error
    assert "has none: give --classifier FILE" in error
    for path in small.iterdir():
        path.unlink()
    assert "holds no published purifier: NAME_repr_compressors" in refused(capsys, small)


def test_of_several_purifiers_base_or_scenario_chooses(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "small was trained for is not known: give --scenario" in refused(capsys, small)
    assert "no scenario 'cifar11'" in refused(capsys, small, "--scenario", "cifar11")
    for path in list(small.glob("small_*")):
        for base in ("wrn_28_10_cifar_10_own_2025", PAPERS):
            shutil.copy(path, small / path.name.replace("small", base))
    found = f"({PAPERS}, wrn_28_10_cifar_10_own_2025, small)"
    assert f"several purifiers {found}: choose by --base NAME" in refused(capsys, small)
    assert "no purifier that; it has" in refused(capsys, small, "--base", "that")
    (small / "half_decoder").touch()
    assert "half_repr" in refused(capsys, small, "--base", "half")
    assert f"several purifiers {found}" in refused(capsys, small)  # the half one does not count
    error = refused(capsys, small, "--base", PAPERS, "--scenario", "cifar100")
    assert f"{PAPERS} in " in error
    assert "another data set than cifar100" in error
    error = refused(capsys, small, "--base", "small", "--scenario", "fashion-retrofit")
    assert "hardens its purifier" in error
    # The scenario means the paper's purifier, around the classifier that it was trained around.
    (small / "small_classifier").rename(small / CLASSIFIER)
    scenario = read("cifar10")
    assert find(small, scenario=scenario).base == PAPERS
    assert find(small, base=PAPERS).classifier.name == CLASSIFIER
    with pytest.raises(CarsoError, match=r"WRN_28_10_cifar10_09428\) .* has none"):
        find(small, base="wrn_28_10_cifar_10_own_2025")
    assert find(small, base="small", scenario=scenario, classifier=small / CLASSIFIER)


def test_a_folder_of_something_else_is_left_alone(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = Path("taken")
    taken.mkdir()
    (taken / "letter.txt").write_text("mine")
    into = (*SCENARIO, "--run", taken)
    assert "taken holds something else" in refused(capsys, small, *into)
    assert "letter.txt: it is no folder" in refused(
        capsys, small, *SCENARIO, "--run", taken / "letter.txt"
    )
    (taken / "letter.txt").unlink()
    assert run(capsys, "import", small, *into)[0] == 0  # an empty folder is free
    assert sorted(path.name for path in taken.iterdir()) == [
        "classifier.json",
        "classifier.safetensors",
        "defence.json",
        "purifier.json",
        "purifier.safetensors",
    ]
    state = load_file(small / "small_decoder")
    state["5.bias"] += 1
    save_file(state, small / "small_decoder.safetensors")
    assert "taken holds another defence" in refused(capsys, small, *into)
    (small / "small_decoder.safetensors").unlink()
    (taken / "purifier.safetensors").write_bytes(b"damaged")
    assert "purifier.safetensors is not what was imported" in refused(capsys, small, *into)
    taken.joinpath("defence.json").write_text("{}")
    assert "taken holds another defence" in refused(capsys, small, *into)


# Classes that only the data names.


def test_known_sets_are_described_without_their_files() -> None:
    embedded, facts = data.load("fashion-embedded"), data.facts("fashion-embedded")
    for key in ("image_shape", "classes", "mean", "std"):
        assert getattr(embedded, key) == getattr(facts, key)
    for name, side, classes in (
        ("cifar10", 32, 10),
        ("cifar100", 32, 100),
        ("tinyimagenet", 64, 200),
    ):
        known = data.facts(name)
        assert (known.image_shape, len(known.classes)) == ((3, side, side), classes)
    assert data.facts("cifar100").classes[99] == "class 99"
    with pytest.raises(CarsoError, match="folder:photos"):
        data.facts("folder:photos")


def cifar100(root: Path) -> Path:
    """Random images in the official layout, three of each class."""
    folder = root / "cifar-100-python"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for name, each in (("train", 2), ("test", 1)):
        labels = [label for label in range(100) for _ in range(each)]
        pixels = draw.integers(256, size=(len(labels), 3072), dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": pixels, "fine_labels": labels}))
    meta = {"fine_label_names": [f"animal {number}" for number in range(100)]}
    (folder / "meta").write_bytes(pickle.dumps(meta))
    return root


def test_a_defence_with_numbered_classes_is_evaluated_on_named_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_small(tmp_path, data_set="cifar100", classes=100)
    monkeypatch.chdir(tmp_path)
    code, out, error = run(capsys, "import", "theirs", *SCENARIO, "--run", "run")
    assert code == 0, error
    assert "numbered" in out
    defence = carso.load("run")
    assert defence.classes[:2] == ("class 0", "class 1")
    monkeypatch.setattr(
        run_diagnostics, "DIAGNOSTICS", (run_diagnostics.precision,)
    )  # the others are long
    words = ("evaluate", "run", "--images", "3", "--data", cifar100(tmp_path), "--json")
    code, out, error = run(
        capsys, *words, "--attacks", "margin@mean-logits", "--out", "record.json"
    )
    assert code == 0, error
    record = json.loads(Path("record.json").read_text())
    assert record["data"]["count"] == 3
    assert record["attacks"][0]["name"] == "margin@mean-logits"
    assert record["subject"]["kind"] == "defence"
    assert "animal " in json.dumps(record["gallery"])


def test_another_number_of_classes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    images = data.load("fashion-embedded")
    monkeypatch.setattr(by_name, "load_data", lambda *_, **__: images)
    scenario = parse(described("cifar100"), source="small.toml")
    for count, fits in ((10, True), (100, False)):
        defence = SimpleNamespace(scenario=scenario, classes=data.numbered(count))
        if fits:
            assert Images(count=5).load(defence)[0] is images  # type: ignore[arg-type]
        else:
            with pytest.raises(CarsoError, match="other classes"):
                Images(count=5).load(defence)  # type: ignore[arg-type]
