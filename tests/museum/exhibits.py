"""The museum: defences whose gradients mislead, each with its card, and honest ones beside them.

None of the broken ones is more robust than the classifier that it is built around. An evaluation
has to say so: by a number within two points of that classifier's own, or by calling its number
unreliable. Of the honest ones it has to object to none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from broken_inputs import (
    Compressed,
    Quantised,
    Reassured,
    Resized,
    Shattered,
    Smoothed,
    Thermometer,
)
from broken_outputs import (
    Decoy,
    Detector,
    FewDraws,
    Hot,
    Labels,
    Memory,
    Pruned,
    Saturated,
    Watching,
    Winners,
)
from torch import Tensor, nn

import carso

EPS = 0.1
Build = Callable[[nn.Module, Tensor, Tensor], nn.Module]
"""A defence from a classifier, and from the images and labels that it will be judged by."""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A defence and its card."""

    name: str
    what: str
    papers: str
    """Who proposed it, and who broke it."""
    build: Build
    random: bool = False
    samples: int = 0
    """Passes that our attacks average; 0: measured."""
    gradients: bool = True
    """Whether its scores can be differentiated at all."""
    honest: bool = False
    robust_only: bool = False
    """Built around the adversarially trained classifier alone."""


class Released(nn.Module):
    """The paper's defence with the output that its released code has."""

    def __init__(self, samples: int = 2) -> None:
        super().__init__()
        self.view = carso.load("fashion", samples=samples).view("released")

    def forward(self, images: Tensor) -> Tensor:
        return self.view(images)  # type: ignore[no-any-return]


class Noisy(nn.Module):
    """Honest noise: every pass adds some to the image."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.network = classifier

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images + 0.05 * torch.randn_like(images))  # type: ignore[no-any-return]


class Scaled(Noisy):
    """Honest logits, a little larger and from another origin."""

    def forward(self, images: Tensor) -> Tensor:
        return 3 * self.network(images) + 5  # type: ignore[no-any-return]


def around(kind: Callable[[nn.Module], nn.Module]) -> Build:
    return lambda classifier, images, labels: kind(classifier)


def shipped(name: str) -> Build:
    return lambda classifier, images, labels: carso.load(name)


BROKEN = (
    Exhibit(
        name="quantised", build=around(Quantised), what="16 levels of grey",
        papers="Xu et al. 2018; Athalye et al. 2018",
    ),
    Exhibit(
        name="thermometer", build=around(Thermometer), what="pixels as bits over thresholds",
        papers="Buckman et al. 2018; Athalye et al. 2018", gradients=False,
    ),
    Exhibit(
        name="jpeg", build=around(Compressed), what="rounded cosine coefficients of blocks",
        papers="Guo et al. 2018; Athalye et al. 2018",
    ),
    Exhibit(
        name="total-variation", build=around(Smoothed), what="smoothed by a solver, no gradient",
        papers="Guo et al. 2018; Athalye et al. 2018", gradients=False,
    ),
    Exhibit(
        name="resizing", build=around(Resized), what="random size and place",
        papers="Xie et al. 2018; Athalye et al. 2018", random=True, samples=8,
    ),
    Exhibit(
        name="few-draws", build=around(FewDraws), what="noise in a layer, mean of four passes",
        papers="Liu et al. 2018; Athalye et al. 2018", random=True, samples=2,
    ),
    Exhibit(
        name="pruning", build=around(Pruned), what="activations dropped at random",
        papers="Dhillon et al. 2018; Athalye et al. 2018", random=True, samples=8,
    ),
    Exhibit(
        name="winners", build=around(Winners), what="the largest activations take all",
        papers="Xiao et al. 2020; Tramèr et al. 2020",
    ),
    Exhibit(
        name="temperature", build=around(Hot), what="probabilities of logits times 100",
        papers="Papernot et al. 2016; Carlini and Wagner 2017",
    ),
    Exhibit(
        name="saturated", build=around(Saturated), what="probabilities cut off near 0 and 1",
        papers="Carlini and Wagner 2017; Pintor et al. 2022",
    ),
    Exhibit(
        name="detector", build=around(Detector), what="answers at random when it suspects",
        papers="Roth et al. 2019; Tramèr et al. 2020", random=True, samples=2,
    ),
    Exhibit(
        name="labels", build=around(Labels), what="labels without scores",
        papers="Papernot et al. 2017; Brendel et al. 2018", gradients=False,
    ),
    Exhibit(
        name="memory", what="a constant for the right class of images it knows",
        papers="Carlini et al. 2019, a check of theirs",
        build=lambda classifier, images, labels: Memory(classifier, images, labels, 1.1 * EPS),
    ),
    Exhibit(
        name="released", build=lambda classifier, images, labels: Released(),
        what="the paper's aggregation as released", papers="Ballarin et al. 2025; this project",
        random=True, samples=1, robust_only=True,
    ),
    Exhibit(
        name="sine", build=around(Shattered), what="a small fast sine added to the image",
        papers="Athalye et al. 2018, shattered gradients",
    ),
    Exhibit(
        name="nested", build=around(lambda classifier: Scaled(Quantised(classifier))),
        what="16 levels of grey, then larger logits: a wrapper in a wrapper",
        papers="Athalye et al. 2018",
    ),
    Exhibit(
        name="reassured", build=around(Reassured), what="moved to where the classifier is surer",
        papers="Alfarra et al. 2022; Croce et al. 2022",
    ),
    Exhibit(
        name="decoy", build=around(Decoy), what="scores of one network, gradient of another",
        papers="Athalye et al. 2018, a white box that lies",
    ),
    Exhibit(
        name="watching", build=around(lambda classifier: Watching(classifier, EPS)),
        what="to what is near an older question, the older answer",
        papers="Chen et al. 2020; Feng et al. 2023",
    ),
)  # fmt: skip

HONEST = (
    Exhibit(
        name="bare", build=around(lambda classifier: classifier), what="the classifier itself",
        papers="", honest=True,
    ),
    Exhibit(
        name="noisy", build=around(Noisy), what="a little noise in the image", papers="",
        honest=True, random=True, samples=2,
    ),
    Exhibit(
        name="scaled", build=around(Scaled), what="logits times 3, plus 5", papers="", honest=True,
    ),
    *(
        Exhibit(
            name=name, build=shipped(name), what="a shipped defence", papers="", honest=True,
            random=True, robust_only=True,
        )
        for name in ("fashion-hardened", "fashion-retrofit", "fashion-retrofit-unet")
    ),
)  # fmt: skip

EXHIBITS = {exhibit.name: exhibit for exhibit in (*HONEST, *BROKEN)}


def classifiers() -> dict[str, nn.Module]:
    """The shipped classifiers: trained adversarially, and on clean images only."""
    names = {"robust": "fashion", "clean": "fashion-retrofit"}
    return {kind: carso.load(name).classifier for kind, name in names.items()}
