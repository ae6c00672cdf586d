"""The benchmarks run and print their ratios; the ratios themselves are recorded, not tested here,
because a loaded machine says nothing about them. The record must meet its bounds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def test_recorded_ratios_are_within_their_bounds() -> None:
    record = json.loads((ROOT / "docs/results/benchmarks.json").read_text(encoding="utf-8"))
    assert record["train_step"]["with_bank_over_floor"] <= 1.15
    assert record["train_step"]["regenerating_over_with_bank"] > 2
    assert record["inference"]["time_over_parts"] <= 1.05
    for what in ("prediction", "gradient"):
        whole = record["inference"][f"{what}_whole_mib"]
        assert record["inference"][f"{what}_chunked_mib"] < whole
    assert record["eot"]["one_candidate"]["shared_over_separate"] < 0.7
    assert record["eot"]["one_candidate"]["shared_over_pyautoattack"] < 0.7
    assert record["start_up"]["help_seconds"] < 0.5


def test_the_page_answers_within_two_seconds_of_a_core() -> None:
    record = json.loads((ROOT / "docs/results/benchmarks.json").read_text(encoding="utf-8"))
    for aim in ("classifier", "defence"):
        assert 0 < record["play"][aim]["processor_seconds"] < 2


def printed(name: str, *words: str) -> Any:
    """What a benchmark prints as JSON."""
    command = [sys.executable, f"benchmarks/{name}.py", *words, "--json"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_benchmark_is_recorded() -> None:
    record = json.loads((ROOT / "docs/results/benchmarks.json").read_text(encoding="utf-8"))
    scripts = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }
    assert scripts == record.keys() - {"checksum"}


def test_inference_benchmark_runs() -> None:
    found = printed("inference", "--batch", "2", "--samples", "2", "--turns", "1")
    assert found["time_over_parts"] > 0.3


def test_eot_benchmark_runs() -> None:
    found = printed("eot", "--batch", "2", "--draws", "2", "--turns", "1")
    for size in ("one_candidate", "eight_candidates"):
        assert found[size]["shared_over_separate"] > 0
        assert all(found[size][f"{way}_mib"] >= 0 for way in ("shared", "separate"))


def test_training_benchmark_runs() -> None:
    found = printed("train_step", "--steps", "1", "--batch", "8")
    assert found["regenerating_over_with_bank"] > 1


def test_the_unet_does_not_grow_with_the_image() -> None:
    record = json.loads((ROOT / "docs/results/benchmarks.json").read_text(encoding="utf-8"))
    sizes: dict[str, dict[int, int]] = {"vae": {}, "unet": {}}
    for row in record["sides"]["rows"]:
        sizes[row["kind"]][row["side"]] = row["parameters"]
        assert row["kind"] == "vae" or row["mib"] > 0
    assert list(sizes["unet"]) == list(sizes["vae"]) == [32, 64, 128, 224]
    assert len(set(sizes["unet"].values())) == 1
    assert sizes["vae"][224] > 10 * sizes["vae"][32]


def test_hardening_benchmark_runs() -> None:
    found = printed("hardening", "--batch", "2", "--turns", "1")
    assert 0 < found["attack_over_step"] < 1.5
    assert found["step_over_floor"] > 0.3


def test_start_up_benchmark_runs() -> None:
    found = printed("start_up", "--turns", "1")
    assert found["help_over_torch"] < 1
