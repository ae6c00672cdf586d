"""[hardening] of a scenario file."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from carso.scenario.allowed_values import (
    AGGREGATIONS,
    AUGMENTATIONS,
    check,
    check_least,
    check_sigma,
    check_step_size,
)

VIEWS = ("mean-logits", "logsumexp", "score", "log-prob")
"""Names of `carso.defence.aggregation`, which this room must not import; no one could train through
the view "released", whose gradients are NaN."""
PRECISIONS = ("float32", "bfloat16", "auto")
STARTS = ("purifier", "scratch")
"""What hardening may begin from besides the purifier of another run."""
ENEMIES = ("attacks", "noise")
"""What hardening may be against."""


def means_a_file(start: str) -> bool:
    """Whether `start` is a weight file and no run; a name of a run may end in a number (-0.5)."""
    path = Path(start)
    return bool(path.suffix) and not path.is_dir()


@dataclass(frozen=True, kw_only=True, slots=True)
class HardeningSettings:
    """[hardening]: the purifier trained on, against attacks on the whole defence."""

    start: str = "purifier"
    """What is hardened: the paper's "purifier" where there is one, a new one, "scratch", or that of
    another run, by its folder, its shipped name or a weight file. Of that, every tensor is taken
    whose name and shape agree; the others are new."""
    against: str = "attacks"
    """"attacks" on the whole defence, or Gaussian "noise" on the images, for certificates."""
    sigma: float = 0.0
    """Deviation of that noise, on the [0, 1] pixel scale; nothing is clipped."""
    epochs: int
    batch_size: int = 128
    rate: float = 1e-3
    """The peak of the one-cycle rate (RAdam)."""
    warmup: float = 0.2
    """Share of the run in which the rate rises."""
    rate_end: float = 1e-4
    """The last rate, as a share of the peak."""
    weight_decay: float = 0.0
    """A step takes the rate times this share off every weight, beside the gradient's own step."""
    weight_perturbation: float = 0.0
    """Adversarial weight perturbation (Wu et al. 2020): the gradient is taken where each weight has
    moved by so large a share of its norm up the loss. One more pass for each image."""
    view: str = "mean-logits"
    """What the training attacks differentiate: a view of `carso.defence.aggregation`."""
    eps: float = 0.0
    """Radius of the training attacks in the norm of [threat]; 0: the radius there."""
    reconstruct_epochs: float = 0.0
    """Epochs at the start in which it only learns to rebuild clean images: before a new purifier
    can do that, the classifier's word on its candidates is confident nonsense."""
    guide: float = 0.0
    """Weight of a linear head on the purifier's summary (the coarsest level of a U-Net), which is
    attacked and trained along, and dropped in the end; 0: none."""
    guide_epochs: float = 0.0
    """Epochs at the start in which only the guide is attacked: its passes make no candidate, and so
    are cheap. Of the images that fool it, all is learnt from the start."""
    unpainted_epochs: float = 0.0
    """The first of these, in which no candidate is painted at all: the guide learns, and what it
    reads, for half of what attacks on the whole cost."""
    eps_epochs: float = 0.0
    """Epochs after that over which the radius grows from 0, steps along with it; so does sigma."""
    temperature: float = 1.0
    """Divides the logits in the training attacks and in the loss, so that no few images that are
    confidently wrong own the gradient; 0: that at which the classifier gives clean validation
    images the greatest likelihood."""
    attack_steps: int = 3
    attack_step_size: float = 0.0
    """Of the training PGD, in the unit of the threat's eps."""
    attack_steps_end: int = 0
    """Steps in the last `end_epochs`, together as long as the others; 0: no more than before."""
    end_epochs: float = 1.0
    clean_share: float = 0.0
    """Share of every batch that is left clean. The training accuracy counts these as well."""
    replays: int = 0
    """Free adversarial training (Shafahi et al. 2019): each batch is trained on so many times, each
    time one step of attack further, whose gradient comes from the very pass that trains; 0: an
    attack of `attack_steps` before each update, several times as dear."""
    attack_loss: str = "cross-entropy"
    """What that PGD climbs: "cross-entropy", or "margin", the lead of the right class; with
    loss = "trades" it is always the divergence."""
    attack_precision: str = "float32"
    """Of the training attacks' passes: "float32", "bfloat16", for hardware that has it, or "auto":
    what is faster where the run begins, measured then and written into the run. Weights learn in
    float32 in any case."""
    loss: str = "cross-entropy"
    """"cross-entropy", "margin" or "trades"."""
    label_smoothing: float = 0.0
    """Share of the label that all classes get, in the cross-entropy of the loss; attacks keep to
    the label."""
    trades_weight: float = 4.0
    reconstruction: float = 0.002
    """Weight of the candidates' distance from the clean image (BCE, summed over the pixels)."""
    features: float = 0.0
    """In that distance, the weight of the classifier's activations."""
    spread: float = 0.0
    """The mean difference wanted between two candidates of an image, on the [0, 1] pixel scale."""
    augment: str = "none"
    """"none", "nudge" (by a pixel), "warp" (turned, stretched and bent a little), "flip", or
    "flip-shift" (by up to an eighth of the side)."""
    cutmix: float = 0.0
    """Share of the batches in which each image gets a piece of another (CutMix, Yun et al. 2019);
    attack and loss then know both labels."""
    average: float = 0.998
    """Decay of the averaged weights, which are the ones that are kept."""
    patience: int = 0
    """Epochs without a better adaptive validation accuracy before it stops; 0: it never does."""
    validation_images: int = 500
    samples: int = 8
    """Candidates of the hardened defence."""
    aggregation: str = "mean-logits"
    anchor: float = 1.0
    """Weight of the classifier's own logits on the input, in the aggregation "anchored"."""

    def __post_init__(self) -> None:
        if self.attack_precision == "tuned":  # what old files say: it was float32 but for a cache
            object.__setattr__(self, "attack_precision", "float32")
        losses, augmentations = ("cross-entropy", "margin", "trades"), AUGMENTATIONS
        misspelt = self.start not in STARTS and get_close_matches(
            self.start, STARTS, n=1, cutoff=0.8
        )
        known = bool(self.start) and not misspelt
        check(known, "start", f"one of {STARTS}, a run or a weight file", self.start)
        check_least(self, 1, "epochs", "attack_steps", "validation_images", "samples")
        check_least(self, 2, "batch_size")
        check_least(self, 0, "reconstruct_epochs", "eps_epochs", "end_epochs", "attack_steps_end")
        check_least(self, 0, "guide", "guide_epochs", "unpainted_epochs")
        check_least(self, 0, "temperature", "weight_decay", "weight_perturbation", "replays")
        check_least(self, 0, "trades_weight", "reconstruction", "features", "spread")
        check_least(self, 0, "patience", "anchor")
        check(self.rate > 0, "rate", "above 0", self.rate)
        check(0 < self.rate_end <= 1, "rate_end", "a share in (0, 1]", self.rate_end)
        check(0 < self.warmup < 1, "warmup", "a share in (0, 1)", self.warmup)
        check(self.eps >= 0, "eps", "at least 0, on the [0, 1] pixel scale", self.eps)
        learns = not self.reconstruct_epochs or self.reconstruction > 0
        check(learns, "reconstruction", "above 0 with reconstruct_epochs", self.reconstruction)
        check(self.against in ENEMIES, "against", f"one of {ENEMIES}", self.against)
        noise = self.against == "noise"
        check_sigma(self.sigma, where='against is "noise"', needed=noise)
        check_step_size(self.attack_step_size, needed=not noise)
        check(not (noise and self.replays), "replays", "0 against noise", self.replays)
        known = self.attack_precision in PRECISIONS
        check(known, "attack_precision", f"one of {PRECISIONS}", self.attack_precision)
        check(self.loss in losses, "loss", f"one of {losses}", self.loss)
        for key in ("label_smoothing", "clean_share"):
            check(0 <= getattr(self, key) < 1, key, "a share in [0, 1)", getattr(self, key))
        check(0 <= self.cutmix <= 1, "cutmix", "a share in [0, 1]", self.cutmix)
        self.check_together()
        climbed = ("cross-entropy", "margin")
        check(self.attack_loss in climbed, "attack_loss", f"one of {climbed}", self.attack_loss)
        check(self.augment in augmentations, "augment", f"one of {augmentations}", self.augment)
        check(self.view in VIEWS, "view", f"one of {VIEWS}", self.view)
        check(0 <= self.average < 1, "average", "in [0, 1)", self.average)
        known = self.aggregation in AGGREGATIONS
        check(known, "aggregation", f"one of {AGGREGATIONS}", self.aggregation)

    def check_together(self) -> None:
        """Settings that would mean nothing beside others are refused."""
        if self.loss == "margin":
            key = "label_smoothing"
            check(
                not self.label_smoothing, key, 'left out with loss = "margin"', self.label_smoothing
            )
        if self.guide:
            check(self.loss == "cross-entropy", "loss", '"cross-entropy" with a guide', self.loss)
            for key in ("replays", "reconstruct_epochs", "features", "spread"):
                check(not getattr(self, key), key, "left out with a guide", getattr(self, key))
        guided = bool(self.guide) or not self.guide_epochs
        check(guided, "guide", "above 0 with guide_epochs", self.guide)
        among = self.unpainted_epochs <= self.guide_epochs
        check(among, "unpainted_epochs", "at most guide_epochs", self.unpainted_epochs)
        noise = self.guide and self.against == "noise"
        check(not noise, "guide", "left out against noise", self.guide)
        if self.replays:
            for key in ("weight_perturbation", "attack_steps_end", "clean_share"):
                check(not getattr(self, key), key, "left out with replays", getattr(self, key))
