"""The command line as a user meets it: answers, and one clear line for every mistake."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import fails, mini, run, write_photos

from carso import data
from carso.cli.main import app
from carso.cli.options import prepare
from carso.defence import on_disk
from carso.demo import RECORDS
from carso.errors import CarsoError
from carso.evaluation import by_name


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two classes of twelve images each."""
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the smallest scenario on the folder of images."""
    place = tmp_path_factory.mktemp("run")
    (place / "mini.toml").write_text(mini(photos))
    command = [sys.executable, "-m", "carso", "train", "mini.toml", "--threads", "1"]
    result = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "done" in result.stdout
    return place / "runs" / "mini"


def test_help_and_the_list_of_scenarios_need_no_torch() -> None:
    code = "import sys, carso.cli.main; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    for word in ("--help", "scenarios"):
        result = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "carso", word],
            check=True,
            capture_output=True,
            text=True,
        )
        assert "torch" not in result.stderr
    taken = []
    for _ in range(3):  # in seconds of a processor, which do not count what else the machine does
        before = os.times()
        command = [sys.executable, "-m", "carso", "--help"]
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        user, system = (
            getattr(after, name) - getattr(before, name)
            for name in ("children_user", "children_system")
        )
        taken.append(user + system)
    assert min(taken) < 0.5


def test_the_command_alone_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    for name in ("train", "evaluate", "import"):
        assert name in out


def test_every_command_is_a_function_in_a_file_of_its_name() -> None:
    commands = {c.name or c.callback.__name__: c.callback for c in app.registered_commands}
    assert len(commands) >= 10
    for name, callback in commands.items():
        assert callback.__module__ == f"carso.cli.{name}_command"


def test_scenarios_lists_every_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "scenarios", "--json")
    assert code == 0
    names = {row["name"] for row in json.loads(out)}
    assert names >= {"fashion", "cifar10", "cifar100", "tinyimagenet", "cifar10-small"}


def test_doctor_finds_the_embedded_images(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["data"]["fashion-embedded"] == "embedded"
    assert facts["versions"]["torch"] == torch.__version__


def test_demo_writes_table_and_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "demo", "--out", tmp_path, "--images", "10", "--json")
    found = json.loads(out)
    assert code == 0
    clean, retrofit, robust, published, adaptive, hardened = found["records"]
    assert robust["subject"]["kind"] == clean["subject"]["kind"] == "classifier"
    assert published["unreliable"]
    assert published["attacks"][-1]["gradients"]["nan"] > 0.9
    worst = {
        name: record["accuracy"]["worst"]["value"]
        for name, record in zip(RECORDS, found["records"], strict=True)
    }
    assert worst["adaptive"] < min(worst["published"], worst["hardened"])
    assert worst["clean-classifier"] == 0 < worst["retrofit"]
    for record in (adaptive, hardened, retrofit):
        assert not record["unreliable"], record["verdict"]
    for name in RECORDS:
        assert (tmp_path / f"{name}.json").stat().st_size > 500
    certified = json.loads((tmp_path / "certified.json").read_text(encoding="utf-8"))
    assert certified["accuracy"][1]["value"] > 0.3  # proven, within L2 radius 0.25
    assert "<html" in (tmp_path / "index.html").read_text(encoding="utf-8")
    with Image.open(tmp_path / "candidates.png") as picture:
        assert min(picture.size) > 300


def test_evaluate_writes_a_record_and_report_a_page(
    capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mini.json"
    words = ("evaluate", trained, "--images", "2", "--out", path, "--draws", "2")
    words += (
        "--samples",
        "1",
    )  # measured, of a network that has learnt nothing, it hangs on the seed
    code, out, _ = run(capsys, *words)
    assert code == 0
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["verdict"] in out
    assert str(path) in out
    assert record["scenario"]["name"] == "mini"
    assert record["suite"]["draws"] == 2
    assert "nothing was computed" not in out
    code, again, _ = run(capsys, *words)
    assert code == 0
    assert again.startswith(out)
    assert f"was made {record['provenance']['made']}; --again makes it anew" in again
    code, out, _ = run(capsys, "report", path, path, "--out", tmp_path / "report")
    assert code == 0
    assert record["verdict"] in out
    for name in ("index.html", "tables.md", "tables.tex"):
        assert (tmp_path / "report" / name).stat().st_size > 500
    before = path.read_bytes()
    fails(capsys, *words, "--seed", "1", says=[str(path), "other seed"])
    assert path.read_bytes() == before
    damaged = json.loads(before)
    damaged["accuracy"]["worst"]["value"] = 7.5
    path.write_text(json.dumps(damaged))
    fails(capsys, "report", path, says=["damaged", "checksum"])
    del damaged["checksum"]  # as in records of older revisions
    path.write_text(json.dumps(damaged))
    fails(capsys, "report", path, says=["damaged", "accuracy.worst"])


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ((), "fashion-quick-200"),
        (("--bare", "--images", "5"), "fashion-bare-standard-5"),
        (("--eps", "0.95", "--attacks", "randaa, square"), "fashion-eps-0.95-randaa-square-200"),
        (("--norm", "L2", "--eps", "0.5"), "fashion-L2-eps-0.5-quick-200"),
        (
            ("--aggregation", "mean-logits", "--split", "validation", "--seed", "3"),
            "fashion-mean-logits-validation-seed-3-quick-200",
        ),
        (("--on", "fashion-embedded", "--suite", "full"), "fashion-fashion-embedded-full-200"),
    ],
)
def test_a_record_is_named_after_what_was_asked(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    name: str,
) -> None:
    def evaluate_by_name(*given: Any, out: Path, **settings: Any) -> None:
        raise CarsoError(f"asked for {out}")

    monkeypatch.setattr(by_name, "evaluate_by_name", evaluate_by_name)
    fails(capsys, "evaluate", "fashion", *words, says=[str(Path("records") / f"{name}.json")])


def test_wrong_words_for_evaluate_and_report(
    capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path
) -> None:
    fails(capsys, "evaluate", "nobody", says=["nobody", "fashion"])
    fails(capsys, "evaluate", trained, "--images", "2", "--suite", "odd", says=["odd", "adaptive"])
    fails(capsys, "evaluate", trained, "--images", "2", "--attacks", "odd", says=["odd", "randaa"])
    fails(capsys, "evaluate", trained, "--images", "999", says=["--images", "999"])
    fails(capsys, "evaluate", trained, "--split", "train", says=["split", "train", "validation"])
    fails(capsys, "evaluate", trained, "--images", "2", "--eps", "2", says=["eps", "2"])
    fails(capsys, "evaluate", trained, "--images", "2", "--eps", "0", says=["eps", "0"])
    fails(capsys, "evaluate", trained, "--images", "2", "--out", tmp_path, says=["folder"])
    fails(capsys, "evaluate", trained, "--images", "2", "--suite", "standard", says=["classifiers"])
    bare = ("evaluate", trained, "--images", "2", "--bare")
    fails(capsys, *bare, "--suite", "paper", says=["paper", "only a defence", "standard"])
    fails(capsys, *bare, "--attacks", "randaa-released", says=["only a defence"])
    fails(capsys, "evaluate", "fashion-hardened", "--unhardened", says=["only a hardened"])
    (tmp_path / "worst.json").write_text("{}")
    words = ("evaluate", trained, "--examples", tmp_path / "worst.json")
    fails(capsys, *words, says=["examples are .safetensors", "worst.json"])
    fails(capsys, "evaluate", "fashion", "--on", "mnist-like", says=["mnist-like"])
    fails(capsys, "report", tmp_path / "none.json", says=["none.json"])
    (tmp_path / "odd.json").write_text("{}")
    fails(capsys, "report", tmp_path / "odd.json", says=["odd.json", "carso evaluate"])


def test_a_run_predicts_and_resumes(
    capsys: pytest.CaptureFixture[str], trained: Path, photos: Path, tmp_path: Path
) -> None:
    picture = next(photos.rglob("*.png"))
    words = ("predict", trained, picture, "--json", "--candidates", tmp_path)
    code, out, _ = run(capsys, *words)
    (row,) = json.loads(out)
    assert code == 0
    assert row["label"] in ("class0", "class1")
    assert 0 < row["probability"] <= 1
    assert (tmp_path / f"1-{picture.stem}.png").is_file()
    assert json.loads(run(capsys, *words)[1]) == [row]  # the same seed, the same answer
    before = (trained / "purifier.safetensors").read_bytes()
    scenario = trained.parent.parent / "mini.toml"
    code, _, err = run(capsys, "train", scenario, "--run", trained)
    assert code == 0, err
    assert (trained / "purifier.safetensors").read_bytes() == before
    assert (trained / "accuracies.json").is_file()


def test_the_answer_does_not_depend_on_other_images(
    capsys: pytest.CaptureFixture[str], trained: Path, photos: Path
) -> None:
    first, second = sorted(photos.rglob("*.png"))[:2]
    together = json.loads(run(capsys, "predict", trained, first, second, "--json")[1])
    alone = json.loads(run(capsys, "predict", trained, second, "--json")[1])
    assert together[1] == alone[0]


def test_wrong_images(capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path) -> None:
    def saved(name: str, array: np.ndarray) -> Path:
        path = tmp_path / name
        if path.suffix == ".npy":
            np.save(path, array)
        else:
            Image.fromarray(array).save(path)
        return path

    grey = np.zeros((28, 28), dtype=np.uint8)
    right = np.zeros((1, 28, 28), dtype=np.float32)
    cases: list[tuple[Path, list[str]]] = [
        (saved("size.png", np.zeros((27, 28), dtype=np.uint8)), ["28x28", "28x27"]),
        (saved("rgb.png", np.stack([grey] * 3, axis=-1)), ["1 channel", "3 channels"]),
        (saved("bytes.npy", right.astype(np.uint8)), ["floats in [0, 1]", "uint8"]),
        (saved("range.npy", right + 2), ["[0, 1]", "[2, 2]"]),
        (saved("empty.npy", right[:, :, :0]), ["28x28", "0x28"]),
        (saved("nan.npy", right * np.nan), ["[0, 1]", "NaN"]),
        (tmp_path / "missing.png", ["there is no file", "missing.png"]),
    ]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    cases.append((broken, ["broken.png", "not a readable image"]))
    for path, says in cases:
        fails(capsys, "predict", trained, path, says=says)


def test_wrong_defence_layer_scenario_and_device(
    capsys: pytest.CaptureFixture[str], trained: Path, photos: Path, tmp_path: Path
) -> None:
    picture = next(photos.rglob("*.png"))
    fails(capsys, "predict", "fashin", picture, says=["no defence 'fashin'", "fashion"])
    fails(capsys, "train", "fashin", says=["no scenario", "did you mean 'fashion'"])
    wrong = ("predict", trained, picture, "--aggregation", "median")
    fails(capsys, *wrong, says=["median", "double-exponential"])
    fails(capsys, "predict", trained, picture, "--device", "abacus", says=["abacus"])
    text = mini(photos)
    cases = {
        'layers = ["layer.9"]\nwidth = 1': ["layer.9", "nearest", "layer.0"],
        "widht = 1": ["line 10", "widht", "width"],
        "width = 1.5": ["line 10", "width", "int"],
    }
    for change, says in cases.items():
        path = tmp_path / "wrong.toml"
        path.write_text(text.replace("width = 1\n", change + "\n", 1))
        run_folder = tmp_path / "run"
        fails(capsys, "train", path, "--run", run_folder, says=says)
    path.write_text(text.replace("eps = 0.1", "eps = 8"))
    fails(capsys, "train", path, says=["line 7", "eps", "8/255", "8.0"])


@pytest.mark.parametrize(
    ("asked", "gpus", "given"),
    [("auto", False, "cpu"), ("auto", True, "cuda"), ("cuda", True, "cuda"), ("cpu", True, "cpu")],
)
def test_the_device_is_a_gpu_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, asked: str, gpus: bool, given: str
) -> None:
    """And no process touches the first GPU before it has its own."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    assert prepare(asked, 1) == torch.device(given)


