"""`carso certify` as a user meets it."""

import json
from pathlib import Path

import pytest
from support import fails, run

NAME = "fashion-retrofit-unet"
FEW = ("--images", "3", "--n", "100", "--n0", "20", "--on", "fashion-embedded", "--threads", "1")


def test_it_writes_a_record_that_report_takes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    asked = ("certify", NAME, "--bare", "--sigma", "0.1", *FEW, "--out", path, "--name", "alone")
    code, out, error = run(capsys, *asked)
    assert code == 0, error
    assert "alone, sigma = 0.1" in out
    assert "L2 radius 0.25 (Linf 0.0089)" in out
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["smoothing"]["draws"] == 100
    assert record["data"]["split"] == "test"
    assert not path.with_suffix(".parts").exists()
    code, out, _ = run(capsys, *asked)
    assert code == 0
    assert "nothing was computed" in out
    code, out, _ = run(capsys, "report", path, "--out", tmp_path / "report")
    assert code == 0
    assert "alone, sigma = 0.1" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    fails(capsys, *asked, "--n", "200", says=["holds certificates with other smoothing"])


def test_wrong_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def wrong(*words: str, says: str) -> None:
        out = ("--out", tmp_path / "record.json")
        fails(capsys, "certify", NAME, "--images", "3", *words, *out, says=[says])
        assert not list(tmp_path.iterdir())

    wrong(says="--sigma is missing")
    wrong("--sigma", "0", says="sigma is a deviation above 0")
    wrong("--sigma", "1", "--n", "5", says="5 draws can certify nothing")
    wrong("--sigma", "1", "--alpha", "0", says="alpha must be a probability")
    for option in ("--n", "--n0", "--batch"):
        wrong("--sigma", "1", option, "0", says=f"Invalid value for '{option}'")
    wrong("--sigma", "1", "--batch", "1000000000000", says="--batch")
    wrong("--sigma", "1", "--bare", "--unhardened", says="give one of them")
    wrong("--sigma", "1", "--split", "odd", says="the split is test or validation")
