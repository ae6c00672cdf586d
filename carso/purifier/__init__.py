"""Step 2: from the representation of an image to candidates for its clean version."""

from carso.purifier.purifier import Purifier, Reconstruction

__all__ = ["Purifier", "Reconstruction"]
