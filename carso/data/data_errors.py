"""The exception of everything that can be wrong with data."""

from carso.errors import CarsoError


class DataError(CarsoError):
    """Missing, damaged or unsuitable data: which file, what was expected, what was found."""


class DataNotFoundError(DataError):
    """The data set is in none of the folders searched; a scenario may have a fallback."""
