"""Tensors times formats: a table of bits and times, with the machine that it was made on."""

from __future__ import annotations

import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numba
import numpy as np

from ..compute import einsum
from ..errors import BinsparseError, OptionError, Problem, needing, within_memory
from ..formats.format import FormatLike
from ..io import open as open_tensor
from ..io import read, write
from ..limits import as_integer
from ..parallel import get_threads
from ..progress import Progress, reporter
from ..system import processor_name
from ..tensors.changing import expanded
from ..tensors.foreign import as_tensor
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..version import __version__
from . import drawing
from .advice import named_formats
from .fibers import limit
from .tables import as_html, as_text

MEASURES = ("bits", "narrow", "bitpacked", "limit", "padding", "pack", "convert", "point", "slice:0", "ij,j->i")
MEASURED = ("bits", "narrow", "bitpacked", "limit", "padding")  # unless others are named
_WIDTH = 16  # the size of dimensions that the tensor does not have, and the coordinates of a slice
_POINTS = 200  # places that are looked up


@dataclass(frozen=True)
class Row:
    """A tensor in a format.

    Parameters
    ----------
    tensor, format : its name, and the notation or the name as it was passed.
    entries : the number of stored entries, without the padding of the format.
    measures : by name; empty where the format refuses the tensor.
    refused : why the format, or one of the measures, refuses the tensor; or an empty text.
    """

    tensor: str
    format: str
    entries: int
    measures: Mapping[str, float] = field(default_factory=dict)
    refused: str = ""


