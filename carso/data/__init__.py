"""Data sets as tensors, with validation images held out and a fingerprint for the record."""

from carso.data.errors import DataError, DataNotFoundError
from carso.data.images import ImageData, Split
from carso.data.loading import available, from_tensors, load
from carso.data.sets import DATA_SETS

__all__ = [
    "DATA_SETS",
    "DataError",
    "DataNotFoundError",
    "ImageData",
    "Split",
    "available",
    "from_tensors",
    "load",
]