def test_damaged_and_foreign_checkpoints_lose_nothing(
    capsys: pytest.CaptureFixture[str], trained: Path, photos: Path, tmp_path: Path
) -> None:
    picture = next(photos.rglob("*.png"))
    damaged = tmp_path / "damaged"
    shutil.copytree(trained, damaged)
    weights = damaged / "purifier.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    fails(capsys, "predict", damaged, picture, says=["purifier.safetensors", "damaged"])
    shutil.copy(trained / "classifier.safetensors", weights)
    fails(capsys, "predict", damaged, picture, says=["purifier.json", "SHA-256"])
    scenario = tmp_path / "other.toml"
    scenario.write_text(mini(photos).replace("width = 1\n", "width = 2\n"))
    kept = (damaged / "classifier" / "checkpoint.json").read_bytes()
    fails(capsys, "train", scenario, "--run", damaged, says=["other settings", "--run"])
    assert (damaged / "classifier" / "checkpoint.json").read_bytes() == kept


def test_corrupt_data_is_not_replaced_by_the_fallback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    embedded = Path(data.__file__).parent / "embedded" / "fashion"
    broken = tmp_path / "fashion-mnist"
    shutil.copytree(embedded, broken)
    images = broken / "train-images-idx3-ubyte.gz"
    images.write_bytes(images.read_bytes()[:5000])
    words = ("train", "fashion", "--data", tmp_path, "--run", tmp_path / "run")
    fails(capsys, *words, says=["train-images-idx3-ubyte.gz"])
    fails(capsys, "train", "fashion", "--data", tmp_path / "none", says=["none", "folder"])