@within_memory
@dataclass(frozen=True)
class Sweep:
    """The table of `sweep`. Bits are those of all index and pointer arrays for each entry; times are milliseconds.

    Parameters
    ----------
    rows : a row for each tensor and format, in the order in which they were passed.
    names : the names of the measures.
    record : processor, versions, threads, seed, rounds.

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
            numbers = [f"{row.measures[name]:.4g}" if name in row.measures else "" for name in self.names]
            rows.append([row.tensor, row.format, f"{row.entries}", *numbers, row.refused])
        return ["tensor", "format", "entries", *self.names, "refused"], rows

    def __str__(self) -> str:
        return as_text(*self._table)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(*self._table)

    def to_pandas(self) -> Any:
        """A DataFrame of pandas, whose `attrs` hold the record. What was not measured is NaN.

        pandas writes it as other tables: `to_csv`, `to_latex`.
        """
        with needing("pandas"):
            import pandas  # type: ignore[import-untyped]

        columns = ["tensor", "format", "entries", *self.names, "refused"]
        frame = pandas.DataFrame([{**vars(row), **row.measures} for row in self.rows], columns=columns)
        frame.attrs.update(self.record)
        return frame

    def pareto(self, x: str, y: str, tensor: str | None = None) -> str:
        """Draw two measures of all formats of a tensor as an SVG, on logarithmic axes, with the line of the best ones.

        Parameters
        ----------
        x, y : names of measures; less is better.
        tensor : its name; by default the first.

        Raises
        ------
        OptionError : there is no such measure, tensor or number.
        """
        for name in (x, y):
            if name not in self.names:
                raise OptionError(Problem("measure", f"{name!r:.40} was not measured; choose from {self.names}"))
        name = tensor if tensor is not None else self.rows[0].tensor if self.rows else ""
        rows = [row for row in self.rows if row.tensor == name and row.measures.get(x, 0) > 0 < row.measures.get(y, 0)]
        if not rows:
            raise OptionError(Problem("tensor", f"no format of {name!r:.40} has positive {x} and {y}; choose another"))
        return drawing.scatter(x, y, [(row.measures[x], row.measures[y], row.format) for row in rows])


@within_memory
def sweep(
    tensors: Any,
    formats: FormatLike | Iterable[FormatLike] | Mapping[str, FormatLike],
    measure: str | Sequence[str] = MEASURED,
    *,
    repeat: int = 5,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Sweep:
    """Store tensors in formats, and measure bits and times. A format that refuses a tensor is a row with its reason.

    Times are minima of rounds; a round measures every format once. The first call compiles, and is not counted. What
    does not apply to a tensor of its rank is left out. A measure that fails leaves the others of its row.

    Parameters
    ----------
    tensors : a tensor, a list, or a mapping from names. A tensor may be an array of another library, or the path of
        any file that `open` takes, such as .mtx and .tns.gz.
    formats : a notation, a list, or a mapping from names, such as "CSR" or "dense, sparse, dense(2) through 0/4, 1/4,
        0%4, 1%4".
    measure : bits of index arrays for each entry, in memory ("bits") and in files ("narrow", "bitpacked"), and the
        information limit of the entries ("limit"); values for each entry ("padding"). Milliseconds to "pack" entries,
        to "convert" the tensor, to look up one entry ("point"), to load 16 coordinates in the middle of a dimension
        from a file ("slice:0"), and of an `einsum` whose first operand is the tensor, such as "ij,j->i".
    repeat : rounds.
    seed : of the dense operands, and of the entries that are looked up.
    progress : called with "sweeping", the number of finished tensors, and their total. True draws a bar on standard
        error, where that is a terminal or a notebook.

    Raises
    ------
    OptionError : there is no such measure.
    BinsparseError : a tensor cannot be read.

    >>> from binsparse_levels import pack, sweep
    >>> tensor = pack([[0, 2], [1, 3]], 1.0, (3, 4), "CSR")
    >>> [(row.format, dict(row.measures)) for row in sweep({"a": tensor}, ["CSR", "COO"], ["bits"]).rows]
    [('CSR', {'bits': 96.0}), ('COO', {'bits': 64.0})]
    """
    if isinstance(measure, str):
        measure = (measure,)
    for name in measure:
        if not isinstance(name, str) or (name not in MEASURES and "->" not in name and not _sliced(name)):
            known = ", ".join(MEASURES)
            raise OptionError(Problem("measure", f"{name!r:.60} is no measure; they are {known} or another einsum"))
    if (as_integer(seed) or 0) < 0:
        raise OptionError(Problem("seed", f"expected a number from 0 on, got {seed}"))
    rounds = as_integer(repeat)
    if rounds is None or rounds < 1:
        raise OptionError(Problem("repeat", f"expected a number from 1 on, got {repeat!r:.40}"))
    wanted = named_formats(formats)
    rows: list[Row] = []
    report, total = reporter(progress), len(tensors) if isinstance(tensors, list | tuple | Mapping) else 1
    for done, (name, source) in enumerate(_named(tensors), 1):
        rows += _rows(name, source, wanted, measure, rounds, seed)
        if report is not None:
            report("sweeping", done, total)
    return Sweep(tuple(rows), tuple(measure), _record(seed, rounds))


def _sliced(name: str) -> bool:
    head, _, dimension = name.partition(":")
    return head == "slice" and dimension.isdecimal()


def _named(tensors: Any) -> Iterator[tuple[str, Tensor]]:
    listed = tensors if isinstance(tensors, list | tuple) else [tensors]
    pairs = tensors.items() if isinstance(tensors, Mapping) else [(_name(k, x), x) for k, x in enumerate(listed)]
    for name, x in pairs:
        tensor = read(x) if isinstance(x, str | os.PathLike) else as_tensor(x)
        yield str(name), expanded(tensor.load()).without_map()


def _name(number: int, tensor: Any) -> str:
    return os.path.basename(tensor) if isinstance(tensor, str | os.PathLike) else f"tensor {number}"


@dataclass
class _Measured:
    """A format: its measures so far, what is timed, and what refuses the tensor."""

    measures: dict[str, float] = field(default_factory=dict)
    calls: dict[str, Callable[[], Any]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def begin(self, name: str, measure: Callable[[], Any]) -> None:
        """Note a number, or what is timed, which is called once so that it compiles."""
        try:
            made = measure()
            if callable(made):
                made()
                self.calls[name] = made
            elif made is not None:
                self.measures[name] = made
        except BinsparseError as error:
            self.refused.append(f"{name}: {error.problems[0]}")

    def time(self) -> None:
        for name, call in self.calls.items():
            begin = time.perf_counter()
            call()
            taken = 1e3 * (time.perf_counter() - begin) / (_POINTS if name == "point" else 1)
            self.measures[name] = min(self.measures.get(name, taken), taken)


def _rows(
    name: str, source: Tensor, formats: Sequence[tuple[str, FormatLike]], measure: Sequence[str], rounds: int, seed: int
) -> list[Row]:
    found = [_Measured() for _ in formats]
    with tempfile.TemporaryDirectory() as folder:
        for number, (row, (_, format)) in enumerate(zip(found, formats, strict=True)):
            try:
                tensor = source.convert(format)
            except BinsparseError as error:
                row.refused.append(str(error.problems[0]))
                continue
            for what in measure:
                row.begin(what, partial(_measure, what, source, tensor, format, f"{folder}/{number}.h5", seed))
        for _ in range(rounds):
            for row in found:
                row.time()
        for row in found:
            row.calls = {}  # which close the files
    rows = []
    for (label, _), row in zip(formats, found, strict=True):
        measures = {what: row.measures[what] for what in measure if what in row.measures}
        rows.append(Row(name, label, source.number_of_stored_values, measures, "; ".join(row.refused)))
    return rows


@within_memory
def _measure(
    name: str, source: Tensor, tensor: Tensor, format: FormatLike, path: str, seed: int
) -> float | Callable[[], Any] | None:
    """A number that needs no clock, what is timed, or None for what does not apply to the tensor."""
    entries, random = source.number_of_stored_values, np.random.default_rng(seed)
    if name == "limit":
        return limit(source.size, entries) / max(entries, 1)
    if name == "padding":
        return len(tensor.stored.values) / max(entries, 1)
    if name in ("bits", "narrow", "bitpacked"):
        return 8 * _index_bytes(tensor, name) / max(entries, 1)
    if name == "pack":
        return partial(pack, *source.unpack(), source.shape, format)
    if name == "convert":
        return partial(source.convert, format)
    if name == "point":
        coords, values = source.unpack()
        if not len(values):
            return None
        at = random.integers(0, len(values), _POINTS)
        places = list(zip(*(x[at].tolist() for x in coords), strict=True))
        return lambda: [tensor[place] for place in places]
    if _sliced(name):
        dimension = int(name.partition(":")[2])
        return _slice(tensor, dimension, path) if dimension < tensor.ndim else None
    first, *others = name.replace(" ", "").partition("->")[0].split(",")
    if len(first) != tensor.ndim:
        return None
    sizes = dict(zip(first, tensor.shape, strict=True))
    operands = []
    for letters in others:
        shape = [sizes.get(letter, _WIDTH) for letter in letters]
        tensor.limits.hold("dense_bytes", 8 * math.prod(shape), letters, "the size in bytes of the operand")
        operands.append(random.random(shape))
    return partial(einsum, name, tensor, *operands)


def _index_bytes(tensor: Tensor, how: str) -> int:
    """The bytes of all arrays but the values, in memory, or as `write` stores them with the option of that name."""
    arrays: dict[str, Any] = dict(tensor.stored.arrays)
    if how == "bits":
        return sum(x.nbytes for x in arrays.values())
    store: dict[str, Any] = {}
    write(store, tensor, narrow=how == "narrow", bitpacked=how == "bitpacked")
    return sum(x.nbytes for name, x in store.items() if name in arrays)


def _slice(tensor: Tensor, dimension: int, path: str) -> Callable[[], Any]:
    """Load the coordinates in the middle of a dimension from a file."""
    write(path, tensor, overwrite=True)
    middle = tensor.shape[dimension] // 2
    view = open_tensor(path)[(slice(None),) * dimension + (slice(middle, middle + _WIDTH),)]
    return lambda: view[...].load()


def _record(seed: int, rounds: int) -> dict[str, Any]:
    return {
        "processor": processor_name(), "system": platform.platform(), "python": platform.python_version(),
        "numpy": np.__version__, "numba": numba.__version__, "binsparse_levels": __version__,
        "threads": get_threads(), "seed": seed, "rounds": rounds,
    }  # fmt: skip
