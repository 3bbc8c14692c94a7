"""SVG pictures of a tensor: its level tree with the arrays, if it is small, else a spy plot."""

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
from .spy import BINS, spy, spy_on
from .svg import line, svg, text
from .tables import LONGEST, clipped

_SMALL = 64  # items of any array, and nodes of any level, that are drawn one by one
_SMALL_RANK = 16
_CHARACTER, _BOX = 7.5, 20  # the width of a character, the height of a box


def draw(
    tensor: Tensor, dimensions: Dimension | Sequence[Dimension] | None = None, ax: Any = None, side: int = BINS
) -> Any:
    """Draw a tensor, as `Tensor.draw` describes. side: the most cells along a side of a spy plot."""
    if dimensions is None and ax is None:
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
    return spy(tensor, chosen, side) if ax is None else spy_on(ax, tensor, chosen)


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
        body.append(text(margin - 8, y + 14, row.title, "end"))
        xs = [margin + (k + 0.5) * room / len(row.labels) for k in range(len(row.labels))]
        for x, label, parent in zip(xs, row.labels, row.parents, strict=True):
            body.append(line(above[parent], y - (_BOX if row is not rows[0] else 8), x, y))
            body.append(_box(x, y, pitch, label, "" if row.stored else "soft"))
        above = xs
    y += 2 * _BOX
    body.append(text(margin - 8, y + 14, "values", "end"))
    for x, label in zip(above, leaves, strict=True):
        body += [line(x, y - _BOX, x, y), text(x, y + 14, label, "mono mid")]
    y += _BOX / 2
    for name, items in arrays:
        y += 1.5 * _BOX
        body.append(text(margin - 8, y + 14, name, "end"))
        body += [_box(margin + (k + 0.5) * pitch, y, pitch, label, "") for k, label in enumerate(items)]
    return svg(margin + max(room, *(len(items) * pitch for _, items in arrays)) + 10, y + 1.5 * _BOX, body)


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


def _box(x: float, y: float, pitch: float, label: str, style: str) -> str:
    box = f'<rect class="{style}" x="{x - pitch / 2 + 1:.1f}" y="{y:.1f}" width="{pitch - 2:.1f}" height="{_BOX}"/>'
    return box + text(x, y + 14, label, "mono mid")
