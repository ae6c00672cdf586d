"""The exception of everything that can be wrong with data."""

from carso.errors import CarsoError


class DataError(CarsoError):
    """Missing, damaged or unsuitable data: which file, what was expected, what was found."""
