"""Tables as text and as HTML: a head, and rows of text. Columns of numbers are aligned to the right."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

LONGEST = 14  # characters of an item
_NUMBER = re.compile(r"[≈-]?\d[\d.,e+-]*( \w{1,2}| \([\d.,e+–-]+\))?\*?")  # also with a unit, quartiles, a mark


def as_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as lines of aligned columns. An empty head is left out."""
    lines = [head, *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = _of_numbers(rows) or [False] * len(head)
    made = []
    for line in lines:
        cells = zip(line, widths, right, strict=True)
        made.append("  ".join(x.rjust(width) if number else x.ljust(width) for x, width, number in cells).rstrip())
    return "\n".join(made)


def as_html(head: Sequence[str], rows: Sequence[Sequence[str]], *, named: bool = False) -> str:
    """Format a table as HTML. Its text is escaped.

    named: each cell has the head of its column as `data-head`, for a style that stacks the cells of a row.
    """
    right = _of_numbers(rows) or [False] * len(head)
    names = [f' data-head="{escaped(name)}"' if named else "" for name in head or [""] * len(right)]

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ("right" if number else "left" for number in right)
        columns = zip(sides, names, cells, strict=True)
        made = (f'<{tag} style="text-align:{side}"{name}>{escaped(cell)}</{tag}>' for side, name, cell in columns)
        return f"<tr>{''.join(made)}</tr>"

    return f"<table>{line('th', head) if head else ''}{''.join(line('td', row) for row in rows)}</table>"


def escaped(text: str) -> str:
    """Escape text for HTML and for XML, which forbids control characters."""
    return html.escape(printable(text))


def printable(text: str) -> str:
    """Escape control characters other than the end of a line."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def clipped(item: Any, longest: int = LONGEST) -> str:
    """Format an item as text of at most `longest` characters, without control characters."""
    if isinstance(item, np.floating) and math.isfinite(item):
        item = f"{item:.6g}"
    text = printable(str(item))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _of_numbers(rows: Sequence[Sequence[str]]) -> list[bool]:
    """True for each column that contains numbers alone, and at least one."""
    columns = ([cell for cell in column if cell] for column in zip(*rows, strict=True))
    return [bool(cells) and all(map(_NUMBER.fullmatch, cells)) for cells in columns]
