"""Small records, and a reader of the pages made of them."""

from html.parser import HTMLParser
from typing import Any

from carso.report.html import page

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def share(value: float) -> dict[str, float]:
    return {"value": value, "low": max(0.0, value - 0.1), "high": min(1.0, value + 0.1)}


def attack(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "what": f"what {name} does",
        "through": "mean-logits",
        "settings": f"Settings({name})",
        "black_box": False,
        "own_output": False,
        "attacked": 3,
        "broken": 1,
        "accuracy_alone": share(0.5),
        "accuracy_after": share(0.5),
        "unreliable": False,
        "reasons": [],
        "gradients": {"nan": 0.0, "infinite": 0.0, "zero": 0.0},
        "gradient_steps": {"images": [3, 3], "nan": [0, 0], "infinite": [0, 0], "zero": [0, 0]},
        "outputs_not_finite": 0.0,
        "passes": {"forward": 1000, "backward": 600},
        "seconds": 2.5,
        "library_warnings": [],
        "right": [2, 0, None, 2],
        "margin": [1.0, -1.0, None, 2.0],
        "size": [0.1, 0.1, None, 0.1],
        **changes,
    }


def entry(image: int, why: str, **changes: Any) -> dict[str, Any]:
    return {
        "image": image,
        "truth": "cat",
        "attack": "push",
        "margin": -1.5,
        "answer_clean": "cat",
        "answer_attacked": "dog",
        "classifier_attacked": "cow",
        "pictures": {
            "clean": PIXEL, "attacked": PIXEL, "difference": PIXEL, "mean_candidate": PIXEL,
        },
        "candidates": [{"picture": PIXEL, "label": "dog"}, {"picture": PIXEL, "label": "cat"}],
        "why": why,
        **changes,
    }  # fmt: skip


def record(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "subject": {
            "name": "net", "kind": "defence", "samples": 8, "aggregation": "mean", "weights": "w0",
        },
        "scenario": {"name": "tiny"},
        "suite": {
            "name": "quick", "draws": 2, "chunk": 100, "samples": 1, "gradient_cosine": 0.97,
            "independent": False,
        },
        "threat": {"norm": "Linf", "eps": 0.1},
        "seed": 17,
        "data": {"set": "squares", "split": "test", "count": 4, "sha256": "a" * 64},
        "provenance": {
            "command": "carso evaluate net --images 4",
            "made": "2026-01-02T03:04:05+00:00",
            "revision": "c0ffee+",
            "versions": {"python": "3.11", "torch": "2.0"},
            "hardware": {"processor": "x86_64", "cores": 2, "threads": 1, "gpus": []},
            "seconds": 3700.4,
        },
        "rerun": "carso evaluate net --images 4",
        "verdict": "The defence net labels 0.500 of 4 images right.",
        "unreliable": False,
        "reasons": [],
        "accuracy": {
            "clean": share(0.75), "worst": share(0.5), "worst_on_all_draws": share(0.25),
        },
        "diagnostics": [
            {"name": "gradients", "ok": True, "verdict": "Gradients are fine.", "figures": {}},
            {
                "name": "curve", "ok": True, "verdict": "It falls.",
                "figures": {
                    "points": [[0.0, 0.75], [0.1, 0.5], [0.95, 0.0]], "chance": 0.1, "steps": 15,
                },
            },
            {"name": "diversity", "ok": None, "verdict": "One is as good.", "figures": {}},
        ],
        "attacks": [attack("push"), attack("shove", accuracy_alone=None)],
        "images": {
            "label": [0, 1, 2, 3],
            "clean_right": [2, 2, 0, 2],
            "clean_margin": [1.0, 0.5, -1.0, 3.0],
            "worst_attack": ["push", "push", "", "push"],
            "worst_right": [2, 0, 0, 1],
            "worst_margin": [0.5, -1.5, -1.0, 0.1],
            "worst_size": [0.1, 0.1, 0.0, 0.1],
        },
        "gallery": [entry(1, "most damaging"), entry(0, "as they come")],
        **changes,
    }  # fmt: skip


def many(**changes: Any) -> dict[str, Any]:
    """The record of enough images for its diagnostics to object."""
    found = record(**changes)
    found["data"] |= {"count": 40, "sha256": "b" * 64}
    found["images"] = {key: values * 10 for key, values in found["images"].items()}
    return found


def classifier() -> dict[str, Any]:
    """The record of a plain classifier: one draw, no candidates."""
    found = record(
        subject={"name": "bare", "kind": "classifier", "weights": "w1"},
        suite={"name": "standard", "draws": 1, "chunk": 100, "samples": 1},
        verdict="The classifier bare labels 0.500 of 4 images right.",
    )
    found["images"] |= {"clean_right": [1, 1, 0, 1], "worst_right": [1, 0, 0, 1]}
    for shown in found["gallery"]:
        del shown["candidates"], shown["pictures"]["mean_candidate"]
    return found


class Reader(HTMLParser):
    """The text, tags and attributes of a page; refuses one whose tags do not match."""

    EMPTY = ("meta", "img", "br", "polyline")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def having(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of the elements with a class."""
        return [found for _, found in self.tags if name in (found.get("class") or "").split()]

    def badges(self) -> list[str]:
        """What the badges say, in order."""
        return [text for text in self.words if text in BADGES]


BADGES = ("number trusted", "number not trusted", "too few images to tell")


def read(*records: dict[str, Any]) -> Reader:
    return Reader(page(records))
