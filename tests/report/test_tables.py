"""Tables: what is compared with what, what is never rounded away, and what LaTeX must not read."""

from typing import Any

import pytest

from carso.evaluation.statistics import percent
from carso.report import record_tables, table_formats


def share(value: float, low: float = 0.0, high: float = 1.0) -> dict[str, float]:
    return {"value": value, "low": low, "high": high}


def record(**changes: Any) -> dict[str, Any]:
    """A record with what the tables read."""
    return {
        "subject": {"name": "net", "kind": "defence", "samples": 8, "aggregation": "mean"},
        "suite": {"name": "quick", "draws": 2},
        "threat": {"eps": 0.1},
        "data": {"count": 4, "sha256": "a" * 64},
        "accuracy": {
            "clean": share(0.75),
            "worst": share(0.5, 0.15, 0.85),
            "worst_on_all_draws": share(0.25, 0.05, 0.7),
        },
        "unreliable": False,
        "diagnostics": [],
        "attacks": [],
        "images": {"worst_right": [2, 2, 0, 0]},
        **changes,
    }


def attack(**changes: Any) -> dict[str, Any]:
    return {
        "name": "push",
        "attacked": 3,
        "broken": 1,
        "accuracy_alone": None,
        "accuracy_after": share(0.5),
        "unreliable": False,
        "gradients": {"nan": 0.0, "infinite": 0.0, "zero": 0.0},
        "passes": {"forward": 10, "backward": 5},
        "seconds": 1.0,
        **changes,
    }


def column(table: table_formats.Table, name: str) -> list[str]:
    header, rows = table
    return [row[header.index(name)] for row in rows]


DIFFERENCE = "worst case minus the first line's"


def test_the_difference_is_of_pairs() -> None:
    first = record()
    second = record(images={"worst_right": [2, 2, 2, 0]})  # one image better by two draws of two
    assert column(record_tables.summary([first, second]), DIFFERENCE)[1].startswith("+0.250 [")
    assert column(record_tables.summary([second, first]), DIFFERENCE)[1].startswith("-0.250 [")


def test_draws_are_shares_before_they_are_compared() -> None:
    second = record(
        suite={"name": "quick", "draws": 10}, images={"worst_right": [10, 10, 0, 0]}
    )  # as good as the first, on more draws
    assert column(record_tables.summary([record(), second]), DIFFERENCE)[1].startswith("+0.000 [")


def test_other_images_are_not_subtracted() -> None:
    other = record(data={"count": 4, "sha256": "b" * 64})
    assert column(record_tables.summary([record(), other]), DIFFERENCE) == ["", "other images"]


def test_one_record_is_compared_with_nothing() -> None:
    assert DIFFERENCE not in record_tables.summary([record()])[0]


