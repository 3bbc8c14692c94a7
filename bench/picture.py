"""The ratios as a picture: a bar for each row on a logarithmic axis, with its gate and its aim. Growth, as lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

from .growth import OPERATIONS
from .row import OURS, OURS_2
from .table import JUMPS, jumps, ns

_WIDTH, _LEFT, _RIGHT, _HEIGHT = 800, 310, 675, 18
_COLOURS = {"below gate": "#fa4549", "ok": "#54aeff", "ahead of aim": "#2da44e"}
_RANKS = {2: "#0969da", 3: "#2da44e", 4: "#bf8700", 5: "#fa4549", 6: "#8250df", 8: "#6e7781"}
_PANEL = 190
_STYLE = """
text { font: 11px sans-serif; fill: #24292f } line { stroke: #24292f; stroke-width: 2 }
.tick { stroke: #8c959f; stroke-width: 1 } .aim { stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } line { stroke: #e6edf3 } .tick { stroke: #6e7681 } }
"""


def growth_picture(found: Sequence[dict[str, Any]]) -> str:
    """An SVG: ns an entry over entries, both logarithmic; for each operation a panel, for each rank a line."""
    points = [(row["entries"], ns(row, name)) for row in found for name in (OURS, OURS_2)]
    (least, low), (most, high) = (tuple(map(end, zip(*points, strict=True))) for end in (min, max))
    jumped = {(row["row"], row["entries"]) for row, _ in jumps(found)}
    height = _PANEL * len(OPERATIONS) + 30

    def x(entries: float) -> float:
        return round(60 + 640 * math.log(entries / least) / max(math.log(most / least), 1), 1)

    def lines() -> Iterator[str]:
        yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">'
        yield f"<style>{_STYLE} polyline {{ fill: none; stroke-width: 1.5 }} .two {{ stroke-dasharray: 3 2 }}</style>"
        for k, operation in enumerate(OPERATIONS):
            yield from panel(operation, _PANEL * k)
        legend = f"Solid: one thread; dashed: two; circle: more than {JUMPS} times the smaller size."
        yield f'<text x="{_WIDTH - 6}" y="{height - 8}" text-anchor="end">{legend}</text></svg>'

    def panel(operation: str, top: int) -> Iterator[str]:
        def y(value: float) -> float:
            return round(top + _PANEL - 25 - (_PANEL - 50) * math.log(value / low) / max(math.log(high / low), 1), 1)

        yield f'<text x="60" y="{top + 14}">{escape(operation)}: ns an entry</text>'
        for power in range(-3, 9):
            if low <= 10**power <= high:
                yield f'<line class="tick" x1="60" x2="700" y1="{y(10**power)}" y2="{y(10**power)}"/>'
                yield f'<text x="54" y="{y(10**power) + 4}" text-anchor="end">{10.0**power:g}</text>'
            if least <= 10**power <= most:
                yield f'<text x="{x(10**power)}" y="{top + _PANEL - 8}" text-anchor="middle">{10**power:,}</text>'
        for number, (rank, colour) in enumerate(_RANKS.items()):
            rows = [row for row in found if row["row"] == f"{operation}, rank {rank}"]
            for name, style in ((OURS, ""), (OURS_2, ' class="two"')) if rows else ():
                places = " ".join(f"{x(row['entries'])},{y(ns(row, name))}" for row in rows)
                yield f'<polyline{style} points="{places}" style="stroke: {colour}"/>'
            for row in rows:
                if (row["row"], row["entries"]) in jumped:
                    place = f'cx="{x(row["entries"])}" cy="{y(ns(row, OURS))}"'
                    yield f'<circle {place} r="4" style="fill: none; stroke: {colour}"/>'
            yield f'<text x="712" y="{top + 40 + 16 * number}" style="fill: {colour}">rank {rank}</text>'

    return "\n".join(lines()) + "\n"


def picture(found: Sequence[dict[str, Any]]) -> str:
    """An SVG, 800 wide, for light and dark pages: for each operation a line, on it a dot for each row."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        if row["ratio"] is not None:
            groups.setdefault(row["row"].partition(",")[0], []).append(row)
    ratios = [row["ratio"] for rows in groups.values() for row in rows]
    low, high = 0.8 * min([0.5, *ratios]), 1.2 * max([2.0, *ratios])
    height = _HEIGHT * len(groups) + 50

    def x(ratio: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * math.log(ratio / low) / math.log(high / low), 1)

    def lines() -> Iterator[str]:
        yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">'
        yield f"<style>{_STYLE}</style>"
        for tick in (0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 50, 100):
            if low < tick < high:
                yield f'<line class="tick" x1="{x(tick)}" x2="{x(tick)}" y1="20" y2="{height - 26}"/>'
                yield f'<text x="{x(tick)}" y="14" text-anchor="middle">{tick} ×</text>'
        for k, (name, rows) in enumerate(groups.items()):
            y = 30 + _HEIGHT * k
            yield f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
            for row in rows:
                told = escape(f"{row['row']}, {row['entries']:,}: {row['ratio']:.2g} × {row['against']}")
                place = f'cx="{x(row["ratio"])}" cy="{y}" r="4" fill="{_COLOURS[row["word"]]}"'
                yield f'<circle {place} fill-opacity="0.7"><title>{told}</title></circle>'
        legend = "Time of the other / ours, one thread each. Red: below its gate; green: ahead of its aim."
        yield f'<text x="{_WIDTH - 6}" y="{height - 8}" text-anchor="end">{legend}</text></svg>'

    return "\n".join(lines()) + "\n"
