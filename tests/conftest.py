"""What holds for every test."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def tracing_goes_on() -> Iterator[None]:
    """`pyautoattack`, called directly, leaves no trace function: coverage would end there."""
    trace = sys.gettrace()
    yield
    if sys.gettrace() is not trace:
        sys.settrace(trace)
