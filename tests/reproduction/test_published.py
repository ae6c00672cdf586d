"""The data file holds every number of the paper's result tables, and no other."""

import os
import re
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from carso.errors import CarsoError
from carso.reproduction import published
from carso.reproduction.published import PublishedTable, Value, load, table, value

REPOSITORY = Path(__file__).parents[2]
TABLES = load()

# Counted in the LaTeX source. `times` and `high-eps` stand there on their side, with one row of
# three cells. More columns than printed: two cells of `results` and the bound in `ablation` are
# split, `high-eps` has eps in the heading of its row and two kinds of value, and a source is a
# citation key and the authors.
SHAPES = {  # rows, columns
    "results": (3, 8 + 2),
    "times": (3, 2),
    "high-eps": (3, 2 + 2),
    "aggregation": (2, 8),
    "majority-vote": (2, 4),
    "ablation": (4 + 4 + 2, 4 + 1),
    "classifiers": (2 + 1, 6 + 1),
    "literature": (11 + 7, 6 + 1),
}

DATASETS = {"a": "cifar10", "b": "cifar100", "c": "tinyimagenet"}

Row = dict[str, str]


@pytest.fixture(params=sorted(SHAPES))
def every(request: pytest.FixtureRequest) -> PublishedTable:
    """Each table in turn."""
    return TABLES[request.param]


# The file by itself.


def test_the_tables_and_their_sizes() -> None:
    found = {name: (len(t.rows), len(t.columns)) for name, t in TABLES.items()}
    assert found == SHAPES


def test_cells_belong_to_columns_and_have_their_unit(every: PublishedTable) -> None:
    units = {column.key: column.unit for column in every.columns}
    assert len(units) == len(every.columns)
    assert set(units.values()) <= {"accuracy", "minutes", "eps", "text"}
    assert all(column.heading for column in every.columns)
    for row in every.rows:
        assert list(row) == [key for key in units if key in row]  # in the order of the columns
        for key, cell in row.items():
            assert isinstance(cell, str) == (units[key] == "text")
            if units[key] == "accuracy":
                assert isinstance(cell, float)
                assert 0 <= cell <= 1


def test_texts_tell_rows_apart_and_are_never_missing(every: PublishedTable) -> None:
    texts = [column.key for column in every.columns if column.unit == "text"]
    rows = {tuple(row[key] for key in texts) for row in every.rows}
    assert len(rows) == len(every.rows)


@pytest.mark.parametrize(
    ("name", "row", "column", "expected"),
    [
        ("results", {"scenario": "a"}, "classifier_clean", 0.9216),
        ("results", {"scenario": "a"}, "carso_randaa", 0.7613),
        ("results", {"scenario": "a"}, "carso_pgd_eot", 0.7689),
        ("results", {"scenario": "a"}, "best_purification_aa", 0.7812),
        ("results", {"scenario": "a"}, "best_purification_pgd_eot", 0.6641),
        ("results", {"dataset": "cifar100"}, "best_training_aa", 0.4267),
        ("results", {"scenario": "b"}, "best_purification_aa", 0.4609),
        ("results", {"scenario": "b"}, "best_purification_pgd_eot", None),
        ("results", {"scenario": "c"}, "carso_pgd_eot", None),
        ("results", {"scenario": "c"}, "best_training_aa", 0.3130),
        ("results", {"scenario": "c"}, "best_purification_aa", None),
        ("times", {"scenario": "b"}, "training", 138),
        ("high-eps", {"scenario": "a"}, "robust_below", 0.047),
        ("high-eps", {"scenario": "b"}, "robust_below", 0.010),
        ("high-eps", {"scenario": "c"}, "robust_below", None),
        ("high-eps", {"scenario": "c"}, "robust_about", 0.0),
        ("high-eps", {"scenario": "c"}, "eps", 0.95),
        ("aggregation", {"scenario": "a"}, "mean_logits_randaa", 0.0086),
        ("aggregation", {"scenario": "b"}, "mean_probabilities_clean", 0.6807),
        ("majority-vote", {"scenario": "a"}, "majority_vote_randaa", 0.8602),
        ("ablation", {"dataset": "cifar10", "ablation": "clean/AT"}, "randaa", 0.7975),
        ("ablation", {"dataset": "cifar100", "ablation": "AT/clean"}, "randaa", None),
        ("ablation", {"dataset": "cifar100", "ablation": "AT/clean"}, "randaa_below", 0.4032),
        ("ablation", {"dataset": "tinyimagenet", "ablation": "clean/AT"}, "clean", 0.5677),
        ("classifiers", {"source": "Gowal2020Uncovering"}, "classifier_aa", 0.6280),
        ("classifiers", {"dataset": "cifar100"}, "carso_randaa", 0.5580),
        ("literature", {"source": "Yoon2021AdvPur"}, "robust", 0.3711),
        ("literature", {"dataset": "cifar100", "source": "Wang2023Better"}, "robust", 0.4266),
        ("literature", {"source": "Bai2024Improving"}, "clean", 0.8521),
        ("literature", {"source": "Hill2021Stochastic"}, "architecture", "Energy-based"),
    ],
)
def test_single_values(name: str, row: Row, column: str, expected: Value | None) -> None:
    assert value(name, row, column) == expected


# What the paper says twice.


@pytest.mark.parametrize("scenario", "ab")
def test_the_aggregation_table_repeats_the_results(scenario: str) -> None:
    row = {"scenario": scenario, "dataset": DATASETS[scenario]}
    for column in ("carso_clean", "carso_randaa"):
        assert value("aggregation", row, column) == value("results", row, column)


