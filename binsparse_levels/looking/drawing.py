"""SVG pictures: a small level tree with its arrays, the density of a large tensor.

All text is escaped, because it may come from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine import packing
from ..engine.tree import Tree
from ..errors import OptionError, Problem
from ..levels.positions import Array, as_array, cells, items_at
from ..tensors.contents import Dimension, dimension_of
from ..tensors.tensor import Tensor, inside
from ..thresholds import THRESHOLDS
from .tables import LONGEST, clipped, escaped

# In a page, a picture has the colours of the page, which JupyterLab and VS Code name; in a file, those of the system.
_STYLE = """
.bsp { color: var(--jp-content-font-color1, var(--vscode-editor-foreground, currentColor)) }
.bsp:root { color: #24292f; color-scheme: light dark }
@media (prefers-color-scheme: dark) { .bsp:root { color: #e6edf3 } }
.bsp text { font: 12px sans-serif; fill: currentColor; stroke: none } .bsp .mono { font-family: monospace }
.bsp .small { font-size: 10px } .bsp .mid { text-anchor: middle } .bsp .end { text-anchor: end }
.bsp rect, .bsp line { stroke: currentColor; stroke-opacity: 0.55; fill: none } .bsp .soft { stroke-dasharray: 3 2 }
.bsp .ink { stroke: none; fill: #3b82f6 }
"""
_SMALL = 64  # items of any array, and nodes of any level, that are drawn one by one
_SMALL_RANK = 16
_CHARACTER, _BOX, _LINE = 7.5, 20, 18  # the width of a character, the height of a box and of a line of text
_BINS, _SIDE = 128, 384  # the most cells along a side of a spy plot, and its pixels
_SHADES = 8
_DRAWN_IN_NOTEBOOKS = 2**22  # the most stored values; they take a tenth of a second


def draw(tensor: Tensor, dimensions: Dimension | Sequence[Dimension] | None = None, side: int = _BINS) -> str:
    """Draw a tensor, as `Tensor.draw` describes. side: the most cells along a side of a spy plot."""
    if dimensions is None:
        tree = inside(tensor).tree if inside(tensor).backing.viewed else inside(tensor).source
        if not tensor.ndim or is_small(tree):
            return draw_tree(inside(tensor).tree, tensor.format.order)
    given: Any = range(min(tensor.ndim, 2)) if dimensions is None else dimensions
    one = isinstance(given, str | int | np.integer)
    if isinstance(given, np.ndarray) and not given.ndim:
        raise OptionError(Problem("dimensions", f"expected one or two dimensions, got {given!r:.40}"))
    chosen = [dimension_of(tensor, k) for k in ([given] if one else given)]
    if len(set(chosen)) != len(chosen) or not 0 < len(chosen) <= 2:
        raise OptionError(Problem("dimensions", f"expected one or two different ones, got {chosen}"))
    return spy(tensor, chosen, side)


def html_of(tensor: Tensor) -> str:
    """The HTML of `Tensor._repr_html_`: text that wraps, and a picture that scrolls if it is wide."""
    unread = inside(tensor).backing.viewed or inside(tensor).backing.lazy
    drawn = "" if unread or tensor.number_of_stored_values > _DRAWN_IN_NOTEBOOKS else draw(tensor)
    return text_of(tensor) + (f'<div style="overflow-x: auto">{drawn}</div>' if drawn else "")


def text_of(tensor: Tensor) -> str:
    """The representation of a tensor as HTML."""
    return f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere">{escaped(repr(tensor))}</pre>'


def is_small(tree: Tree) -> bool:
    """True if the tree can be drawn item by item."""
    if len(tree.dims) > _SMALL_RANK or max([len(tree.values), *map(len, tree.arrays.values())]) > _SMALL:
        return False
    if any(level.shares for level in tree.levels) and cells(tree.dims) > _SMALL:  # few positions may list many entries
        return False
    return all(place.level.size(arrays, place.dims, above) <= _SMALL for place, arrays, above in tree.walk())


# A small tree


class _Row(NamedTuple):
    """The nodes of a level: labels, positions in the level, and the numbers of their parents."""

    title: str
    labels: list[str]
    positions: Array
    parents: Array
    stored: bool


def draw_tree(tree: Tree, order: Sequence[int]) -> str:
    """Draw the level tree, and its arrays below it.

    A node is a coordinate; it is dashed if it is computed, not stored. The nodes of a level have equal distances.
    order: stored dimension k is the tensor's order[k]. Precondition: the tree is small.
    """
    rows = list(_rows(tree, order))
    leaves = [clipped(x) for x in items_at(tree.values, rows[-1].positions if rows else np.zeros(1, int))]
    arrays = list(_arrays(tree))
    words = [*leaves, *(label for row in rows for label in row.labels), *(x for _, items in arrays for x in items)]
    pitch = max([2, *map(len, words)]) * _CHARACTER + 10
    margin = max([8, *(len(name) for name, _ in arrays), *(len(row.title) for row in rows)]) * 6.5 + 16
    room = max([1, *(len(row.labels) for row in rows)]) * pitch
    body: list[str] = []
    y = 10.0
    above = [margin + room / 2]
    for row in rows:
        y += 2 * _BOX
        body.append(_text(margin - 8, y + 14, row.title, "end"))
        xs = [margin + (k + 0.5) * room / len(row.labels) for k in range(len(row.labels))]
        for x, label, parent in zip(xs, row.labels, row.parents, strict=True):
            body.append(_line(above[parent], y - (_BOX if row is not rows[0] else 8), x, y))
            body.append(_box(x, y, pitch, label, "" if row.stored else "soft"))
        above = xs
    y += 2 * _BOX
    body.append(_text(margin - 8, y + 14, "values", "end"))
    for x, label in zip(above, leaves, strict=True):
        body += [_line(x, y - _BOX, x, y), _text(x, y + 14, label, "mono mid")]
    y += _BOX / 2
    for name, items in arrays:
        y += 1.5 * _BOX
        body.append(_text(margin - 8, y + 14, name, "end"))
        body += [_box(margin + (k + 0.5) * pitch, y, pitch, label, "") for k, label in enumerate(items)]
    return _svg(margin + max(room, *(len(items) * pitch for _, items in arrays)) + 10, y + 1.5 * _BOX, body)


def _rows(tree: Tree, order: Sequence[int]) -> Iterator[_Row]:
    for place, coords, pointers, positions in packing.expand_levels(tree):
        covered = order[place.depth : place.depth + place.level.rank]
        sizes = ", ".join(f"{k} (size {size})" for k, size in zip(covered, place.dims, strict=True))
        at = as_array(positions)
        nodes = zip(*(x.tolist() for x in coords), strict=True) if coords else [()] * len(at)
        labels = [clipped(", ".join(map(str, node)), 3 * LONGEST) for node in nodes]
        title = f"{place.level}: {f'dimension {sizes}' if covered else 'no dimension'}"
        parents = np.searchsorted(pointers[1:], np.arange(len(at)), side="right")
        yield _Row(title, labels, at, parents, bool(place.arrays))


def _arrays(tree: Tree) -> Iterator[tuple[str, list[str]]]:
    """Each array with its items as text."""
    for name, array in tree.arrays.items():
        yield name, [clipped(x) for x in array]
    values = tree.values[:1] if tree.iso else tree.values
    yield "values (iso)" if tree.iso else "values", [clipped(x) for x in values]


# A large tensor


def spy(tensor: Tensor, dimensions: Sequence[int], side: int = _BINS) -> str:
    """Draw the density of entries in two dimensions, the first downwards, the second to the right, or in one.

    All cells have the same number of coordinates. The shade of a cell is the logarithm of its number of entries. These
    are read in parts if the levels allow it.
    """
    sizes = [tensor.shape[k] for k in dimensions]
    steps = [max(-(-size // side), 1) for size in sizes]
    counts = _density(tensor, dimensions, steps)
    scale = max(_SIDE // max(*counts.shape, 1), 1)
    width, height = (max(n, 1) * scale for n in counts.shape[::-1])
    names = [f"dimension {k}: {size:,}" for k, size in zip(dimensions, sizes, strict=True)]
    top = 2.2 * _LINE
    body = [_text(8, 14, " down, ".join(names) + " across" if len(names) > 1 else names[0])]
    most = int(counts.max(initial=0))
    per_cell = " × ".join(f"{step:,}" for step in steps)
    body.append(_text(8, 30, f"{int(counts.sum()):,} entries; a cell of {per_cell} has up to {most:,}", "small"))
    body.append(f'<rect x="8" y="{top:g}" width="{width}" height="{height}"/>')
    body.append(f'<g transform="translate(8 {top:g}) scale({scale})" shape-rendering="crispEdges">')
    for shade in range(1, _SHADES + 1):
        low, high = (most ** (k / _SHADES) if k else 0 for k in (shade - 1, shade))
        chosen = (counts > low) & (counts <= (high if shade < _SHADES else most))
        path = "".join(_strips(chosen))
        if path:
            body.append(f'<path class="ink" fill-opacity="{0.2 + 0.8 * shade / _SHADES:.2f}" d="{path}"/>')
    body.append("</g>")
    return _svg(max(width + 16, 8 * max(map(len, names)) * len(names) + 60), top + height + 8, body)


def _density(tensor: Tensor, dimensions: Sequence[int], steps: Sequence[int]) -> Array:
    """The number of entries in each cell; one dimension makes one row."""
    bins = [-(-tensor.shape[k] // step) for k, step in zip(dimensions, steps, strict=True)]
    counts = np.zeros(cells(bins), np.int64)
    for coords, _ in inside(tensor).backing.blocks(inside(tensor).pad, THRESHOLDS.looked_items):
        at: Any = 0
        for k, step, size in zip(dimensions, steps, bins, strict=True):
            at = at * size + coords[k] // step
        counts += np.bincount(at, minlength=len(counts))
    return counts.reshape(bins if len(bins) == 2 else [1, *bins])


def _strips(chosen: Array) -> Iterator[str]:
    """The rectangles of all rows, as SVG path commands."""
    edges = np.diff(chosen.astype(np.int8), axis=1, prepend=0, append=0)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    for y, begin, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield f"M{begin} {y}h{end - begin}v1h{begin - end}z"


# Parts of every picture


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str = "") -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _box(x: float, y: float, pitch: float, label: str, style: str) -> str:
    box = f'<rect class="{style}" x="{x - pitch / 2 + 1:.1f}" y="{y:.1f}" width="{pitch - 2:.1f}" height="{_BOX}"/>'
    return box + _text(x, y + 14, label, "mono mid")


def _svg(width: float, height: float, body: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" class="bsp" {size}>', f"<style>{_STYLE}</style>", *body, "</svg>\n"]
    )
