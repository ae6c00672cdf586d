"""CARSO: a frozen classifier, made harder to fool by purifying what it sees."""

from __future__ import annotations

__version__ = "0.1.0"