@pytest.mark.parametrize("scenario", "ab")
def test_the_literature_table_repeats_the_results(scenario: str) -> None:
    row, ours = {"scenario": scenario}, {"dataset": DATASETS[scenario], "source": "ours"}
    assert value("literature", ours, "clean") == value("results", row, "carso_clean")
    assert value("literature", ours, "robust") == value("results", row, "carso_randaa")


@pytest.mark.parametrize("scenario", "abc")
def test_no_ablation_is_the_result(scenario: str) -> None:
    row, none = {"scenario": scenario}, {"dataset": DATASETS[scenario], "ablation": "none"}
    assert value("ablation", none, "clean") == value("results", row, "carso_clean")
    assert value("ablation", none, "randaa") == value("results", row, "carso_randaa")


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_the_bound_of_an_ablation_is_the_robustness_without_any(dataset: str) -> None:
    bound = value("ablation", {"dataset": dataset, "ablation": "AT/clean"}, "randaa_below")
    assert bound == value("ablation", {"dataset": dataset, "ablation": "clean/clean"}, "randaa")


def test_the_best_of_other_defences_are_in_the_literature_table() -> None:
    def robust(dataset: str, source: str) -> Value | None:
        return value("literature", {"dataset": dataset, "source": source}, "robust")

    a, b, c = ({"scenario": scenario} for scenario in "abc")
    assert value("results", a, "best_training_aa") == robust("cifar10", "Bartoldson2024Adversarial")
    assert value("results", a, "best_purification_pgd_eot") == robust("cifar10", "Lin2024Robust")
    assert value("results", b, "best_purification_aa") == robust("cifar100", "Lin2024Robust")
    # The paper contradicts itself by one digit.
    assert value("results", b, "best_training_aa") == 0.4267
    assert robust("cifar100", "Wang2023Better") == 0.4266
    # The classifier of (b) is listed there too; that of (c) is itself the best.
    cui = {"dataset": "cifar100", "source": "Cui2023Decoupled"}
    assert value("results", b, "classifier_clean") == value("literature", cui, "clean")
    assert value("results", b, "classifier_aa") == value("literature", cui, "robust")
    assert value("results", c, "best_training_aa") == value("results", c, "classifier_aa")


# Mistakes.


def test_an_unknown_table_lists_the_known_ones() -> None:
    with pytest.raises(CarsoError) as caught:
        table("result")
    assert str(caught.value) == (
        "there is no published table 'result'; there are results, times, high-eps, aggregation, "
        "majority-vote, ablation, classifiers, literature"
    )


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        ({"scenario": "a"}, "minutes", "no column 'minutes'; it has scenario, training"),
        ({"dataset": "cifar10"}, "training", "no column 'dataset'; it has scenario, training"),
        (
            {"scenario": "d"},
            "training",
            "0 rows of the published table 'times' match {'scenario': 'd'}; one must",
        ),
        ({}, "training", "3 rows of the published table 'times' match {}; one must"),
    ],
)
def test_a_wrong_cell_gives_one_clear_line(row: Row, column: str, message: str) -> None:
    with pytest.raises(CarsoError, match=f"{re.escape(message)}$") as caught:
        value("times", row, column)
    assert "\n" not in str(caught.value)


# The file against the paper.


@pytest.fixture(scope="module")
def paper() -> str:
    """The LaTeX source, kept beside the repository by its developers."""
    shared = Path(os.environ.get("CARSO_SHARED", REPOSITORY.parent / "shared"))
    place = Path(os.environ.get("CARSO_PAPER", shared / "paper" / "carso.tex"))
    if not place.is_file():
        pytest.skip(f"no source of the paper in {place}; set CARSO_PAPER to the file")
    return place.read_text(encoding="utf-8")


def body(paper: str, label: str) -> str:
    """The lines of a LaTeX table, from its first row to its last."""
    before = paper[: paper.index(rf"\label{{{label}}}")]
    lines = before[before.rindex(r"\begin{tabular}") :]
    return lines[lines.index(r"\midrule") : lines.index(r"\bottomrule")]


def printed_numbers(name: str) -> list[str]:
    """The numbers of the data file in reading order, with the digits that it spells."""
    text = published.FILE.read_text(encoding="utf-8")
    entry = tomllib.loads(text, parse_float=Decimal)[name]
    return [
        str(cell)
        for number, row in enumerate(entry["rows"])
        for key, cell in row.items()
        if not isinstance(cell, str) and (key != "eps" or number == 0)  # printed once
    ]


@pytest.mark.shared
def test_every_number_of_the_paper_in_its_order(paper: str, every: PublishedTable) -> None:
    """Neither is one missing, nor one too many, nor one in another's place."""
    source = body(paper, every.label)
    numbers = re.findall(r"(?<![\w.-])\d+\.\d+|(?<=\\qty\{)\d+", source)
    assert numbers == printed_numbers(every.name)


@pytest.mark.shared
def test_every_source_of_the_paper_in_its_order(paper: str, every: PublishedTable) -> None:
    cited = re.findall(r"\\citet\{(\w+)\}", body(paper, every.label))
    sources = [str(row["source"]) for row in every.rows if "source" in row]
    assert cited == [source for source in sources if source != "ours"]
    for row in every.rows:
        if row.get("source", "ours") != "ours":
            author, year = re.findall(r"^[A-Z][a-z]+|\d{4}", str(row["source"]))
            assert re.fullmatch(rf"{author} .+ {year}", str(row["authors"]))
