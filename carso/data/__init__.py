"""Data sets as tensors, with validation images held out and a fingerprint for the record."""

from carso.data.data_errors import DataError, DataNotFoundError
from carso.data.images import ImageData, ImageFacts, Split, numbered
from carso.data.loading import available, facts, from_tensors, load
from carso.data.sets import DATA_SETS

__all__ = [
    "DATA_SETS",
    "DataError",
    "DataNotFoundError",
    "ImageData",
    "ImageFacts",
    "Split",
    "available",
    "facts",
    "from_tensors",
    "load",
    "numbered",
]
