"""The paper's tables made here: every step once, the paper's figures beside, gaps named."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support import HARDENING, fails, mini, run, write_photos

from carso.errors import CarsoError
from carso.evaluation.diagnostics import examine
from carso.evaluation.record import read
from carso.report.progress import Bars, progress
from carso.report.record_tables import title
from carso.reproduction import TABLES, Scale, Workshop, published, read_scale, scales
from carso.reproduction.plan import Bench, Measurement, PlannedRun
from carso.reproduction.sheet import Sheet
from carso.reproduction.times import minutes_of
from carso.reproduction.workshop import MeasuredDefence, Missing
from carso.reproduction.writing import as_lines, as_page
from carso.storage.files import read_json, write_json

FEW = ("margin@mean-logits",)
"""Attacks that take no time."""
HARDENED_ROWS = {"ablation": 2, "literature": 0, "aggregation": 0, "majority-vote": 0}
"""Where it is not one; in the table of the literature the row is called so in another column."""


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Scale:
    """Two classes of clothes, a defence, one around another classifier, both hardened too; and a
    bench whose data are nowhere."""
    folder = tmp_path_factory.mktemp("tiny")
    write_photos(folder / "photos", 30)
    (folder / "tiny.toml").write_text(mini(folder / "photos", name="tiny") + HARDENING)
    (folder / "gone.toml").write_text(mini("cifar100", name="tiny") + HARDENING)
    tiny, gone = str(folder / "tiny.toml"), str(folder / "gone.toml")
    paper, hardened = ("classifier", "purifier"), ("classifier", "hardening")
    cheap = Measurement(images=4, suite="quick", attacks=FEW)
    names = ("adaptive", "adaptive-few", "randaa-released", "randaa", "pgd-eot")
    return Scale(
        name="tiny",
        what="a test",
        needs="nothing",
        runs={
            "tiny": PlannedRun(scenario=tiny, stages=paper),
            "tiny-hardened": PlannedRun(scenario=tiny, stages=hardened, classifier="tiny"),
            "tiny-clean": PlannedRun(
                scenario=tiny,
                stages=paper,
                changes={"classifier": {"training": {"method": "clean"}}},
            ),
            "tiny-retrofit": PlannedRun(scenario=tiny, stages=hardened, classifier="tiny-clean"),
            "gone": PlannedRun(scenario=gone, stages=paper),
        },
        benches=(
            Bench(
                name="tiny",
                defence="tiny",
                hardened="tiny-hardened",
                clean="tiny-clean",
                retrofit="tiny-retrofit",
                weaker=("tiny-clean", "tiny-retrofit"),
            ),
            Bench(name="gone", defence="gone"),
        ),
        measurements={
            **dict.fromkeys(names, cheap),
            "adaptive-few": replace(cheap, images=3, within="adaptive"),
            "standard": Measurement(images=4, suite="quick", attacks=("apgd-ce@mean-logits",)),
            "standard-few": Measurement(images=4, suite="quick", attacks=("apgd-ce@mean-logits",)),
            "high-eps": Measurement(images=4, suite="quick", attacks=FEW, eps=0.95),
            "high-eps-adaptive": Measurement(images=4, suite="quick", attacks=FEW, eps=0.95),
        },
    )


@pytest.fixture(scope="module", autouse=True)
def one_diagnosis() -> Iterator[None]:
    """The diagnostics have tests of their own, and take the longest here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examine, "DIAGNOSTICS", (examine.precision,))
        yield


@pytest.fixture(scope="module")
def bars() -> Bars:
    with progress(shown=False) as found:
        return found


