"""Figures, drawn without a display and written atomically."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from carso.storage.files import replacing

CANDIDATES_SHOWN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Purification:
    """One row of the picture: an image, its attacked version, and the candidates made of it."""

    image: Tensor
    """(C, H, W) in [0, 1], as are all the others."""
    attacked: Tensor
    candidates: Tensor
    """(N, C, H, W)."""
    truth: str
    seen: str
    """What the classifier alone sees in the attacked image."""
    answered: str
    """What the defence answers on it."""


def picture(rows: Sequence[Purification], path: Path, *, eps: float) -> None:
    """Rows of image, attacked image, difference and candidates, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = min(CANDIDATES_SHOWN, len(rows[0].candidates))
    columns = ["image", f"attacked, ε = {eps:g}", "difference"]
    columns += [f"candidate {i + 1}" for i in range(shown)]
    figure = Figure(figsize=(1.35 * len(columns), 1.75 * len(rows)), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for r, row in enumerate(rows):
        difference = (row.attacked - row.image) / (2 * eps) + 0.5
        panels = [row.image, row.attacked, difference, *row.candidates[:shown]]
        captions = [row.truth, f"f: {row.seen}", "", f"CARSO: {row.answered}"]
        for c, panel in enumerate(panels):
            axis = axes[r][c]
            axis.imshow(as_pixels(panel), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set_axis_off()
            if r == 0:
                axis.set_title(columns[c], fontsize=8)
            if c < len(captions):
                wrong = c in (1, 3) and captions[c].split(": ")[1] != row.truth
                colour = "firebrick" if wrong else "black"
                axis.text(
                    0.5, -0.12, captions[c], transform=axis.transAxes, ha="center", fontsize=8,
                    color=colour,
                )  # fmt: skip
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def as_pixels(image: Tensor) -> NDArray[Any]:
    """(C, H, W) as matplotlib wants it: (H, W) for one channel, (H, W, C) otherwise."""
    image = image.detach().cpu().clamp(0, 1)
    return (image[0] if len(image) == 1 else image.permute(1, 2, 0)).numpy()


def strip(image: Tensor, candidates: Tensor, path: Path) -> None:
    """An image and its candidates in a row, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.2 * (1 + len(candidates)), 1.4), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 1 + len(candidates), squeeze=False)[0]
    for number, (axis, panel) in enumerate(zip(axes, [image, *candidates], strict=True)):
        axis.imshow(as_pixels(panel), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_axis_off()
        axis.set_title("input" if number == 0 else f"candidate {number}", fontsize=7)
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
