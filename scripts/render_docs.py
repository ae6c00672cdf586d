"""Fills the generated parts of README, docs and model cards from committed records.

    python scripts/render_docs.py            write
    python scripts/render_docs.py --check    exit 1 if something is not up to date

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmark_parts import BENCHMARK_PARTS
from certificate_parts import CERTIFICATE_PARTS, CERTIFICATES, OTHERS
from certificate_parts import paths as certificates
from evaluation_parts import EVALUATION_PARTS, EVALUATIONS
from export_parts import EXPORT_PARTS
from generator_parts import GENERATOR_PARTS
from hardening_parts import GROUPS, HARDENING_PARTS
from ingredient_parts import INGREDIENT_PARTS
from museum_parts import MUSEUM_PARTS
from readme_parts import README_PARTS
from records import RESULTS, ROOT, WEIGHTS, in_one_line
from refutation_parts import REFUTATION_PARTS
from reproduced_parts import REPRODUCED_PARTS
from scale_parts import SCALE_PARTS
from torture_parts import TORTURE_PARTS
from weight_parts import WEIGHT_PARTS

from carso.errors import CarsoError
from carso.storage import files

PARTS = {
    **README_PARTS,
    **EVALUATION_PARTS,
    **HARDENING_PARTS,
    **REFUTATION_PARTS,
    **WEIGHT_PARTS,
    **GENERATOR_PARTS,
    **SCALE_PARTS,
    **BENCHMARK_PARTS,
    **REPRODUCED_PARTS,
    **TORTURE_PARTS,
    **EXPORT_PARTS,
    **CERTIFICATE_PARTS,
    **MUSEUM_PARTS,
    **INGREDIENT_PARTS,
}
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(WEIGHTS.glob("*/README.md")),
)
BEGINNING = r"<!-- begin ([\w-]+) -->"


def rendered(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- begin {name} -->\n{PARTS[name]()}\n<!-- end {name} -->"

    return re.sub(BEGINNING + r".*?<!-- end \1 -->", fill, text, flags=re.DOTALL)


def reports() -> dict[Path, str]:
    """The page and the tables of the records."""
    from carso.report.write import rendered_files

    names = dict.fromkeys([*EVALUATIONS, *(name for group in GROUPS.values() for name in group)])
    found = [path for name in names if (path := RESULTS / f"{name}.json").exists()]
    pages = rendered_files(found, RESULTS) | rendered_files(certificates(), CERTIFICATES)
    for prefix in OTHERS:
        pages |= rendered_files(certificates(prefix), CERTIFICATES / prefix)
    return pages


def main() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    placed = {name for text in texts.values() for name in re.findall(BEGINNING, text)}
    if placed != set(PARTS):
        raise CarsoError(f"a part without a page, or unknown: {sorted(placed ^ set(PARTS))}")
    wanted = {page: rendered(text) for page, text in texts.items()} | reports()
    stale = [
        path
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    checking = "--check" in sys.argv
    for path in stale:
        if not checking:
            files.write_text(path, wanted[path])
        print(f"{'stale' if checking else 'written'}: {path.relative_to(ROOT)}")
    sys.exit(1 if stale and checking else 0)


if __name__ == "__main__":
    in_one_line(main)