@pytest.fixture(scope="module")
def shop(scale: Scale, bars: Bars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    folder = tmp_path_factory.mktemp("workshop")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CARSO_DATA", "XDG_CACHE_HOME"):  # CIFAR-100 is in neither
            patch.setenv(name, str(tmp_path_factory.mktemp("empty")))
        yield Workshop(scale=scale, folder=folder, device=torch.device("cpu"), bars=bars)


def test_the_tables_are_the_papers() -> None:
    assert list(TABLES) == list(published.load())


@pytest.mark.parametrize("name", scales())
def test_a_scale_names_only_what_it_has(name: str, bars: Bars) -> None:
    scale = read_scale(name)
    for bench in scale.benches:
        named = {bench.defence, bench.hardened, bench.clean, bench.retrofit, *bench.weaker} - {""}
        assert named <= scale.runs.keys()
        shop = Workshop(scale=scale, folder=Path(), device=torch.device("cpu"), bars=bars)
        for one in named:
            hardened = one.endswith(("-hardened", "-retrofit"))
            assert (shop.scenario(one).hardening is not None) == hardened
            assert (shop.scenario(one).purifier.training is None) == hardened
        assert set(bench.tables) <= TABLES.keys()
    for planned in scale.runs.values():
        assert not planned.classifier or planned.classifier in scale.runs
    wanted = {"standard", "adaptive", "adaptive-few", "randaa-released", "randaa", "pgd-eot"}
    wanted |= {"standard-few", "high-eps", "high-eps-adaptive"}
    assert wanted == scale.measurements.keys()
    with pytest.raises(CarsoError, match="small, paper"):
        read_scale("huge")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_our_rows_above_the_papers(shop: Workshop, name: str) -> None:
    made = TABLES[name](shop)
    header, rows = made.table
    assert all(len(row) == len(header) for row in rows)
    theirs = [row for row in rows if row[0] == "the paper"]
    ours = [row for row in rows if row[0] != "the paper"]
    assert rows == ours + theirs
    assert len(theirs) == len(published.table(name).rows)
    hardened = [row for row in ours if row[0].endswith(", hardened")]
    assert len(hardened) == HARDENED_ROWS.get(name, 1)
    page = as_page(made)
    assert page.startswith(f"## {name}\n")
    assert len(as_lines(made)) > len(rows)
    if name not in ("ablation", "classifiers"):  # where the other bench has no row
        assert any("not run" in cell for row in ours for cell in row)
        assert any("cifar100" in note for note in made.notes)


def test_a_bench_has_rows_in_its_own_tables_only(shop: Workshop, scale: Scale) -> None:
    benches = (scale.benches[0], replace(scale.benches[1], tables=("times",)))
    less = replace(shop, scale=replace(scale, benches=benches), make=False)
    for name, rows in (("times", 3), ("high-eps", 2), ("majority-vote", 1)):
        found = [row for row in TABLES[name](less).table[1] if row[0] != "the paper"]
        assert len(found) == rows


def test_a_cell_is_what_its_record_says(shop: Workshop) -> None:
    header, rows = TABLES["results"](shop).table
    records = shop.folder / "records"
    for row, name in zip(rows[:2], ("tiny", "tiny-hardened"), strict=True):
        cells = dict(zip(header, row, strict=True))
        record = read(records / f"{name}-adaptive.json")
        assert cells["Adaptive, worst case"].startswith(
            f"{record['accuracy']['worst']['value']:.3f}"
        )
        assert cells["CARSO, clean"] == f"{record['accuracy']['clean']['value']:.3f}"
        alone = read(records / "tiny-bare-standard.json")
        assert alone["subject"]["kind"] == "classifier"
        assert cells["Classifier alone, AutoAttack"].startswith(
            f"{alone['accuracy']['worst']['value']:.3f}"
        )
        assert f"of {cells['CARSO, clean']}, n = 4" in cells["Adaptive, worst case"]
    paper = dict(zip(header, rows[-3], strict=True))
    assert paper["CARSO, randAA"] == "0.7613"
    assert paper["Adaptive, worst case"] == ""


def test_the_ablation_is_read_by_one_classifier_and_answered_by_the_other(shop: Workshop) -> None:
    TABLES["ablation"](shop)
    few = ("tiny-clean", "tiny-then-tiny-clean", "tiny-clean-then-tiny")
    weights = {
        read(shop.folder / "records" / f"{name}.json")["subject"]["weights"]
        for name in ("tiny-randaa-released", *(f"{name}-adaptive-few" for name in few))
    }
    assert len(weights) == 4


def test_a_record_of_more_images_gives_a_cell_the_first_of_them(
    shop: Workshop, tmp_path: Path
) -> None:
    record = shop.record(MeasuredDefence(run="tiny"), "adaptive")
    right = [5, 5, 0, 0]
    record = {
        **record,
        "images": {**record["images"], "clean_right": [5] * 4, "worst_right": right},
    }
    write_json(tmp_path / "tiny-adaptive.json", record)
    reading = replace(shop, records=tmp_path, make=False)
    sheet = Sheet(reading, "ablation")
    assert sheet.worst(MeasuredDefence(run="tiny"), "adaptive")().startswith("0.500 [")
    cell = sheet.worst(MeasuredDefence(run="tiny"), "adaptive-few")()
    assert cell.startswith("0.667 [")
    assert cell.endswith("] of 1.000, n = 3")
    assert any("the first 3 of 4 test images" in note for note in sheet.finished().notes)
    assert any("fewer than 40" in note for note in sheet.finished().notes)


def test_the_ablation_ends_with_what_hardening_gives_each_classifier(shop: Workshop) -> None:
    header, rows = TABLES["ablation"](shop).table
    records = shop.folder / "records"
    for row, name, read_by in zip(
        rows[4:6], ("tiny-retrofit", "tiny-hardened"), ("clean/clean", "none"), strict=True
    ):
        cells = dict(zip(header, row, strict=True))
        found = shop.path(MeasuredDefence(run=name), "adaptive-few")
        assert found.parent == records
        right = read(found)["images"]["worst_right"][:3]
        worst = sum(right) / 3 / read(found)["suite"]["draws"]
        assert cells["Ablation"] == read_by
        assert cells["Adaptive, worst case"].startswith(f"{worst:.3f}")


def test_a_hardened_classifier_is_attacked_alone_once(shop: Workshop) -> None:
    header, rows = TABLES["classifiers"](shop).table
    names = [dict(zip(header, row, strict=True))["Classifier of"] for row in rows[:2]]
    assert names == ["tiny-clean", "tiny-clean"]
    assert not list((shop.folder / "records").glob("tiny-retrofit-bare-*"))
    assert rows[0][3:5] == rows[1][3:5]


def test_what_was_made_is_not_made_again(shop: Workshop) -> None:
    first = TABLES["results"](shop)
    before = {path: path.stat().st_mtime_ns for path in shop.folder.rglob("*") if path.is_file()}
    assert TABLES["results"](shop) == first
    assert {p: p.stat().st_mtime_ns for p in shop.folder.rglob("*") if p.is_file()} == before


def test_the_hardened_run_takes_the_classifier_over(shop: Workshop) -> None:
    shop.run("tiny-hardened")
    one, other = (
        (shop.folder / "runs" / name / "classifier.safetensors").read_bytes()
        for name in ("tiny", "tiny-hardened")
    )
    assert one == other
    assert not (shop.folder / "runs" / "tiny-hardened" / "purifier.safetensors").exists()


def test_the_time_of_a_training_outlives_its_run(shop: Workshop, tmp_path: Path) -> None:
    header, rows = TABLES["times"](shop).table
    reading = replace(shop, folder=tmp_path, records=shop.folder / "records", make=False)
    assert TABLES["times"](reading).table[1][:2] == rows[:2]
    assert all("not run" not in row for row in rows[:2])
    hardened = shop.minutes("tiny-hardened")
    assert hardened["classifier"] == shop.minutes("tiny")["classifier"]
    cells = dict(zip(header, rows[1], strict=True))
    assert cells["Training: hardening"] == f"{hardened['hardening']['minutes']:.0f}"
    assert cells["Training of the purifier"] == ""


def test_the_time_of_a_training_has_that_of_its_bank(shop: Workshop, tmp_path: Path) -> None:
    shop.run("tiny")
    record = read_json(shop.folder / "runs" / "tiny" / "purifier.json")
    epochs = sum(row["seconds"] for row in record["history"])
    assert record["bank_seconds"] > 0
    assert minutes_of(shop.folder / "runs" / "tiny")["purifier"]["minutes"] == pytest.approx(
        (epochs + record["bank_seconds"]) / 60
    )
    del record["bank_seconds"]  # as in runs that did not time it
    write_json(tmp_path / "purifier.json", record)
    stages = minutes_of(tmp_path)
    assert not stages["purifier"]["whole"]
    write_json(tmp_path / "times" / "tiny.json", {"stages": stages})
    made = TABLES["times"](replace(shop, records=tmp_path))
    assert made.table[1][0][2] == f"over {epochs / 60:.0f}"
    assert any("not timed" in note for note in made.notes)


def test_without_making_a_table_has_what_is_there(shop: Workshop, tmp_path: Path) -> None:
    TABLES["results"](shop)
    records = shop.folder / "records"
    reading = replace(shop, folder=tmp_path, records=records, make=False)
    Path(records / "tiny-hardened-pgd-eot.json").rename(tmp_path / "away.json")
    try:
        _, rows = TABLES["results"](reading).table
    finally:
        Path(tmp_path / "away.json").rename(records / "tiny-hardened-pgd-eot.json")
    assert "not run" not in rows[0]
    assert rows[1].count("not run") == 1
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_record_of_another_measurement_is_refused(shop: Workshop, tmp_path: Path) -> None:
    TABLES["results"](shop)
    found = (shop.folder / "records" / "tiny-adaptive.json").read_bytes()
    (tmp_path / "tiny-bare-standard.json").write_bytes(found)
    with pytest.raises(
        CarsoError, match="suite is margin@mean-logits, wanted is apgd-ce@mean-logits"
    ):
        replace(shop, records=tmp_path).record(MeasuredDefence(run="tiny", bare=True), "standard")


def test_a_record_of_more_images_will_do_and_one_of_fewer_will_not(
    shop: Workshop, scale: Scale
) -> None:
    def asking(images: int) -> Workshop:
        wanted = replace(scale.measurements["adaptive"], images=images)
        changed = replace(scale, measurements={**scale.measurements, "adaptive": wanted})
        return replace(shop, scale=changed)

    found = shop.record(MeasuredDefence(run="tiny"), "adaptive")
    assert asking(3).record(MeasuredDefence(run="tiny"), "adaptive") == found
    with pytest.raises(CarsoError, match="images is 4, wanted is 5"):
        asking(5).record(MeasuredDefence(run="tiny"), "adaptive")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("subject", {"name": "tiny-hardened"}, "subject is tiny-hardened, wanted is tiny"),
        ("data", {"split": "validation"}, "split is validation, wanted is test"),
        ("data", {"set": "mnist"}, "data is mnist, wanted is"),
    ],
)
def test_a_record_of_another_defence_or_data_is_refused(
    shop: Workshop, tmp_path: Path, key: str, value: dict[str, str], says: str
) -> None:
    record = shop.record(MeasuredDefence(run="tiny"), "adaptive")
    write_json(tmp_path / "tiny-adaptive.json", {**record, key: {**record[key], **value}})
    with pytest.raises(CarsoError, match=says):
        replace(shop, records=tmp_path).record(MeasuredDefence(run="tiny"), "adaptive")


