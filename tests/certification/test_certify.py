"""Records of certificates: resumable, the same however they are made, and refused when edited."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from carso.certification.certificate_record import read_certificates
from carso.certification.certify import certify
from carso.certification.smoothing import Votes
from carso.errors import CarsoError

SHAPE = (1, 3, 3)
SETTINGS: dict[str, Any] = {"sigma": 0.5, "draws": 400, "selection": 50, "batch": 100}


class Brightness(nn.Module):
    """Dark or bright, by the mean of the pixels."""

    def forward(self, images: Tensor) -> Tensor:
        lead = images.flatten(1).mean(dim=1) - 0.5
        return torch.stack([-lead, lead], dim=1)


def some_images() -> tuple[Tensor, Tensor]:
    level = torch.tensor([0.0, 0.2, 0.5, 0.8, 1.0, 0.9])
    return level.view(-1, 1, 1, 1).expand(-1, *SHAPE).contiguous(), torch.tensor([0, 0, 1, 1, 1, 0])


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "provenance"}


def test_the_record_says_what_came_of_each_image() -> None:
    record = certify(Brightness(), *some_images(), **SETTINGS)
    images = record["images"]
    assert images["decided"][5] == "wrong"  # bright, and labelled dark
    assert images["radius"][4] > images["radius"][3] > 0
    assert record["accuracy"][0]["value"] == pytest.approx(sum(r > 0 for r in images["radius"]) / 6)
    values = [row["value"] for row in record["accuracy"]]
    assert values == sorted(values, reverse=True)
    assert record["accuracy"][1]["linf"] == pytest.approx(0.25 / 3)


def test_a_stopped_one_goes_on_to_the_same_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = certify(Brightness(), *some_images(), **SETTINGS, out=tmp_path / "whole.json")
    count, calls = Votes.count, [0]

    def stopping(votes: Votes, draws: int) -> Tensor:
        calls[0] += 1
        if calls[0] == 14:  # the first six measure how fast it is
            raise KeyboardInterrupt
        return count(votes, draws)

    with monkeypatch.context() as patch:
        patch.setattr(Votes, "count", stopping)
        with pytest.raises(KeyboardInterrupt):
            certify(Brightness(), *some_images(), **SETTINGS, out=tmp_path / "stopped.json")
    made = len(list((tmp_path / "stopped.parts").glob("image-*")))
    assert 0 < made < 6
    again = certify(Brightness(), *some_images(), **SETTINGS, out=tmp_path / "stopped.json")
    assert without_times(again) == without_times(whole)
    assert not (tmp_path / "stopped.parts").exists()


def test_what_is_certified_does_not_depend_on_the_other_images() -> None:
    images, labels = some_images()
    whole = certify(Brightness(), images, labels, **SETTINGS)
    some = certify(Brightness(), images[:3], labels[:3], **SETTINGS)
    assert some["images"]["votes"] == whole["images"]["votes"][:3]


def test_an_edited_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    certify(Brightness(), *some_images(), **SETTINGS, out=path)
    assert read_certificates(path)["kind"] == "certificate"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["accuracy"][1]["value"] = 1.0
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(CarsoError, match="its checksum does not fit"):
        read_certificates(path)
    del record["checksum"]
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(CarsoError, match=r"was edited: its accuracy at radius 0\.25"):
        read_certificates(path)


def test_other_settings_do_not_take_up_what_was_begun(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    certify(Brightness(), *some_images(), **SETTINGS, out=path)
    (tmp_path / "record.parts").mkdir()
    (tmp_path / "record.parts" / "settings.json").write_text('{"smoothing": 1}', encoding="utf-8")
    with pytest.raises(CarsoError, match="unfinished"):
        certify(Brightness(), *some_images(), **SETTINGS, out=path, again=True)


def test_what_a_killed_process_left_is_gone_after_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    left = tmp_path / ".record.json.abcdefgh"
    left.write_text("half")
    certify(Brightness(), *some_images(), **SETTINGS, out=path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["record.json"]


def test_a_finished_one_is_not_made_again_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = certify(Brightness(), *some_images(), **SETTINGS, out=path)
    written = path.stat().st_mtime_ns
    assert certify(Brightness(), *some_images(), **SETTINGS, out=path) == first
    assert path.stat().st_mtime_ns == written
    certify(Brightness(), *some_images(), **SETTINGS, out=path, again=True)
    assert path.stat().st_mtime_ns != written


def test_a_record_of_others_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    certify(Brightness(), *some_images(), **SETTINGS, out=path)
    before = path.read_bytes()
    for again in (False, True):
        with pytest.raises(CarsoError, match="holds certificates with other smoothing"):
            certify(
                Brightness(), *some_images(), **{**SETTINGS, "sigma": 1.0}, out=path, again=again
            )
    assert path.read_bytes() == before


def test_the_record_says_how_fast_it_was() -> None:
    found = certify(Brightness(), *some_images(), **SETTINGS)["provenance"]
    assert found["draws_per_second"] > 0
    assert 0 < found["share_of_plain_passes"] < 2


class Rounded(nn.Module):
    """A linear map, whose passes autocast may lower; keeps the kind of number that came out."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(9, 2)
        self.seen: set[torch.dtype] = set()

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.linear(images.flatten(1))
        self.seen.add(out.dtype)
        return out


def test_in_bfloat16_the_networks_run_in_it_and_the_record_says_so() -> None:
    low, full = Rounded(), Rounded()
    record = certify(low, *some_images(), **SETTINGS, precision="bf16-mixed")
    certify(full, *some_images(), **SETTINGS)
    assert torch.bfloat16 in low.seen
    assert full.seen == {torch.float32}
    assert record["smoothing"]["precision"] == "bf16-mixed"


def test_a_precision_that_there_is_not_is_refused() -> None:
    with pytest.raises(CarsoError, match="32-true, bf16-mixed"):
        certify(Brightness(), *some_images(), **SETTINGS, precision="fp8")


def test_labels_that_the_model_does_not_know_are_refused() -> None:
    images, labels = some_images()
    with pytest.raises(CarsoError, match="labels must be class numbers from 0 to 1"):
        certify(Brightness(), images, labels + 1, **SETTINGS)


def test_progress_counts_what_is_left(tmp_path: Path) -> None:
    said: list[tuple[str, int]] = []
    done: list[int] = []

    def counted(what: str, total: int) -> Any:
        said.append((what, total))
        return done.append

    certify(Brightness(), *some_images(), **SETTINGS, counted=counted)
    assert said == [("certificates", 6)]
    assert sum(done) == 6
