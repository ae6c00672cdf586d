from typing import Any


def page(records: list[dict[str, Any]]) -> str:
    return ""