def test_unreliable_is_said() -> None:
    found = column(record_tables.summary([record(), record(unreliable=True)]), "diagnostics")
    assert found == ["no objection", "UNRELIABLE"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0%"),
        (1e-9, "<0.1%"),
        (0.00049, "<0.1%"),
        (0.0006, "0.1%"),
        (0.5, "50.0%"),
        (0.9994, "99.9%"),
        (0.9996, ">99.9%"),
        (1 - 1e-12, ">99.9%"),
        (1.0, "100.0%"),
    ],
)
def test_a_little_is_not_none_and_nearly_all_is_not_all(value: float, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize("parts", [1, 3, 999, 1001, 12345])
def test_percent_says_none_or_all_only_of_none_or_all(parts: int) -> None:
    for count in range(parts + 1):
        text = percent(count / parts)
        assert (text == "0.0%") == (count == 0)
        assert (text == "100.0%") == (count == parts)


def test_intervals() -> None:
    assert record_tables.interval(share(0.5, 0.1234, 0.9876)) == "0.500 [0.123, 0.988]"
    assert column(record_tables.summary([record()]), "worst case") == ["0.500 [0.150, 0.850]"]
    assert column(record_tables.summary([record()]), "on all draws") == ["0.250 [0.050, 0.700]"]


def test_attacks_one_by_one() -> None:
    table = record_tables.attacks(
        record(
            attacks=[
                attack(accuracy_alone=share(0.6)),
                attack(
                    name="spoiled",
                    unreliable=True,
                    gradients={"nan": 0.6, "infinite": 0.3, "zero": 0.0001},
                ),
                attack(name="blind", passes={"forward": 10, "backward": 0}),
            ]
        )
    )
    assert column(table, "attack") == [
        "none", "push", "spoiled (!)", "blind", "worst case, fresh draws", "right on all 2 draws",
    ]  # fmt: skip
    assert column(table, "accuracy alone")[1:4] == ["0.600 [0.000, 1.000]", "", ""]
    assert column(table, "NaN or inf. gradients")[1:4] == ["0.0%", "90.0%", "no gradients"]
    assert column(table, "zero gradients")[1:4] == ["0.0%", "<0.1%", ""]


def test_broken_images_are_set_against_the_gradients_that_they_took() -> None:
    spent = attack(broken=3, passes={"forward": 10, "backward": 1500})
    free = attack(name="blind", passes={"forward": 10, "backward": 0})
    table = record_tables.attacks(record(attacks=[spent, free]))
    assert column(table, "broken per 1,000 gradients")[1:3] == ["2.000", ""]


def test_both_verdicts_stand_side_by_side_where_a_record_has_them() -> None:
    new = record()
    new["accuracy"] = {**new["accuracy"], "while_optimising": share(0.125)}
    names = column(record_tables.attacks(new), "attack")
    assert names[-3:] == [
        "worst case, fresh draws", "right on all 2 draws", "right on every pass while optimising",
    ]  # fmt: skip
    assert column(record_tables.attacks(new), "accuracy after it")[-1].startswith("0.125")


def test_tries_are_a_table_where_they_were_counted() -> None:
    assert record_tables.tries(record()) is None
    curve = [share(1 / number) for number in range(1, 21)]
    table = record_tables.tries(record(tries={"draws": 20, "accuracy": curve}))
    assert table is not None
    assert table[0] == ("tries", "1", "2", "3", "5", "10", "20")
    assert [cell[:5] for cell in table[1][0][1:]] == [
        "1.000", "0.500", "0.333", "0.200", "0.100", "0.050",
    ]  # fmt: skip


def test_one_draw_needs_no_second_worst_case() -> None:
    table = record_tables.attacks(record(suite={"name": "quick", "draws": 1}))
    assert column(table, "attack")[-1] == "worst case"


def test_a_classifier_has_no_samples() -> None:
    found = record(subject={"name": "net", "kind": "classifier"})
    assert record_tables.title(found) == "net, classifier alone"
    assert record_tables.title(record()) == "net, mean, N = 8"


def test_marks() -> None:
    diagnoses = [{"name": str(ok), "ok": ok, "verdict": "words"} for ok in (True, False, None)]
    table = record_tables.diagnostics(record(diagnostics=diagnoses))
    assert column(table, "") == ["ok", "FAILS", "note"]
    assert column(table, "finding") == ["words"] * 3


def test_text_lines_up() -> None:
    lines = table_formats.as_text((("a", "bb"), [("long", "x"), ("s", "y")]))
    assert lines == ["a     bb", "long  x", "s     y"]


def test_markdown_pipes() -> None:
    lines = table_formats.as_markdown((("a", "b"), [("x|y", "z")])).splitlines()
    assert lines == ["| a | b |", "| --- | --- |", "| x\\|y | z |"]


def test_latex_reads_no_command_from_a_name() -> None:
    text = r"50% & \input{a_b} #1 $x^2$ ~<>"
    assert table_formats.escaped(text) == (
        r"50\% \& \textbackslash{}input\{a\_b\} \#1 \$x\textasciicircum{}2\$ "
        r"\textasciitilde{}\textless{}\textgreater{}"
    )


def test_latex_table() -> None:
    lines = table_formats.as_latex((("a", "b"), [("50%", "x & y")]), "A_B").splitlines()
    assert r"\caption{A\_B}" in lines
    assert r"\begin{tabular}{ll}" in lines
    assert r"50\% & x \& y \\" in lines
    assert lines.index(r"\toprule") < lines.index(r"\midrule") < lines.index(r"\bottomrule")
