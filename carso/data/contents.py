"""What a reader returns: the official parts of a set, before validation images are held out."""

from dataclasses import dataclass

from carso.data.images import Split


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """Official training and test images; `validation` only where a set has its own."""

    training: Split
    test: Split
    validation: Split | None = None
    classes: tuple[str, ...] = ()
    """Names found in the files; empty when the table of data sets gives them."""
