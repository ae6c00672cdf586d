"""The page: complete, self-contained, honest about what cannot be trusted, and safe to open."""

import copy
import re
from html import escape
from itertools import pairwise
from typing import Any

import pytest
from example_records import PIXEL, Reader, attack, classifier, entry, many, read, record, share

from carso.report import charts, plots
from carso.report.html import page
from carso.report.record_facts import duration


def test_needs_nothing_but_itself() -> None:
    text = page([record(), classifier()])
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?:|//\w|url\(|@import|@font-face", text.replace(PIXEL, ""))
    for tag, found in Reader(text).tags:
        assert tag not in ("script", "link", "iframe", "object")
        assert not any(name.startswith("on") for name in found)
        assert (found.get("src") or "data:image/png;base64,").startswith("data:image/png;base64,")
        assert (found.get("href") or "#").startswith("#")


def test_links_lead_somewhere_and_ids_are_unique() -> None:
    tags = read(record(), record(), classifier()).tags
    ids = [found["id"] for _, found in tags if "id" in found]
    assert len(ids) == len(set(ids))
    links = {(found["href"] or "")[1:] for tag, found in tags if tag == "a"}
    assert links
    assert links <= set(ids)
    assert {found["aria-labelledby"] for _, found in tags if "aria-labelledby" in found} <= set(ids)


