"""A table as plain text, Markdown or LaTeX. It knows nothing of records, and does without torch."""

from __future__ import annotations

Row = tuple[str, ...]
Table = tuple[Row, list[Row]]
"""The header and the rows."""


def as_text(table: Table) -> list[str]:
    """The lines of a table as plain text that can be copied."""
    header, rows = table
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]


def as_markdown(table: Table) -> str:
    header, rows = table
    lines = [header, tuple("---" for _ in header), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "\n".join(f"| {line} |" for line in cells)


SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def as_latex(table: Table, caption: str) -> str:
    """A `tabular` with booktabs rules inside a `table`."""
    header, rows = table
    body = [" & ".join(escaped(cell) for cell in row) + r" \\" for row in (header, *rows)]
    columns = "l" * len(header)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def escaped(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)
