"""The headline: true, in one sentence, and never a ranking that the images do not carry."""

from typing import Any

from carso.report.conclusion import conclusions, groups


def record(name: str, right: list[int], **changes: Any) -> dict[str, Any]:
    """A record of images that are each right or wrong under their worst attack."""
    worst = {"value": sum(right) / len(right), "low": 0.0, "high": 1.0}
    return {
        "subject": {"name": name, "kind": "classifier"},
        "suite": {"name": "quick", "draws": 1},
        "threat": {"eps": 0.1},
        "data": {"set": "squares", "count": len(right), "sha256": "a" * 64},
        "accuracy": {"clean": {"value": 1.0, "low": 0.9, "high": 1.0}, "worst": worst},
        "unreliable": False,
        "images": {"worst_right": right},
        **changes,
    }


HIGH, NEARLY, LOW = [1] * 90 + [0] * 10, [1] * 89 + [0] * 11, [0] * 100
WHERE = "Of 100 images of squares attacked within eps = 0.1 (Linf), "
ALONE = "classifier alone"


def test_one_record_says_its_numbers() -> None:
    (said,) = conclusions([record("a", HIGH)])
    assert said == (
        f"a, {ALONE}: 0.900 of 100 images are labelled right under attack within "
        "eps = 0.1 (Linf), 1.000 without attack."
    )


def test_the_highest_and_the_lowest() -> None:
    (said,) = conclusions([record("low", LOW), record("high", HIGH)])
    assert said == (
        f"{WHERE}high ({ALONE}) keeps the most right, 0.900, and low ({ALONE}) the fewest, 0.000."
    )


def test_what_the_images_do_not_tell_apart_is_said() -> None:
    found = [record("high", HIGH), record("next", NEARLY), record("low", LOW)]
    assert f"0.900, not told apart from next ({ALONE}), and low" in conclusions(found)[0]
    assert "tell none of the others apart" in conclusions(found[:2])[0]


def test_a_number_that_is_not_trusted_is_never_in_the_headline() -> None:
    fooled = record("fooled", [1] * 100, unreliable=True)
    (said,) = conclusions([fooled, record("high", HIGH), record("low", LOW)])
    assert "fooled" not in said
    assert "None of these 2 numbers is to be trusted" in conclusions([fooled, fooled])[0]


def test_the_one_number_that_is_trusted_is_the_headline() -> None:
    """As where the same defence was attacked by the published protocol and by a better one."""
    fooled = record("a", [1] * 100, unreliable=True)
    trusted = record("a", HIGH)
    assert conclusions([fooled, trusted]) == [
        *conclusions([trusted]),
        "The other number is not to be trusted.",
    ]
    assert "The other 2 numbers are not" in conclusions([fooled, trusted, fooled])[1]


def test_a_title_that_was_given_is_left_as_it_is() -> None:
    (said,) = conclusions([record("low", LOW), record("high", HIGH, title="a, b")])
    assert f"{WHERE}a, b keeps" in said


def test_what_two_suites_attacked_counts_with_its_lowest_number() -> None:
    """Else a weak attack would put a model at the top."""
    twice = [record("a", HIGH), record("a", LOW), record("b", [1] * 50 + [0] * 50)]
    (said,) = conclusions(twice)
    assert said.startswith(f"{WHERE}b ({ALONE}) keeps the most right, 0.500, and a ({ALONE})")


def test_other_images_and_other_threats_are_not_compared() -> None:
    other_images = {"set": "squares", "count": 100, "sha256": "b" * 64}
    apart = [record("a", HIGH), record("b", LOW, data=other_images)]
    assert "leave nothing to compare" in conclusions(apart)[0]
    wide = [record("a", HIGH, threat={"eps": 0.2}), record("b", LOW)]
    assert "leave nothing to compare" in conclusions(wide)[0]
    assert groups(wide) == [[0], [1]]


def test_a_sentence_for_each_group_the_largest_first() -> None:
    circles = {"set": "circles", "count": 100, "sha256": "c" * 64}
    found = [record(name, values, data=circles) for name, values in (("a", HIGH), ("b", LOW))]
    found += [record(name, values) for name, values in (("c", HIGH), ("d", LOW), ("e", LOW))]
    said = conclusions(found)
    assert ["squares" in said[0], "circles" in said[1], len(said)] == [True, True, 2]