def test_headings_skip_no_level() -> None:
    levels = [int(tag[1]) for tag, _ in read(record(), classifier()).tags if re.match(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_conclusion_comes_first_and_then_the_chart() -> None:
    text = read(record()).text
    told = "0.500 of 4 images are labelled right under attack within eps = 0.1 (Linf)"
    first = text.index(told, text.index("Robustness report"))
    assert first < text.index("Accuracy under each attack") < text.index("Can the number be")


def test_an_unreliable_record_is_not_to_be_trusted() -> None:
    bad = many(unreliable=True, reasons=["Gradients are bad.", "It was stopped."])
    bad["diagnostics"][0] |= {"ok": False, "verdict": "Gradients are bad."}
    found = read(bad)
    assert found.badges() == ["number not trusted"]
    assert "is not to be trusted, it is only an upper bound" in found.text
    assert "What fails: gradients" in found.text
    assert found.text.count("Gradients are bad.") == 1  # told among the diagnostics
    assert found.text.count("It was stopped.") == 1  # no diagnosis tells it
    assert all("spoiled" in (bar["class"] or "") for bar in found.having("track")[-2:])


def test_a_badge_is_on_the_number_and_never_praises() -> None:
    """A classifier that keeps nothing has a number to be trusted: no colour of its own."""
    none = many()
    none["accuracy"]["worst"] = share(0.0)
    found = read(none)
    assert found.badges() == ["number trusted"]
    assert found.having("badge")[0]["class"] == "badge yes"
    style = page([none]).partition("</style>")[0]
    assert ".badge.yes" not in style
    assert "--good" not in style


def test_few_images_are_neither_trusted_nor_not() -> None:
    assert read(record()).badges() == ["too few images to tell"]


def test_verdicts_are_sorted_by_trust() -> None:
    found = read(many(), many(unreliable=True), record(), many())
    assert found.badges() == ["number not trusted", "too few images to tell", "number trusted"]
    verdicts = found.text.partition("Verdicts: can each")[2]
    assert verdicts.index("not trusted") < verdicts.index("too few") < verdicts.index("number tru")


def test_several_records_lead_with_the_comparison_and_one_has_none() -> None:
    assert not read(record()).having("compare")
    found = read(record(), classifier())
    assert len(found.having("compare")) == 1
    text = found.text
    assert text.index("keeps the most right") < text.index("Compared The inner bar")
    assert text.index("Compared The inner bar") < text.index("Verdicts: can each number")
    assert text.index("Verdicts: can each number") < text.index("Accuracy under each attack")


def test_records_are_folded_where_there_are_several() -> None:
    folded = read(record(), classifier()).having("record")
    assert [("open" in found) for found in folded] == [False, False]
    assert ["open" in found for found in read(record()).having("record")] == [True]


def test_a_link_to_a_record_opens_it() -> None:
    """A browser opens a folded part when the target lies within, not when it is the part itself."""
    tags = read(record(), classifier()).tags
    for number in (1, 2):
        (at,) = [i for i, (_, found) in enumerate(tags) if found.get("id") == f"record-{number}"]
        assert [tag for tag, _ in tags[at - 3 : at]] == ["details", "summary", "h2"]


def test_each_figure_is_told_once() -> None:
    """One number for the headline and one for the chart; the folded record does not repeat it."""
    one, other = many(), many()
    one["accuracy"]["worst"] = {"value": 0.4321, "low": 0.4, "high": 0.5}
    one["accuracy"]["clean"] = {"value": 0.8765, "low": 0.8, "high": 0.9}
    found = read(one, other).text.partition("Compared The inner bar")[2]
    assert [found.count(number) for number in ("0.432", "0.876")] == [1, 1]
    alone = read(one).text.partition("Accuracy under each attack")[2]
    assert [alone.count(number) for number in ("0.432", "0.876")] == [1, 1]


def test_every_attack_and_every_diagnosis_is_there() -> None:
    text = read(record()).text
    for found in record()["attacks"]:
        for word in (found["name"], found["what"], found["settings"]):
            assert word in text
    for found in record()["diagnostics"]:
        assert found["verdict"] in text
    assert "attacked 3 images, broke 1" in text


def test_marks_of_diagnoses_are_words() -> None:
    failing = record()
    failing["diagnostics"][0]["ok"] = False
    text = read(failing).text
    assert [text.count(mark) for mark in ("FAILS", "note diversity", "ok curve")] == [1, 1, 1]


def test_a_name_is_never_markup() -> None:
    evil = '<script>alert("x")</script><img src=x onerror=y>'
    bad = record(verdict=evil, rerun=evil, scenario={"name": evil})
    bad["subject"]["name"] = bad["suite"]["name"] = bad["data"]["set"] = evil
    bad["diagnostics"][0] |= {"name": evil, "verdict": evil}
    bad["attacks"][0] |= {
        "name": evil, "what": evil, "settings": evil, "unreliable": True, "reasons": [evil],
        "library_warnings": [evil],
    }  # fmt: skip
    bad["gallery"][0] |= {"truth": evil, "attack": evil, "answer_clean": evil, "why": evil}
    bad["gallery"][0]["candidates"][0]["label"] = evil
    text = page([bad, bad])
    assert evil not in text
    assert escape(evil).replace("&quot;", "&#34;") in text
    harmless = {tag for tag, _ in read(record(), record()).tags}
    assert {tag for tag, _ in Reader(text).tags} <= harmless
    assert not any("onerror" in found for _, found in Reader(text).tags)


def test_bars_prefer_what_an_attack_did_alone() -> None:
    asked = record(attacks=[
        attack("push", accuracy_alone=share(0.6), accuracy_after=share(0.4)),
        attack("shove", accuracy_alone=None, accuracy_after=share(0.3)),
    ])  # fmt: skip
    bars = charts.accuracies(asked)
    assert [bar.share.value for bar in bars] == [0.75, 0.6, 0.3, 0.5, 0.25]
    assert [bar.basis for bar in bars[1:3]] == ["on its own", "after those above"]
    text = read(asked).text
    assert "0.600 [0.500, 0.700]" in text
    assert "0.300 [0.200, 0.400]" in text


def test_bars_and_whiskers_are_where_the_numbers_are() -> None:
    found = read(record())
    styles = [style["style"] for style in found.having("whisker")]
    assert styles[0] == "left:65%;width:20%"
    assert [style["style"] for style in found.having("fill")] == [
        "width:75%", "width:50%", "width:50%", "width:50%", "width:25%",
    ]  # fmt: skip


def test_an_unreliable_attack_says_why() -> None:
    bad = attack(
        "push",
        unreliable=True,
        reasons=["nearly all gradients were NaN"],
        library_warnings=["zero gradient"],
        gradients={"nan": 0.99999, "infinite": 0.00001, "zero": 0.0},
        gradient_steps={"images": [3, 3], "nan": [2, 3], "infinite": [1, 0], "zero": [0, 0]},
    )
    found = read(record(attacks=[bad]))
    assert "not to be trusted: nearly all gradients were NaN" in found.text
    assert "the attack library warned: zero gradient" in found.text
    assert "NaN >99.9% infinite <0.1% zero 0.0%" in found.text
    assert ["spoiled" in (bar["class"] or "") for bar in found.having("track")] == [
        False, True, False, False,
    ]  # fmt: skip


def test_gradients_step_by_step() -> None:
    steps = {"images": [4, 4, 4, 0], "nan": [0, 0, 1, 0], "infinite": [0] * 4, "zero": [0, 0, 2, 0]}
    runs = plots.runs(steps)
    assert [(run.steps, run.seen, run.nan, run.zero) for run in runs] == [
        (2, True, 0, 0), (1, True, 0.25, 0.5), (1, False, 0, 0),
    ]  # fmt: skip


def test_attacks_without_gradients_say_so() -> None:
    nothing: dict[str, list[int]] = {"images": [], "nan": [], "infinite": [], "zero": []}
    blind = attack(
        "blind", passes={"forward": 9, "backward": 0}, gradient_steps=nothing, black_box=True
    )
    idle = attack(
        "idle", attacked=0, broken=0, passes={"forward": 0, "backward": 0}, gradient_steps=nothing
    )
    found = read(record(attacks=[blind, idle]))
    assert "blind follows no gradients" in found.text
    assert "idle attacked no image" in found.text
    assert "attacked no image: none was left standing" in found.text
    assert not found.having("strip")


def test_fates_count_every_image_once() -> None:
    assert {fate.kind: fate.count for fate in charts.fates(record())} == {
        "right": 1, "some": 1, "broken": 1, "wrong": 1,
    }  # fmt: skip
    assert [fate.count for fate in charts.fates(classifier())] == [2, 1, 1]


def test_the_curve_and_its_landmarks() -> None:
    curve = plots.curve(record())
    assert curve is not None
    assert [point.value for point in curve.points] == [0.75, 0.5, 0.0]
    assert curve.threat == curve.points[1].across
    assert curve.points[1].times == "1×"
    found = read(record())
    assert [len(found.having(name)) for name in ("dot", "chance", "diamond")] == [3, 1, 0]
    assert "Accuracy against eps: 0.750 at 0, 0.500 at 0.1, 0.000 at 0.95" in page([record()])


def test_the_curve_says_on_which_images_it_is() -> None:
    some = record()
    assert "On some of the images only" in read(some).text
    some["diagnostics"][1]["figures"]["images"] = 2
    curve = plots.curve(some)
    assert curve is not None
    assert curve.worst == 0.5  # of the first two images one is right on both draws
    found = read(some)
    assert "On the first 2 of the headline's 4 images." in found.text
    assert len(found.having("diamond")) == 1
    some["diagnostics"][1]["figures"]["images"] = 4
    assert "On all of the headline's images." in read(some).text


def test_the_threat_is_found_on_the_rounded_axis() -> None:
    off = record(threat={"norm": "Linf", "eps": 8 / 255})
    off["diagnostics"][1]["figures"]["points"] = [[0.0, 0.75], [0.031373, 0.5], [0.95, 0.0]]
    curve = plots.curve(off)
    assert curve is not None
    assert curve.threat == 0.5


def test_tries_are_drawn_where_they_were_counted() -> None:
    assert "One try or many" not in read(record()).text
    curve = [share(0.9 / number) for number in range(1, 21)]
    found = read(record(tries={"draws": 20, "accuracy": curve}))
    assert "One try or many" in found.text
    labels = [tag["aria-label"] or "" for _, tag in found.tags if "aria-label" in tag]
    (said,) = [label for label in labels if label.startswith("Accuracy against the number")]
    assert "0.900 at 1, 0.450 at 2" in said
    assert said.endswith("at 20")


def test_the_verdict_while_optimising_is_a_bar() -> None:
    new = record()
    new["accuracy"] = {**new["accuracy"], "while_optimising": share(0.125)}
    assert "judged while optimising" in read(new).text
    assert "judged while optimising" not in read(record()).text


def test_no_curve_no_plot() -> None:
    assert "Accuracy against eps" not in read(record(diagnostics=[])).text


@pytest.mark.parametrize("offset", [0.0, 100.0, -100.0])
def test_the_histogram_holds_every_finite_lead(offset: float) -> None:
    leads = record()
    leads["images"]["clean_margin"] = [offset + 0.1 * i for i in range(50)] + [None]
    leads["images"]["worst_margin"] = [offset - 0.1 * i for i in range(50)] + [None]
    found = plots.histogram(leads)
    assert found is not None
    assert sum(column.clean for column in found.columns) == 50
    assert sum(column.worst for column in found.columns) == 50
    assert found.unknown == 2
    assert len(found.columns) < 60
    assert any(column.low == 0 or column.high == 0 for column in found.columns)
    assert "2 leads are not finite" in read(leads).text


def test_no_finite_lead_no_histogram() -> None:
    leads = record()
    leads["images"] |= {"clean_margin": [None] * 4, "worst_margin": [None] * 4}
    assert "Lead of the right class" not in read(leads).text


def test_the_gallery_shows_every_picture_once() -> None:
    images = [found for tag, found in read(record()).tags if tag == "img"]
    assert len(images) == 2 * (4 + 2)  # clean, attacked, difference, mean; two candidates
    assert all(found["alt"] for found in images)
    text = read(record()).text
    assert text.index("Most damaging") < text.index("As they come")


def test_wrong_labels_are_marked_in_words_too() -> None:
    one = record(gallery=[entry(1, "most damaging")])
    labels = read(one).having("label")
    # clean, attacked, classifier alone, two candidates
    assert ["wrong" in (label["class"] or "").split() for label in labels] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert "dog wrong" in read(one).text
    assert len(read(one).having("missed")) == 1


def test_an_image_that_no_attack_could_worsen_is_not_called_an_example() -> None:
    text = read(record(gallery=[entry(2, "as they come", attack="")])).text
    assert "No attack found anything worse than the image itself." in text
    assert "Worst example by" not in text


def test_a_classifier_has_no_candidates() -> None:
    found = read(classifier())
    assert len([tag for tag, _ in found.tags if tag == "img"]) == 2 * 3
    assert "Candidates" not in found.text
    assert "classifier, attacked" in found.text
    assert "classifier alone, attacked" not in found.text
    assert "draws label" not in found.text


@pytest.mark.parametrize("gallery", [[], None])
def test_an_empty_gallery(gallery: Any) -> None:
    found = read(record(gallery=gallery))
    assert "The record has no pictures." in found.text
    assert not any(tag == "img" for tag, _ in found.tags)


def test_a_lead_that_is_not_finite() -> None:
    assert (
        "lead of the right class"
        not in read(record(gallery=[entry(1, "most damaging", margin=None)])).text.partition(
            "Pictures Most"
        )[2]
    )


def test_how_to_run_it_again() -> None:
    text = read(record()).text
    for fact in (
        "carso evaluate net --images 4", "seed 17", "c0ffee, with changes", "torch 2.0",
        "x86_64, 2 cores, 1 thread, no GPU", "3700 s (1 h 1 min)", "4: squares, test", "a" * 64,
        "2,000 forward, 1,200 backward", "verdicts on 2 draws", "goes on where it was",
    ):  # fmt: skip
        assert fact in text


def test_without_a_command() -> None:
    bare = copy.deepcopy(record(rerun=""))
    bare["provenance"]["command"] = ""
    found = read(bare)
    assert "No command is recorded" in found.text
    assert not found.having("command")
    bare["provenance"]["command"] = "carso evaluate other"
    assert "carso evaluate other" in read(bare).text


def test_what_a_record_may_lack() -> None:
    least = record()
    for name in ("rerun", "provenance", "scenario", "gallery", "seed"):
        del least[name]
    assert "No command is recorded" in read(least).text


def test_durations() -> None:
    assert [duration(s) for s in (1.25, 61.0, 3725.0)] == [
        "1.2 s", "61 s (1 min 1 s)", "3725 s (1 h 2 min)",
    ]  # fmt: skip


def test_a_page_says_the_norm_and_compares_none_with_another() -> None:
    flat, wide = record(), record(threat={"norm": "L2", "eps": 0.5})
    assert "no pixel changes by more than eps = 0.1 (Linf) of its range" in page([flat])
    both = page([flat, wide])
    assert "the whole change of an image is no longer than eps = 0.5 (L2)" in both
    assert "0.5 (L2)" in both
    groups = charts.comparison([flat, wide])
    assert [group.heading for group in groups] == [
        "squares, eps = 0.1 (Linf)", "squares, eps = 0.5 (L2)",
    ]  # fmt: skip
    assert [line.number for group in groups for line in group.lines] == [1, 2]
    assert "leave nothing to compare" in both
    assert [len(group.lines) for group in charts.comparison([flat, record()])] == [2]
    own = page([record(threat={"norm": "lighter", "eps": 0.5})])
    assert "the attacker may go as far as eps = 0.5 (lighter)" in own
