"""The table of `sweep`: its rows, as text, as a table of pandas, and as figures of matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import OptionError, Problem, needing, within_memory
from ..tensors.lookup import pandas_module
from .tables import as_html, as_text

_MARKED = "* A time that says little about the format; see the column `marks` of to_pandas()."
_MARKERS = "osD^v<>PX*phd"
_BEST = "formats that no other beats in both"
_LABELS = {
    "bits": "index bits per entry",
    "narrow": "index bits per entry, smallest integers",
    "bitpacked": "index bits per entry, bit-packed",
    "dictionary": "value bits per entry, as a dictionary",
    "bytes": "bytes of all arrays per entry",
    "limit": "index bits per entry, information limit",
    "padding": "stored values per entry",
}
_SIDE = 4.0  # of a panel of a figure, in inches
_COLUMNS = 4  # the most panels of a figure side by side


@dataclass(frozen=True)
class Row:
    """A tensor in a format, measured with a number of threads.

    Parameters
    ----------
    tensor, format : str
        The names; a format without a name has its notation.
    threads, entries : int
        The number of threads, and of stored entries without padding.
    measures : mapping of str to float, optional
        Numbers by measure; none if a result is wrong. A time is the median of its rounds, of all processors.
    error : float, optional
        The largest difference of a result from that of the source tensor, relative to the sum of the magnitudes of its
        terms, or to the largest number of a result that is no einsum; None if there is no result.
    refused : str, default ''
        The reason why the format refuses the tensor, or why measures failed; or an empty text.
    facts : mapping of str to float, optional
        The quartiles of a time, "convert lower" and "convert upper", and the median of the clock, "convert clock". An
        einsum has the number of its "operations", and the "bytes" of its operands and result.
    marks : mapping of str to str, optional
        Reasons why a time says little about the format, by measure: its result shares arrays with the tensor, or a
        level kind has no method that reads a part or lists a fiber in a loop.
    """

    tensor: str
    format: str
    threads: int
    entries: int
    measures: Mapping[str, float] = field(default_factory=dict)
    error: float | None = None
    refused: str = ""
    facts: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def _numbers(self) -> dict[str, float]:
        return {**self.measures, **self.facts}

    def _cell(self, name: str) -> str:
        """A number as text. A time has its quartiles, and an asterisk if it is marked."""
        number, lower, upper = (self._numbers.get(name + part) for part in ("", " lower", " upper"))
        if number is None:
            return ""
        quartiles = "" if lower == upper else f" ({lower:.3g}–{upper:.3g})"
        return f"{number:.4g}{quartiles}{'*' * (name in self.marks)}"


@within_memory
@dataclass(frozen=True)
class Sweep:
    """The table of `sweep`. Bits are those of all index and pointer arrays for each entry; times are milliseconds.

    Printed, a time is the median of the processor in all rounds, with the quartiles in parentheses. A column with the
    median of the clock follows.

    Parameters
    ----------
    rows : tuple of Row
        A row for each tensor, format and number of threads, in the order in which they were passed.
    names : tuple of str
        The names of the measures.
    record : mapping
        The processor, its caches, cores and affinity, the memory, the system, versions, commands, the load and
        frequency before and after, all options, checksums of the code of functions and of the level kinds of other
        packages, and for each tensor its name, shape, type, number of entries and checksum.

    See Also
    --------
    sweep : Store tensors in formats, and measure bits and times.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> a = bl.pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")
    >>> print(bl.sweep({"a": a}, ["CSR", "dense, n_of_m(1, n=1, m=2)"], ["bits"]))
    tensor  format                      entries  bits  refused
    a       CSR                               2    96
    a       dense, n_of_m(1, n=1, m=2)        2    24
    """

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    record: Mapping[str, Any]

    @property
    def _table(self) -> tuple[list[str], list[list[str]]]:
        known = {name for row in self.rows for name in row._numbers}
        names = [x for name in self.names for x in (name, f"{name} clock") if x == name or x in known]
        checked = any(row.error is not None for row in self.rows)
        rows = []
        for row in self.rows:
            errors = ["" if row.error is None else f"{row.error:.1e}"] * checked
            cells = [f"{row.entries}", *map(row._cell, names), *errors]
            rows.append([row.tensor, self._label(row), *cells, row.refused])
        return ["tensor", "format", "entries", *names, *["error"] * checked, "refused"], rows

    def _label(self, row: Row) -> str:
        """The name of the format, with the number of threads where several were measured."""
        if len(self.record["threads"]) < 2:
            return row.format
        return f"{row.format}, {row.threads} thread{'s' * (row.threads > 1)}"

    def __str__(self) -> str:
        return as_text(*self._table) + (f"\n{_MARKED}" if any(row.marks for row in self.rows) else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(*self._table) + (f"<p>{_MARKED}</p>" if any(row.marks for row in self.rows) else "")

    def to_pandas(self) -> Any:
        """Convert the rows to a DataFrame of pandas, whose `attrs` are the record. A missing number is NaN.

        The columns are `tensor`, `format`, `threads`, `entries`, the measures, their facts, `error`, `refused` and
        `marks`. With several numbers of threads, `format` is such as "CSR, 1 thread".

        Returns
        -------
        scalar, ndarray or Tensor
            A DataFrame with a row for each tensor, format and number of threads.

        Raises
        ------
        OptionError
            Pandas is not installed.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> frame = bl.sweep({"a": bl.pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")}, ["CSR", "COO"], ["bits"]).to_pandas()
        >>> table = frame.pivot(index="tensor", columns="format", values="bits")
        >>> print(table.div(table["CSR"], axis=0).to_csv(float_format="%.3g").strip())
        tensor,COO,CSR
        a,0.667,1
        """
        numbers = dict.fromkeys([*self.names, *(name for row in self.rows for name in row._numbers)])
        columns = ["tensor", "format", "threads", "entries", *numbers, "error", "refused", "marks"]
        listed = []
        for row in self.rows:
            marks = "; ".join(f"{name}: {mark}" for name, mark in row.marks.items())
            listed.append({**vars(row), **row._numbers, "format": self._label(row), "marks": marks})
        frame = pandas_module().DataFrame(listed, columns=columns)
        frame.attrs.update(self.record)
        return frame

    def pareto(self, x: str, y: str) -> Any:
        """Draw two measures of all formats on logarithmic axes, in a panel for each tensor, at most four in a row.

        A line joins the formats that no other beats in both. With several tensors, one more panel has the geometric
        means of the formats that have both numbers for all of them.

        Parameters
        ----------
        x, y : str
            Names of measures; less is better.

        Returns
        -------
        scalar, ndarray or Tensor
            A Figure of matplotlib. `figure.savefig("a.pdf")` stores it; its axes and the styles of matplotlib change
            it.

        Raises
        ------
        OptionError
            No format has both numbers, or matplotlib is not installed.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> table = bl.sweep({"a": bl.pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")}, ["CSR", "COO"], ["bits", "narrow"])
        >>> [axes.get_title() for axes in table.pareto("bits", "narrow").axes]
        ['a']
        """
        places = [(row.tensor, name, a, b) for row, name, a, b in self._points(x, y)]
        every = {row.tensor for row in self.rows}
        for name in dict.fromkeys(place[1] for place in places):
            own = [place[2:] for place in places if place[1] == name]
            if len(own) == len(every) > 1:
                places.append(("geometric mean", name, *np.exp(np.log(own).mean(0)).tolist()))
        figure = _drawn(places, *(f"{_LABELS.get(name, f'{name}, ms')} (log scale)" for name in (x, y)))
        for axes in figure.axes:
            ascending = sorted(tuple(line.get_xydata()[0]) for line in axes.lines)
            best = [p for k, p in enumerate(ascending) if all(p[1] < other[1] for other in ascending[:k])]
            rings = {"marker": "o", "markersize": 12, "fillstyle": "none"}
            axes.plot(*zip(*best, strict=True), color="0.7", zorder=1, label=_BEST, **rings)
        _explain(figure)
        return figure

    def roofline(self, measure: str) -> Any:
        """Draw the operations per second of an einsum over its operations per byte, for all tensors and formats.

        Operations are the multiplications and additions of entries, without those of padding. Bytes are those of all
        arrays, the operands and the result, each once. Seconds are those of all processors together. The line is the
        bandwidth with which one processor copies memory; data in caches can be above it.

        Parameters
        ----------
        measure : str
            An einsum, such as "ij,j->i".

        Returns
        -------
        scalar, ndarray or Tensor
            A Figure of matplotlib, as of `pareto`.

        Raises
        ------
        OptionError
            The measure is no einsum that was measured, or matplotlib is not installed.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> table = bl.sweep({"a": bl.pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")}, ["CSR", "COO"], "ij,j->i", repeat=1)
        >>> table.roofline("ij,j->i").axes[0].get_xlabel()
        'operations per byte'
        """
        places = []
        for row, name, operations, moved in self._points(f"{measure} operations", f"{measure} bytes"):
            speed = operations / row.measures[measure] / 1e6
            places.append(("", f"{row.tensor}, {name}", operations / moved, speed))
        bandwidth = self.record["bandwidth"] / 1e9
        figure = _drawn(places, "operations per byte", "10⁹ operations per second of a processor")
        ends = np.array(figure.axes[0].get_xlim())
        figure.axes[0].plot(ends, bandwidth * ends, color="0.7", zorder=1, label=f"{bandwidth:.3g} GB/s")
        figure.axes[0].set_title(measure)
        _explain(figure)
        return figure

    def _points(self, x: str, y: str) -> Iterator[tuple[Row, str, float, float]]:
        """The rows that have two positive numbers, with the names of their formats. Raises OptionError for none."""
        found = [(row, self._label(row), row._numbers.get(x, 0.0), row._numbers.get(y, 0.0)) for row in self.rows]
        if not any(a > 0 < b for *_, a, b in found):
            raise OptionError(Problem("measure", f"no format has positive {x} and {y}; choose from {self.names}"))
        return (point for point in found if point[2] > 0 < point[3])


def _drawn(places: Sequence[tuple[str, str, float, float]], x: str, y: str) -> Any:
    """Draw points, each with the title of its panel and its name, on logarithmic axes.

    The figure is not registered with pyplot, so that it needs no closing.
    """
    with needing("plot"):
        from matplotlib.figure import Figure
    titles, names = (list(dict.fromkeys(place[k] for place in places)) for k in (0, 1))
    rows = -(-len(titles) // _COLUMNS)
    columns = -(-len(titles) // rows)
    figure = Figure(figsize=(_SIDE * columns, (rows + 0.2) * _SIDE), layout="constrained")
    panels = {title: figure.add_subplot(rows, columns, k + 1) for k, title in enumerate(titles)}
    for title, axes in panels.items():
        axes.set(title=title, xscale="log", yscale="log")
        axes.set_xlabel(x, fontsize="small")
        axes.set_ylabel(y, fontsize="small")
    for title, name, *place in places:
        k = names.index(name)
        panels[title].plot(*place, _MARKERS[k % len(_MARKERS)], color=f"C{k % 10}", label=name)
    return figure


def _explain(figure: Any) -> None:
    """Add ticks at round numbers, and a legend of the markers and lines of all panels."""
    with needing("plot"):
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = axis.get_view_interval()
        locator = LogLocator(subs=(1, 2, 5)) if high > 10 * low else MaxNLocator(6, steps=[1, 2, 5, 10])
        axis.set(major_locator=locator, major_formatter=StrMethodFormatter("{x:g}"), minor_locator=NullLocator())
    lines = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=2, fontsize="small")
