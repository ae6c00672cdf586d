"""The generated part about exported files."""

from __future__ import annotations

from readme_parts import DATA_SETS
from records import RESULTS, record

from carso.report.table_formats import as_markdown


def exports() -> str:
    """What an exported file is beside its defence."""
    found = record(RESULTS / "exports.json")
    rows = [
        (
            f"`{name}`, N = {one['samples']}",
            f"{found['images']}, {DATA_SETS[one['images']]}",
            f"{one['bytes'] / 2**20:.1f} MiB",
            f"{one['noise_size']}",
            f"{one['same_labels']}",
            f"{one['largest_difference']:.1e}",
        )
        for name, one in found["defences"].items()
    ]
    header = (
        "", "test images", "the ONNX file", "noise per image", "same labels",
        "largest difference of a probability",
    )  # fmt: skip
    return as_markdown((header, rows))


EXPORT_PARTS = {"exports": exports}
