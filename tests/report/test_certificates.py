"""Records of certificates: tables and a plot of them, alone or beside evaluations."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from example_records import Reader
from support import run

from carso.errors import CarsoError
from carso.evaluation.statistics import share
from carso.report.certificates import (
    certificate_conclusion,
    certificate_table,
    certificate_title,
    certified_plot,
    round_ticks,
)
from carso.report.html import page
from carso.report.write import read_all, rendered_files, write_report
from carso.storage import files

EVALUATED = Path(__file__).parents[2] / "docs" / "results" / "demo" / "classifier.json"
RADIUS = [0.1, 0.4, 0.6, 0.0, 2.0]
LABEL, SELECTED = [0, 1, 2, 3, 4], [0, 1, 2, 3, 0]


def certified_at(at: float) -> list[bool]:
    return [
        chosen == label and radius > 0 and radius >= at
        for radius, label, chosen in zip(RADIUS, LABEL, SELECTED, strict=True)
    ]


def certificate(name: str = "net", **changes: Any) -> dict[str, Any]:
    """Three of five images certified; one abstained, one surely wrong."""
    rows = []
    for at in (0.0, 0.25, 0.5, 1.0):
        found = share(torch.tensor(certified_at(at)).double())
        rows.append(
            {"radius": at, "linf": at, "value": found.value, "low": found.low, "high": found.high}
        )
    return {
        "format": 1,
        "kind": "certificate",
        "subject": {"name": name, "weights": "w"},
        "smoothing": {"sigma": 0.25, "draws": 1000, "selection": 10, "alpha": 0.001, "batch": 10},
        "seed": 0,
        "data": {"count": 5, "sha256": "a" * 64},
        "pixels": 9,
        "accuracy": rows,
        "abstained": 1,
        "images": {"label": LABEL, "selected": SELECTED, "radius": RADIUS},
        "provenance": {},
        **changes,
    }


def written(tmp_path: Path, *records: dict[str, Any]) -> list[Path]:
    paths = [tmp_path / f"{number}.json" for number in range(len(records))]
    for path, one in zip(paths, records, strict=True):
        files.write_json(path, one)
    return paths


def test_the_table_has_a_column_per_record_and_a_line_per_radius() -> None:
    header, rows = certificate_table([certificate(), certificate("other")])
    assert header == ("", "net, sigma = 0.25", "other, sigma = 0.25")
    assert [row[0] for row in rows[-4:]] == [
        "L2 radius 0",
        "L2 radius 0.25 (Linf 0.083)",  # nine numbers: a third
        "L2 radius 0.5 (Linf 0.17)",
        "L2 radius 1 (Linf 0.33)",
    ]
    assert [row[1][:5] for row in rows[-4:]] == ["0.600", "0.400", "0.200", "0.000"]
    assert all(len(row) == 3 for row in rows)


def smoothed(name: str, **changes: Any) -> dict[str, Any]:
    made = certificate(name)
    return {**made, "smoothing": {**made["smoothing"], **changes}}


def test_passes_in_bfloat16_have_a_line_of_their_own() -> None:
    _, plain = certificate_table([certificate(), smoothed("full", precision="32-true")])
    _, lowered = certificate_table([certificate(), smoothed("low", precision="bf16-mixed")])
    assert "precision" not in [row[0] for row in plain]
    assert ("precision", "32-true", "bf16-mixed") in lowered


def test_many_records_have_a_line_each_and_are_told_apart_in_the_plot() -> None:
    records = [smoothed(name, sigma=sigma) for name in ("a", "b") for sigma in (0.25, 1.0)]
    header, rows = certificate_table(records)
    assert header[0] == ""
    assert header[-1] == "L2 radius 1 (Linf 0.33)"
    assert [row[0] for row in rows] == [
        f"{name}, sigma = {sigma}" for name in "ab" for sigma in ("0.25", "1")
    ]
    assert [row[-3][:5] for row in rows] == ["0.400"] * 4
    curves = certified_plot(records).curves
    assert [(curve.style, curve.thickness) for curve in curves] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [curve.thickness for curve in certified_plot(records[::2]).curves] == [1, 1]


def test_images_of_two_sizes_have_no_common_linf_radius() -> None:
    _, rows = certificate_table([certificate(), certificate(pixels=16)])
    assert [row[0] for row in rows[-2:]] == ["L2 radius 0.5", "L2 radius 1"]


@pytest.mark.parametrize("widest", [0.004, 0.63, 1.7, 30.0, 900.0])
def test_ticks_are_few_and_inside(widest: float) -> None:
    ticks = round_ticks(widest)
    assert 2 <= len(ticks) <= 8
    assert all(0 <= across <= 1 for across, _ in ticks)
    assert round_ticks(0.63)[1] == (pytest.approx(0.1 / 0.63), "0.1")


def test_the_curve_falls_at_each_certified_radius() -> None:
    (curve,) = certified_plot([certificate()]).curves
    assert curve.corners[0] == (0.0, 0.6)
    assert [round(up, 3) for _, up in curve.corners] == [0.6, 0.6, 0.4, 0.4, 0.2, 0.2, 0.0, 0.0]
    assert curve.corners[1][0] == pytest.approx(0.1 / (0.6 * 1.05))  # 2.0 is of a wrong image


def test_a_plot_where_nothing_is_certified() -> None:
    nothing = certificate(
        images={"label": [0], "selected": [1], "radius": [0.5]},
        accuracy=[{"radius": 0.0, "value": 0.0, "low": 0.0, "high": 0.8}],
    )
    assert certified_plot([nothing]).curves[0].corners == [(0.0, 0.0), (1.0, 0.0)]
    assert "within L2 radius 0, 0.000 of 1 image is" in certificate_conclusion([nothing])


def test_the_sentence_names_radius_and_certainty() -> None:
    said = certificate_conclusion([certificate()])
    assert "net, sigma = 0.25: within L2 radius 0.25, 0.400 of 5 images are certified" in said
    assert "wrong with probability at most 0.001" in said


def test_two_records_of_the_same_name_are_both_seen() -> None:
    low = certificate()
    low["accuracy"] = [{**row, "value": 0.0} for row in low["accuracy"]]
    assert "is 0.400 of 5 images" in certificate_conclusion([certificate(), low])


def test_a_page_of_certificates_alone() -> None:
    found = Reader(page([certificate(), certificate("<b>other</b>")]))
    assert "highest certified accuracy of these 2 records" in found.text
    assert len([tag for tag, at in found.tags if (at.get("class") or "").startswith("line")]) == 6
    (plot,) = [at for _, at in found.tags if at.get("role") == "img"]
    assert "0.400 at 0.25" in (plot["aria-label"] or "")
    assert "b" not in {tag for tag, _ in found.tags}
    assert "upper bound" not in found.text  # a proof is none


def test_certificates_of_one_title_are_named_after_their_files(tmp_path: Path) -> None:
    paths = written(tmp_path, certificate(), certificate(), certificate("other"))
    found = [certificate_title(one) for one in read_all(paths)]
    same = "net, sigma = 0.25"
    assert found == [f"{same} (0)", f"{same} (1)", "other, sigma = 0.25"]


def test_report_takes_both_kinds_at_once(tmp_path: Path) -> None:
    (made,) = written(tmp_path, certificate())
    lines, paths = write_report([EVALUATED, made], tmp_path / "report")
    text = "\n".join(lines)
    assert "a classifier trained against attacks" in text
    assert "Certified accuracy against the L2 radius" in text
    assert "0.400 [" in text
    for path in paths:
        content = path.read_text(encoding="utf-8")
        assert "0.400 [" in content
        assert "margin@mean-logits" in content  # an attack of the evaluation


def test_a_script_reads_the_numbers_of_both_kinds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made,) = written(tmp_path, certificate())
    out = tmp_path / "report"
    code, text, err = run(capsys, "report", EVALUATED, made, "--json", "--out", out)
    assert not code, err
    evaluated, certified = json.loads(text)["records"]
    record = json.loads(EVALUATED.read_text(encoding="utf-8"))
    assert evaluated["accuracy"] == record["accuracy"]
    assert evaluated["threat"] == {"norm": "Linf", "eps": record["threat"]["eps"]}
    assert evaluated["unreliable"] == record["unreliable"]
    assert [row["value"] for row in certified["accuracy"] if row["radius"] == 0.25] == [0.4]


def test_an_edited_certificate_is_refused(tmp_path: Path) -> None:
    bad = certificate()
    bad["accuracy"][1]["value"] = 0.9
    with pytest.raises(CarsoError, match="edited"):
        rendered_files(written(tmp_path, bad), tmp_path)