def test_own_weights_are_checked_before_training(
    capsys: pytest.CaptureFixture[str], photos: Path, tmp_path: Path, trained: Path
) -> None:
    scenario = tmp_path / "mini.toml"
    scenario.write_text(mini(photos))
    foreign = trained / "purifier.safetensors"
    words = ("train", scenario, "--run", tmp_path / "run", "--classifier")
    fails(capsys, *words, foreign, says=["does not fit WideResNet", "missing"])
    fails(capsys, *words, tmp_path / "none.pt", says=["there is no file"])
    code, _, err = run(capsys, *words, trained / "classifier.safetensors")
    assert code == 0, err
    defence = on_disk.load(tmp_path / "run")
    assert defence.classes == ("class0", "class1")


def test_wrong_words_are_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, "train", says=["scenario"])
    fails(capsys, "demo", "--images", "1", says=["--images", "3"])
    fails(capsys, "demo", "--colour", says=["--colour"])
    fails(capsys, "dmeo", says=["dmeo"])


def test_another_classifier_in_the_same_run_is_refused(
    capsys: pytest.CaptureFixture[str], trained: Path, tmp_path: Path
) -> None:
    kept = {path: path.read_bytes() for path in trained.glob("*") if path.is_file()}
    scenario = trained.parent.parent / "mini.toml"
    words = ("train", scenario, "--run", trained, "--classifier")
    fails(capsys, *words, trained / "classifier.safetensors", says=["the classifier changed"])
    assert {path: path.read_bytes() for path in trained.glob("*") if path.is_file()} == kept
