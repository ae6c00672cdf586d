"""--on, --quiet and --checkpoint-minutes, as a user gives them."""

import json
from pathlib import Path

import pytest
from support import HARDENING, fails, mini, run, write_photos

from carso.training import checkpoint


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def here(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario whose images are not there."""
    (tmp_path / "mini.toml").write_text(mini("folder:/none") + HARDENING)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_on_takes_other_images_and_names_the_run_after_them(
    here: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(capsys, "train", "mini.toml", says=["/none"])
    code, out, err = run(capsys, "train", "mini.toml", "--on", photos, "--threads", "1")
    assert code == 0, err
    folder = Path("runs") / f"mini-on-{photos.name}"
    assert f"run in {folder}" in out
    assert "purifier epoch 1" in err
    assert json.loads((folder / "purifier.json").read_text())["data"]["name"] == f"folder:{photos}"
    words = ("harden", "mini.toml", "--classifier", folder / "classifier.safetensors")
    words += ("--on", photos, "--allow-any-accuracy", "--quiet", "--run", "hardened")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith("done: carso predict hardened")
    assert (here / "hardened" / "hardening.safetensors").is_file()


def test_quiet_says_the_result_alone(
    here: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--on", photos, "--run", "run", "--threads", "1", "--quiet")
    code, out, err = run(capsys, "train", "mini.toml", *words)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "done: carso predict run IMAGE..."
    assert len(out.splitlines()) == 2
    words = ("--on", photos, "--images", "2", "--draws", "1", "--attacks", "square", "--quiet")
    code, out, err = run(capsys, "evaluate", "run", *words)
    assert (code, err) == (0, "")
    assert "record: records" in out


@pytest.mark.parametrize(("minutes", "within"), [("0", True), ("60", False)])
def test_checkpoints_come_as_often_as_is_asked(
    here: Path,
    photos: Path,
    minutes: str,
    within: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = []
    save = checkpoint.save

    def noted(folder: Path, kept: checkpoint.Checkpoint, *, steps: int = 0) -> None:
        written.append(steps)
        save(folder, kept, steps=steps)

    monkeypatch.setattr(checkpoint, "save", noted)
    words = ("--on", photos, "--quiet", "--checkpoint-minutes", minutes)
    code, _, err = run(capsys, "train", "mini.toml", *words)
    assert code == 0, err
    assert any(written) == within
    assert written.count(0) == 3  # one at the end of each stage's epoch
    fails(capsys, "train", "mini.toml", "--checkpoint-minutes", "-1", says=["checkpoint-minutes"])
    fails(capsys, "train", "mini.toml", "--checkpoint-minutes", "nan", says=["checkpoint-minutes"])