@pytest.mark.parametrize("content", [{}, {"stages": {}}, {"stages": {"purifier": {}}}, []])
def test_a_damaged_record_of_times_is_one_line(
    shop: Workshop, tmp_path: Path, content: object
) -> None:
    write_json(tmp_path / "times" / "tiny.json", content)
    with pytest.raises(CarsoError, match=r"tiny\.json .* delete it"):
        TABLES["times"](replace(shop, records=tmp_path))


def test_the_record_of_an_ablation_says_who_answered(shop: Workshop) -> None:
    record = shop.record(MeasuredDefence(run="tiny", final="tiny-clean"), "adaptive-few")
    assert title(record).startswith("tiny, answered by tiny-clean, ")
    assert "the defence tiny, answered by tiny-clean, labels" in record["verdict"]


def test_a_record_of_missing_data_says_which(shop: Workshop) -> None:
    with pytest.raises(Missing, match="cifar100"):
        shop.record(MeasuredDefence(run="gone"), "adaptive")


def test_the_paper_scale_says_what_it_needs_before_it_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CARSO_DATA", str(tmp_path))
    words = ("reproduce", "results", "--scale", "paper", "--out", tmp_path / "out")
    code, out, err = run(capsys, *words)
    assert code == 2
    assert "A100" in out
    assert len(err.strip().splitlines()) == 1
    assert torch.cuda.is_available() or "GPUs (--device cpu" in err
    for need in ("cifar10_a3_b10_t4_20m_w", "cifar100_a5_b12_t4_50m_w", "--weights", "--data"):
        assert need in err
    assert "cutmix" not in err  # which another table needs
    code, _, err = run(capsys, *(words[:1]), "classifiers", *words[2:])
    assert "cifar10_linf_wrn28-10_cutmix_ddpm_v2" in err
    assert str(tmp_path) not in err
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_shown_without_making_anything(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("reproduce", "times", "--show", "--out", tmp_path / "out", "--records", tmp_path)
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert "measured here, hardened" in out
    assert "the run cifar10-small is not made yet" in out
    assert f"records: {tmp_path}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out" / "runs").exists()


def test_what_is_trained_anew_needs_records_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("reproduce", "times", "--retrain", "--records", tmp_path)
    fails(capsys, *words, says=["leave --records out"])


def test_an_unknown_table_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, "reproduce", "everything", says=["there are results, times"])
