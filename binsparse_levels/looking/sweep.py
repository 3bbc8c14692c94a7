"""Tensors times formats: a table of bits and times, with a record of the machine that measured them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..errors import OptionError, Problem, within_memory
from ..formats.format import FormatLike
from ..io import read
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..parallel import get_threads
from ..progress import Progress, reporter
from ..tensors.changing import expanded
from ..tensors.foreign import as_tensor
from ..tensors.lookup import pandas_module
from ..tensors.tensor import Tensor
from . import drawing
from .advice import named_formats
from .measuring import Measured, described, load, machine, measure, reason, sliced, warning_of
from .tables import as_html, as_text

MEASURES = ("bits", "narrow", "bitpacked", "limit", "padding", "pack", "convert", "point", "slice:0", "ij,j->i")
MEASURED = ("bits", "narrow", "bitpacked", "limit", "padding")  # unless others are named
_MARKED = "* The times of processor and clock differ; see the column `warning` of to_pandas()."


@dataclass(frozen=True)
class Row:
    """A tensor in a format, measured with a number of threads.

    Parameters
    ----------
    tensor, format : the name of each; a format without a name has its notation.
    threads : the number of threads.
    entries : the number of stored entries, without the padding of the format.
    measures : numbers by measure; empty where the format refuses the tensor. A time, such as "convert", is the median
        of its rounds.
    rounds : facts about the rounds of the times. "convert lower" and "convert upper" are the quartiles, "convert
        processor" is the median time of the processor, and "convert rounds" the number of rounds.
    refused : the reason why the format refuses the tensor, or why measures failed; or an empty text.
    warning : the times whose processor time differs from the clock time by more than a fifth; or an empty text.
    """

    tensor: str
    format: str
    threads: int
    entries: int
    measures: Mapping[str, float] = field(default_factory=dict)
    refused: str = ""
    rounds: Mapping[str, float] = field(default_factory=dict)
    warning: str = ""

    @property
    def _numbers(self) -> dict[str, float]:
        return {**self.measures, **self.rounds}

    def _cell(self, name: str) -> str:
        """A number as text. A time has its quartiles, and an asterisk if there is a warning."""
        number, lower, upper = (self._numbers.get(name + part) for part in ("", " lower", " upper"))
        if number is None:
            return ""
        quartiles = "" if lower == upper else f" ({lower:.3g}–{upper:.3g})"
        return f"{number:.4g}{quartiles}{'*' if f'{name}: ' in self.warning else ''}"


@within_memory
@dataclass(frozen=True)
class Sweep:
    """The table of `sweep`. Bits are those of all index and pointer arrays for each entry; times are milliseconds.

    Printed, a time is the median of the rounds, with the quartiles in parentheses.

    Parameters
    ----------
    rows : a row for each tensor, format and number of threads, in the order in which they were passed.
    names : the names of the measures.
    record : the processor with its flags, the system, versions, the load before and after, threads, seed, rounds, and
        for each tensor its name, shape, type, number of entries and checksum.

    >>> from binsparse_levels import pack, sweep
    >>> print(sweep({"a": pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")}, ["CSR", "dense, n_of_m(1, n=1, m=2)"], ["bits"]))
    tensor  format                      entries  bits  refused
    a       CSR                               2    96
    a       dense, n_of_m(1, n=1, m=2)        2    24
    """

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    record: Mapping[str, Any]

    @property
    def _table(self) -> tuple[list[str], list[list[str]]]:
        rows = []
        for row in self.rows:
            numbers = [f"{row.entries}", *map(row._cell, self.names)]
            rows.append([row.tensor, self._label(row), *numbers, row.refused])
        return ["tensor", "format", "entries", *self.names, "refused"], rows

    def _label(self, row: Row) -> str:
        """The name of the format, with the number of threads where several were measured."""
        if len(self.record["threads"]) < 2:
            return row.format
        return f"{row.format}, {row.threads} thread{'s' * (row.threads > 1)}"

    def __str__(self) -> str:
        return as_text(*self._table) + (f"\n{_MARKED}" if any(row.warning for row in self.rows) else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(*self._table) + (f"<p>{_MARKED}</p>" if any(row.warning for row in self.rows) else "")

    def to_pandas(self) -> Any:
        """Convert the rows to a DataFrame of pandas, whose `attrs` are the record. A missing number is NaN.

        The columns are `tensor`, `format`, `threads`, `entries`, the measures, `refused` and `warning`. A time has
        further columns, such as "convert lower", "convert upper", "convert processor" and "convert rounds".

        Returns
        -------
        A DataFrame with a row for each tensor, format and number of threads.

        Raises
        ------
        OptionError : pandas is not installed.

        >>> from binsparse_levels import pack, sweep
        >>> frame = sweep({"a": pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")}, ["CSR", "COO"], ["bits"]).to_pandas()
        >>> frame[["tensor", "format", "bits"]].to_csv(index=False).split()
        ['tensor,format,bits', 'a,CSR,96.0', 'a,COO,64.0']
        """
        numbers = dict.fromkeys([*self.names, *(name for row in self.rows for name in row._numbers)])
        columns = ["tensor", "format", "threads", "entries", *numbers, "refused", "warning"]
        frame = pandas_module().DataFrame([{**vars(row), **row._numbers} for row in self.rows], columns=columns)
        frame.attrs.update(self.record)
        return frame

    def compare(self, measure: str, base: str | None = None) -> Any:
        """Tabulate one measure as a DataFrame of pandas: a row for each tensor, a column for each format.

        `compare(…).to_latex(float_format="%.3g", na_rep="–", escape=True)` is a table of LaTeX with booktabs.

        Parameters
        ----------
        measure : such as "bits", "ij,j->i", or "ij,j->i processor", which other programs disturb less.
        base : a format, to which further columns give the ratios of the others. The last row then has the geometric
            means of the ratios, each over the tensors that have both numbers. With several numbers of threads, the
            names of the formats are such as "CSR, 1 thread".

        Returns
        -------
        A DataFrame, whose `attrs` are the record.

        Raises
        ------
        OptionError : there is no such measure or format, names are repeated, or pandas is not installed.

        >>> from binsparse_levels import pack, sweep
        >>> table = sweep({"a": pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")}, ["CSR", "COO"], ["bits"])
        >>> print(table.compare("bits", "CSR").to_csv(float_format="%.3g").strip())
        ,CSR,COO,COO / CSR
        a,96,64,0.667
        geometric mean,,,0.667
        """
        self._known(measure)
        labels = list(map(self._label, self.rows))
        if base is not None and base not in labels:
            raise OptionError(Problem("base", f"{base!r:.60} is no format of the table; choose from {labels}"))
        frame = self.to_pandas().assign(format=labels)
        if frame.duplicated(["tensor", "format"]).any():
            raise OptionError(Problem("tensor", "two rows have one name; pass mappings from different names"))
        rows = frame["tensor"].unique()
        table = frame.pivot(index="tensor", columns="format", values=measure).loc[rows, list(dict.fromkeys(labels))]
        if base is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                ratios = table.drop(columns=base).div(table[base], axis=0).add_suffix(f" / {base}")
                table = table.join(ratios)
                table.loc["geometric mean", ratios.columns] = np.exp(np.log(ratios).mean())
        table.attrs.update(self.record)
        return table.rename_axis(index=None, columns=None)

    def pareto(self, x: str, y: str, tensor: str | None = None) -> str:
        """Draw two measures of all formats of a tensor on logarithmic axes. A line joins the best formats.

        Parameters
        ----------
        x, y : names of measures; less is better.
        tensor : its name; by default the first.

        Returns
        -------
        The picture as text of SVG.

        Raises
        ------
        OptionError : there is no such measure, tensor or number.

        >>> from binsparse_levels import pack, sweep
        >>> table = sweep({"a": pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")}, ["CSR", "COO"], ["bits", "narrow"])
        >>> table.pareto("bits", "narrow").startswith("<svg")
        True
        """
        for name in (x, y):
            self._known(name)
        name = tensor if tensor is not None else self.rows[0].tensor if self.rows else ""
        rows = [row for row in self.rows if row.tensor == name and row._numbers.get(x, 0) > 0 < row._numbers.get(y, 0)]
        if not rows:
            raise OptionError(Problem("tensor", f"no format of {name!r:.40} has positive {x} and {y}; choose another"))
        return drawing.scatter(x, y, [(row._numbers[x], row._numbers[y], self._label(row)) for row in rows])

    def _known(self, measure: str) -> None:
        if measure not in self.names and not any(measure in row._numbers for row in self.rows):
            raise OptionError(Problem("measure", f"{measure!r:.40} was not measured; choose from {self.names}"))


@within_memory
def sweep(
    tensors: Any,
    formats: FormatLike | Iterable[FormatLike] | Mapping[str, FormatLike],
    measure: str | Sequence[str] = MEASURED,
    *,
    repeat: int = 5,
    threads: int | Sequence[int] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    progress: Progress | bool | None = None,
) -> Sweep:
    """Store tensors in formats, and measure bits and times. A format that refuses a tensor is a row with its reason.

    A round measures every format once with each number of threads. The first call compiles, and is not counted. A
    measure that does not apply to the rank of a tensor is left out. A measure that fails leaves the others of its row.

    Parameters
    ----------
    tensors : a tensor, a list, or a mapping from names. A tensor may be an array of another library, or the path of
        any file that `open` takes, such as .mtx and .tns.gz.
    formats : a notation, a list, or a mapping from names, such as ``{"BCSR 2×4": "dense, sparse, dense(2) through
        0/2, 1/4, 0%2, 1%4"}``.
    measure : bits of index arrays for each entry, in memory ("bits") and in files ("narrow", "bitpacked"), and the
        information limit of the entries ("limit"); values for each entry ("padding"). Milliseconds to "pack" entries,
        to "convert" the tensor, to look up one entry ("point", the mean of 200, or of a tenth of a second), to load 16
        coordinates in the middle of a dimension from a file ("slice:0"), and of an `einsum` whose first operand is the
        tensor, such as "ij,j->i". Bytes that its loops fetch for each entry, of small tensors: "traffic:ij,j->i".
    repeat : the number of rounds.
    threads : the number of threads, or several, each of which has its own rows; by default `get_threads()`.
    seed : the seed of the dense operands, and of the entries that are looked up.
    limits : the limits of every tensor; by default its own.
    progress : called with "sweeping", the number of finished tensors, and their total. True draws a bar on standard
        error, where that is a terminal or a notebook.

    Returns
    -------
    The rows, with a record of the machine and of the tensors.

    Raises
    ------
    OptionError : there is no such measure, or `repeat`, `threads` or `seed` is too small.
    BinsparseError : a tensor cannot be read.

    >>> from binsparse_levels import pack, sweep
    >>> tensor = pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")
    >>> [(row.format, dict(row.measures)) for row in sweep({"a": tensor}, ["CSR", "COO"], ["bits"]).rows]
    [('CSR', {'bits': 96.0}), ('COO', {'bits': 64.0})]
    """
    measures = (measure,) if isinstance(measure, str) else tuple(measure)
    for name in measures:
        if not isinstance(name, str) or (name not in MEASURES and "->" not in name and sliced(name) is None):
            known = ", ".join(MEASURES)
            raise OptionError(
                Problem("measure", f"{name!r:.60} is no measure; they are {known}, einsums and their traffic")
            )
    if (as_integer(seed) or 0) < 0:
        raise OptionError(Problem("seed", f"expected a number from 0 on, got {seed}"))
    (rounds,) = _positive("repeat", [repeat])
    given = get_threads() if threads is None else threads
    counts = _positive("threads", given if isinstance(given, Sequence) else [given])
    wanted = named_formats(formats)
    record = {**machine(), "threads": counts, "seed": seed, "rounds": rounds, "load": [load()], "tensors": []}
    rows: list[Row] = []
    report, total = reporter(progress), len(tensors) if isinstance(tensors, list | tuple | Mapping) else 1
    for done, (name, source) in enumerate(_named(tensors, limits), 1):
        record["tensors"].append(described(name, source))
        rows += _rows(name, source, wanted, measures, rounds, counts, seed, limits or source.limits)
        if report is not None:
            report("sweeping", done, total)
    record["load"].append(load())
    return Sweep(tuple(rows), measures, record)


def _positive(name: str, numbers: Sequence[Any]) -> list[int]:
    found = [as_integer(x) or 0 for x in numbers]
    if min(found, default=0) < 1:
        raise OptionError(Problem(name, f"expected a number from 1 on, got {numbers!r:.40}"))
    return found


def _named(tensors: Any, limits: Limits | None) -> Iterator[tuple[str, Tensor]]:
    listed = tensors if isinstance(tensors, list | tuple) else [tensors]
    pairs = tensors.items() if isinstance(tensors, Mapping) else [(_name(k, x), x) for k, x in enumerate(listed)]
    for name, x in pairs:
        tensor = read(x, limits=limits or DEFAULT_LIMITS) if isinstance(x, str | os.PathLike) else as_tensor(x)
        yield str(name), expanded(tensor.load()).without_map(limits=limits)


def _name(number: int, tensor: Any) -> str:
    return os.path.basename(tensor) if isinstance(tensor, str | os.PathLike) else f"tensor {number}"


def _rows(
    name: str, source: Tensor, formats: Sequence[tuple[str, FormatLike]], measures: Sequence[str], rounds: int,
    threads: Sequence[int], seed: int, limits: Limits,
) -> list[Row]:  # fmt: skip
    found = [Measured() for _ in formats]
    with tempfile.TemporaryDirectory() as folder:
        for number, (made, (_, format)) in enumerate(zip(found, formats, strict=True)):
            try:
                tensor = source.convert(format, limits=limits)
            except Exception as error:  # a kind of a plug-in may raise anything
                made.failed.append(reason(error))
                continue
            for what in measures:
                path = f"{folder}/{number}.h5"
                made.begin(what, threads, partial(measure, what, source, tensor, format, path, seed, limits))
        for _ in range(rounds):
            for made in found:
                for count in threads:
                    made.time(count)
        for made in found:
            made.calls = {}  # which close the files
    rows = []
    for (label, _), made in zip(formats, found, strict=True):
        for count in threads:
            (numbers, facts), entries = made.measures(measures, count), source.number_of_stored_values
            warning = warning_of(numbers, facts, count)
            rows.append(Row(name, label, count, entries, numbers, "; ".join(made.failed), facts, warning))
    return rows
