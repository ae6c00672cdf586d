"""A record is JSON that reads as it was written, and its sentence says what it holds."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import carso
from carso.errors import CarsoError
from carso.evaluation import record as records
from carso.evaluation.assemble import (
    number_of,
    rounded,
    verdict_sentence,
    warnings_of,
)
from carso.evaluation.evaluation import Outcome
from carso.evaluation.record import read, write
from carso.evaluation.resume import as_tensor, from_tensor


@pytest.fixture
def record(tiny_record: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(tiny_record)


def test_what_is_written_is_read(record: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write(path, record)
    assert read(path) == json.loads(json.dumps(record))
    assert path.read_text(encoding="utf-8").endswith("}\n")


def test_lists_of_numbers_are_on_one_line(record: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write(path, record)
    lines = path.read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if '"clean_right"' in line]
    assert line.strip().rstrip(",") == f'"clean_right": {record["images"]["clean_right"]}'


@pytest.mark.parametrize("name", ["net [ 3 ]", "a [\n b", "x ]", "[ ", '{"quoted": [1, 2 ]}'])
def test_brackets_in_names_are_kept_as_they_are(
    record: dict[str, Any], tmp_path: Path, name: str
) -> None:
    record["subject"]["name"] = name
    record["reasons"] = [name, "other"]
    write(tmp_path / "record.json", record)
    assert read(tmp_path / "record.json") == json.loads(json.dumps(record))


def test_json_has_no_nan() -> None:
    assert number_of(torch.tensor(math.nan)) is None
    assert number_of(torch.tensor(-math.inf)) is None
    assert rounded(torch.tensor([0.1234567, math.inf])) == [0.12346, None]


@pytest.mark.parametrize("content", ["{}", "[1, 2]", '{"format": 1}', "no json"])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CarsoError, match=r"other\.json is not a (record|readable JSON)") as error:
        read(path)
    assert "\n" not in str(error.value)


def test_a_record_of_another_format_is_refused(record: dict[str, Any], tmp_path: Path) -> None:
    record["format"] = records.FORMAT + 1
    write(tmp_path / "record.json", record)
    with pytest.raises(CarsoError, match=f"has format {records.FORMAT + 1}, this version"):
        read(tmp_path / "record.json")


def test_arrays_have_an_entry_per_image_and_null_where_nothing_was_tried(
    record: dict[str, Any], images: Tensor
) -> None:
    for values in record["images"].values():
        assert len(values) == len(images)
    for attack in record["attacks"]:
        tried = [value is not None for value in attack["right"]]
        assert len(tried) == len(images)
        assert sum(tried) == attack["attacked"]
        for key in ("margin", "size"):
            assert [value is not None for value in attack[key]] == tried
        assert sum(value == 0 for value in attack["right"]) == attack["broken"]
    assert record["attacks"][0]["right"][3] is None  # wrong without any attack


def test_counts_and_shares_fit_together(record: dict[str, Any], images: Tensor) -> None:
    draws, accuracy = record["suite"]["draws"], record["accuracy"]
    assert draws == 5
    for key, name in (("clean", "clean_right"), ("worst", "worst_right")):
        right = record["images"][name]
        assert all(0 <= value <= draws for value in right)
        assert accuracy[key]["value"] == pytest.approx(sum(right) / draws / len(images))
    sure = sum(value == draws for value in record["images"]["worst_right"])
    assert accuracy["worst_on_all_draws"]["value"] == pytest.approx(sure / len(images))
    assert accuracy["worst_on_all_draws"]["value"] <= accuracy["worst"]["value"]
    assert accuracy["worst"]["value"] <= accuracy["clean"]["value"]
    for share in accuracy.values():
        assert share["low"] <= share["value"] <= share["high"]


def test_no_example_is_larger_than_eps(record: dict[str, Any]) -> None:
    eps = record["threat"]["eps"] + 1e-5
    assert max(record["images"]["worst_size"]) <= eps
    for attack in record["attacks"]:
        assert all(size is None or size <= eps for size in attack["size"])


def test_accuracy_falls_from_attack_to_attack(record: dict[str, Any]) -> None:
    after = [attack["accuracy_after"]["value"] for attack in record["attacks"]]
    assert after == sorted(after, reverse=True)
    first = record["attacks"][0]
    assert first["accuracy_alone"] is not None
    assert all(attack["accuracy_alone"] is None for attack in record["attacks"][1:])


def test_the_sentence_says_what_the_record_holds(record: dict[str, Any]) -> None:
    text = record["verdict"]
    assert "the worst of 3 attacks within eps = 0.02 the defence small labels" in text
    assert f"{record['accuracy']['worst']['value']:.3f} of 12 images" in text
    few, trusted = "the diagnostics can hardly object.", "No diagnostic speaks against it."
    assert text.startswith("DO NOT TRUST") == record["unreliable"]
    assert (few in text) != record["unreliable"]
    record["unreliable"], record["reasons"] = True, ["Something is wrong."]
    assert verdict_sentence(record).endswith("only an upper bound: Something is wrong.")
    record["unreliable"] = False
    assert verdict_sentence(record).endswith(few)
    record["data"]["count"] = 1000
    assert verdict_sentence(record).endswith(trusted)


def test_a_classifier_under_one_attack_is_called_so(
    classifier: nn.Module, images: Tensor, labels: Tensor
) -> None:
    attacks = ("margin@mean-logits",)
    record = carso.evaluate(classifier, images, labels, eps=0.02, suite="tiny", attacks=attacks)
    assert (
        "Under margin@mean-logits within eps = 0.02 the classifier Sequential"
        in (record["verdict"])
    )
    assert record["subject"]["kind"] == "classifier"


def test_a_record_says_where_it_comes_from(record: dict[str, Any], images: Tensor) -> None:
    assert {"made", "revision", "versions", "hardware", "seconds"} <= set(record["provenance"])
    assert record["seed"] == 0
    assert record["data"]["count"] == len(images)
    assert len(record["data"]["sha256"]) == len(record["subject"]["weights"]) == 64
    assert "Margin(steps=5" in record["attacks"][0]["settings"]


def outcome(*heard: str) -> Outcome:
    empty = torch.zeros(0)
    return Outcome(
        chunk=empty, index=empty, examples=empty, right=empty, confirmed=empty, margin=empty,
        gradients=empty, counts=empty, seconds=empty, library_warnings=as_tensor(list(heard)),
        fooled=empty,
    )  # fmt: skip


def test_warnings_that_differ_in_a_number_only_are_told_once() -> None:
    many = (
        outcome("there are 3 points with zero gradient!", "randomized"),
        outcome("there are 12 points with zero gradient!"),
    )
    assert warnings_of(many) == ["there are 3 points with zero gradient!", "randomized"]


def test_values_survive_being_packed_as_tensors() -> None:
    for value in ([], ["ä [x]"], {"a": [1, 2.5, None, True]}):
        assert from_tensor(as_tensor(value)) == value


def edited(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *inside, last = path.split(".")
    table = record
    for key in inside:
        table = table[int(key)] if isinstance(table, list) else table[key]
    table[last] = value
    return record


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("accuracy.worst.value", 0.987, "accuracy.worst.value"),
        ("accuracy.clean.value", 0.123, "accuracy.clean.value"),
        ("accuracy.worst.low", 0.0101, "accuracy.worst.low"),
        ("accuracy.worst_on_all_draws.high", 0.9191, "accuracy.worst_on_all_draws.high"),
        ("attacks.0.attacked", 1000, "attacked"),
        ("attacks.0.broken", 1000, "broken"),
        ("attacks.0.accuracy_alone.value", 0.4321, "accuracy_alone.value"),
        ("data.count", 1000, "data.count"),
        ("verdict", "All is well: 0.987 of 1000 images.", "verdict"),
        ("images.worst_right", "all", "worst_right"),
        ("diagnostics", [{}], "laid out"),
    ],
)
def test_a_record_that_its_images_contradict_is_refused(
    record: dict[str, Any], tmp_path: Path, path: str, value: Any, named: str
) -> None:
    write(tmp_path / "record.json", edited(record, path, value))
    with pytest.raises(CarsoError) as caught:
        read(tmp_path / "record.json")
    assert "contradicts itself" in str(caught.value)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_is_not_made_reliable_by_hand(record: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "record.json", edited(record, "unreliable", not record["unreliable"]))
    with pytest.raises(CarsoError, match="contradicts itself: unreliable"):
        read(tmp_path / "record.json")


RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_the_committed_records_agree_with_their_images() -> None:
    tables = {path: json.loads(path.read_text()) for path in RESULTS.rglob("*.json")}
    found = [path for path, table in tables.items() if "verdict" in table and "images" in table]
    assert len(found) > 40
    for path in found:
        read(path)
