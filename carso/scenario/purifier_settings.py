"""[purifier] of a scenario file: which kind, and the settings that each kind has of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from carso.scenario.allowed_values import check
from carso.scenario.purifier_training_settings import BatchAttackSettings, PurifierTrainingSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class VAESettings:
    """kind = "vae": the paper's conditional VAE."""

    condition: int
    """Features of the encoded representation (`fcrepr` in the paper)."""
    latent: int
    """Features of the latent code (`fjoint` in the paper)."""
    decoder_width: int = 256
    """Channels at the start of the decoder."""
    stages: int = 0
    """Convolutions per layerwise encoder; 0: three up to 32 pixels a side, four above."""
    encoder_ratio: float = 0.5
    """The share of its channels that each of them keeps; the paper's is a half."""

    def __post_init__(self) -> None:
        check(self.condition >= 1, "condition", "at least 1", self.condition)
        check(self.latent >= 1, "latent", "at least 1", self.latent)
        check(
            self.decoder_width >= 8 and self.decoder_width % 8 == 0,
            "decoder_width",
            "a multiple of 8",
            self.decoder_width,
        )
        check(self.stages >= 0, "stages", "at least 0", self.stages)
        check(0 < self.encoder_ratio <= 4, "encoder_ratio", "in (0, 4]", self.encoder_ratio)


@dataclass(frozen=True, kw_only=True, slots=True)
class UNetSettings:
    """kind = "unet": a U-Net over the activations."""

    widths: tuple[int, ...] = (16, 32, 64, 96)
    """Channels of each level; the first has the image's resolution, each next one half of it."""
    blocks: tuple[int, ...] = (1, 2, 2, 2)
    """Residual blocks of each level, on the way down and again on the way up."""
    up_blocks: tuple[int, ...] = ()
    """Those on the way up, of all levels but the coarsest, where they are to be others: to tell
    what an image shows takes more than to paint it."""
    noise: int = 4
    """Channels of noise that enter each level; 0: one candidate, always the same. An attack in
    training that draws once per step does not see through noise, and a purifier can learn to hide
    behind it (the lab log has a case)."""
    skips: bool = True
    """Whether the way up sees the way down at each level. They keep detail, and let an attack's
    detail through as well; without them everything passes the coarsest level."""

    def __post_init__(self) -> None:
        check_levels(self.widths, self.blocks)
        finer = len(self.widths) - 1
        fits = not self.up_blocks or (len(self.up_blocks) == finer and min(self.up_blocks) >= 0)
        check(fits, "up_blocks", f"a number for each of the {finer} finer levels", self.up_blocks)
        check(self.noise >= 0, "noise", "at least 0", self.noise)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowSettings:
    """kind = "flow": the same network as a flow from noise to the clean image."""

    widths: tuple[int, ...] = (16, 32, 64, 96)
    """As of the U-Net."""
    blocks: tuple[int, ...] = (1, 2, 2, 2)
    """As of the U-Net."""
    steps: int = 4
    """Euler's steps from noise to a candidate; each is a pass of the network."""

    def __post_init__(self) -> None:
        check_levels(self.widths, self.blocks)
        check(self.steps >= 1, "steps", "at least 1", self.steps)


def check_levels(widths: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    """The levels of a U-Net."""
    wide = len(widths) >= 2 and min(widths) >= 1
    check(wide, "widths", "two levels or more of at least one channel", widths)
    same = len(blocks) == len(widths) and min(blocks) >= 0
    check(same, "blocks", f"a number for each of the {len(widths)} widths", blocks)


KINDS: dict[str, type[VAESettings] | type[UNetSettings] | type[FlowSettings]] = {
    "vae": VAESettings,
    "unet": UNetSettings,
    "flow": FlowSettings,
}
"""The settings of each kind that ships; `carso.purifiers.kinds` knows how to build them."""

SMALL: dict[str, dict[str, Any]] = {"vae": {"condition": 256, "latent": 64, "decoder_width": 128}}
"""Sizes for small images, of the kinds that have no defaults of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PurifierSettings:
    """[purifier]: in the file, the kind's own settings stand in this table as well."""

    kind: str = "vae"
    """One of `KINDS`, or a class of the user's own as "module:Class"."""
    own: VAESettings | UNetSettings | FlowSettings | Mapping[str, Any]
    """The kind's own settings; of a class of the user's own, its keyword arguments."""
    attacks: BatchAttackSettings | None = None
    training: PurifierTrainingSettings | None = None
    """The paper's stage; without it, hardening starts from scratch."""

    def __post_init__(self) -> None:
        both = (self.attacks is None) == (self.training is None)
        check(both, "training", "there with attacks, or neither of them", self.training)

    def arguments(self) -> dict[str, Any]:
        """The kind's own settings, as keyword arguments."""
        return dict(self.own) if isinstance(self.own, Mapping) else asdict(self.own)
