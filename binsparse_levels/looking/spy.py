"""Spy plots: the density of entries in two dimensions, or in one, as SVG or on the axes of a figure of matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ..errors import OptionError, Problem, needing
from ..levels.positions import Array, cells
from ..tensors.tensor import Tensor, inside
from ..thresholds import THRESHOLDS
from .svg import line, svg, text

BINS, _SIDE = 128, 384  # the most cells along a side of a spy plot, and its pixels
_SHADES = 8
_TOP, _GAP = 58, 48  # pixels above the plot, and between two ticks
_LONG = 4  # a plot whose sides have a larger ratio fills its axes


class _Density(NamedTuple):
    """The number of entries in each cell; one dimension makes one row.

    names, sizes: of the dimensions. steps: the number of coordinates of a cell along each.
    """

    names: list[str]
    sizes: list[int]
    steps: list[int]
    counts: Array

    @property
    def cell(self) -> str:
        return " × ".join(f"{step:,}" for step in self.steps)

    @property
    def most(self) -> int:
        return int(self.counts.max(initial=0))


def _density(tensor: Tensor, dimensions: Sequence[int], side: int) -> _Density:
    """Count the entries in cells of equal size. They are read in parts if the levels allow it."""
    sizes = [tensor.shape[k] for k in dimensions]
    steps = [max(-(-size // side), 1) for size in sizes]
    bins = [-(-size // step) for size, step in zip(sizes, steps, strict=True)]
    counts = np.zeros(cells(bins), np.int64)
    for coords, _ in inside(tensor).backing.blocks(inside(tensor).pad, THRESHOLDS.looked_items):
        at: Any = 0
        for k, step, size in zip(dimensions, steps, bins, strict=True):
            at = at * size + coords[k] // step
        counts += np.bincount(at, minlength=len(counts))
    names = [f"dimension {k}" if tensor.dims is None else tensor.dims[k] for k in dimensions]
    return _Density(names, sizes, steps, counts.reshape(bins if len(bins) == 2 else [1, *bins]))


def spy(tensor: Tensor, dimensions: Sequence[int], side: int = BINS) -> str:
    """Draw the density as SVG, the first dimension downwards, the second to the right.

    The shade of a cell is the logarithm of its number of entries.
    """
    density = _density(tensor, dimensions, side)
    counts, most = density.counts, density.most
    scale = max(_SIDE // max(*counts.shape, 1), 1)
    width, height = (max(n, 1) * scale for n in counts.shape[::-1])
    pixels = [height, width][-len(dimensions) :]
    across, *down = [
        [(f"{x:,}" if x < 10**6 else f"{x:g}", (x + 0.5) / step * scale) for x in _round_numbers(size, length // _GAP)]
        for size, step, length in zip(density.sizes, density.steps, pixels, strict=True)
    ][::-1]
    left = 8 + 7 * max([0, *(len(label) + 1 for labels in down for label, _ in labels)])
    names = [f"{name}: {size:,}" for name, size in zip(density.names, density.sizes, strict=True)]
    facts = f"{int(counts.sum()):,} entries; a cell of {density.cell} has up to {most:,}"
    head = " down, ".join(names) + " across" if len(names) > 1 else names[0]
    body = [text(8, 14, head), text(8, 30, facts, "small")]
    for label, x in across:
        body += [text(left + x, _TOP - 6, label, "small mid"), line(left + x, _TOP - 4, left + x, _TOP)]
    for label, y in down[0] if down else []:
        body += [text(left - 6, _TOP + y + 4, label, "small end"), line(left - 4, _TOP + y, left, _TOP + y)]
    body.append(f'<rect x="{left}" y="{_TOP}" width="{width}" height="{height}"/>')
    body.append(f'<g transform="translate({left} {_TOP}) scale({scale})" shape-rendering="crispEdges">')
    for shade in range(_SHADES):
        low, high = (most ** (k / _SHADES) if k else 0 for k in (shade, shade + 1))
        chosen = (counts > low) & (counts <= (high if shade < _SHADES - 1 else most))
        if path := "".join(_strips(chosen)):
            body.append(f'<path {_ink(shade)} d="{path}"/>')
    body.append("</g>")
    below = _TOP + height + 10
    if most > 1:
        body += [
            f'<rect {_ink(k)} x="{left + 12 + 10 * k}" y="{below}" width="10" height="10"/>' for k in range(_SHADES)
        ]
        key = f"{most:,} entries in a cell, logarithmic"
        body += [text(left, below + 9, "1", "small"), text(left + 16 + 10 * _SHADES, below + 9, key, "small")]
    right = max(left + width, 8 + 7 * len(head), 8 + 6 * len(facts), left + 280)
    return svg(right + 8, below + 18, body, "spy")


def spy_on(axes: Any, tensor: Tensor, dimensions: Sequence[int]) -> Any:
    """Draw the density on the axes of a figure of matplotlib, with the ticks of `matplotlib.pyplot.spy`.

    Returns the AxesImage. Cells of one entry at most are black; otherwise, a bar shows the logarithmic scale.
    """
    if not hasattr(axes, "imshow") or not hasattr(axes, "set_xlim"):
        raise OptionError(Problem("ax", f"expected the axes of a figure of matplotlib, got {axes!r:.60}"))
    with needing("plot"):
        from matplotlib.colors import LogNorm
        from matplotlib.ticker import LogLocator

    density = _density(tensor, dimensions, BINS)
    height, width = [1, *(max(size, 1) for size in density.sizes)][-2:]
    bottom, right = np.multiply(density.counts.shape, [1, *density.steps][-2:])
    logarithmic = {"norm": LogNorm(0.7, density.most), "cmap": "viridis_r"}  # a single entry is darker than yellow
    image = axes.imshow(
        np.ma.masked_equal(density.counts, 0),
        extent=(-0.5, max(right, 1) - 0.5, max(bottom, 1) - 0.5, -0.5),
        interpolation="nearest",
        aspect="equal" if max(height, width) <= _LONG * min(height, width) else "auto",
        **(logarithmic if density.most > 1 else {"cmap": "binary", "vmin": 0, "vmax": 1}),
    )
    ylabel, xlabel = ["", *density.names][-2:]
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xlabel=xlabel, ylabel=ylabel)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    if not ylabel:
        axes.set_yticks([])
    if density.most > 1:
        ticks, label = LogLocator(subs=(1, 2, 5)), f"entries in a cell of {density.cell}"
        axes.figure.colorbar(image, ax=axes, label=label, ticks=ticks, format="%g").minorticks_off()
    return image


def _round_numbers(size: int, most: int) -> range:
    """Coordinates at equal round distances from 0, about as many as asked for, for ticks.

    >>> list(_round_numbers(300, 8))
    [0, 50, 100, 150, 200, 250]
    """
    steps = (k * 10**exponent for exponent in count() for k in (1, 2, 5))
    return range(0, size, next(step for step in steps if step * max(most, 1) >= size))


def _ink(shade: int) -> str:
    return f'class="ink" fill-opacity="{0.2 + 0.8 * (shade + 1) / _SHADES:.2f}"'


def _strips(chosen: Array) -> Iterator[str]:
    """The rectangles of all rows, as SVG path commands."""
    edges = np.diff(chosen.astype(np.int8), axis=1, prepend=0, append=0)
    rows, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    for y, begin, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        yield f"M{begin} {y}h{end - begin}v1h{begin - end}z"
