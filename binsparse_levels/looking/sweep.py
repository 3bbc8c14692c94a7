"""Tensors times formats: a table of bits and times, with the machine that it was made on."""

from __future__ import annotations

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
from ..containers.replacing import write_text
from ..errors import ArrayError, BinsparseError, OptionError, Problem, needing, within_memory
from ..formats.format import FormatLike, parse_format
from ..io import open as open_tensor
from ..io import read, write
from ..limits import as_integer
from ..parallel import get_threads
from ..system import processor_name
from ..tensors.changing import expanded
from ..tensors.foreign import as_tensor
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..version import __version__
from . import drawing
from .fibers import limit
from .stored import Stored, index_bytes
from .tables import as_html, as_text

MEASURES = ("bits", "narrow", "bitpacked", "limit", "padding", "pack", "convert", "point", "slice:0", "ij,j->i")
MEASURED = ("bits", "narrow", "bitpacked", "limit", "padding")  # unless others are named
_WIDTH = 16  # the size of dimensions that the tensor does not have, and the coordinates of a slice
_POINTS = 200  # places that are looked up
_BITS: dict[str, Stored] = {"bits": "memory", "narrow": "narrow", "bitpacked": "bitpacked"}


@dataclass(frozen=True)
class Row:
    """A tensor in a format.

    Parameters
    ----------
    tensor, format : its name, and the notation as it was passed.
    entries : the number of stored entries, without the padding of the format.
    measures : by name; empty where the format refuses the tensor.
    refused : why, or an empty text.
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
        """A DataFrame of pandas, whose `attrs` hold the record. What was not measured is NaN."""
        with needing("pandas"):
            import pandas  # type: ignore[import-untyped]

        columns = ["tensor", "format", "entries", *self.names, "refused"]
        frame = pandas.DataFrame([{**vars(row), **row.measures} for row in self.rows], columns=columns)
        frame.attrs.update(self.record)
        return frame

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str:
        """The table as CSV, with the record in comments before it; also written into a file, where a path is passed.

        Raises FileExistsError unless `overwrite`; ContainerError.
        """
        record = "".join(f"# {name}: {value}\n" for name, value in self.record.items())
        text = record + str(self.to_pandas().to_csv(index=False, lineterminator="\n"))
        if path is not None:
            write_text(path, text, overwrite)
        return text

    def to_latex(self) -> str:
        """The table as a `tabular` of LaTeX. Formats that refuse a tensor have a dash for each measure."""
        frame = self.to_pandas().drop(columns="refused")
        with needing("pandas"):
            return str(frame.to_latex(index=False, na_rep="--", escape=True, float_format="%.4g"))

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
    formats: Iterable[FormatLike],
    measure: Sequence[str] = MEASURED,
    *,
    repeat: int = 5,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Sweep:
    """Store tensors in formats, and measure bits and times. A format that refuses a tensor is a row with its reason.

    Times are minima of rounds; a round measures every format once. The first call compiles, and is not counted. What
    does not apply to a tensor of its rank is left out.

    Parameters
    ----------
    tensors : a tensor, a list, or a mapping from names. A tensor may be an array of another library, or the path of
        any file that `open` takes, such as .mtx and .tns.gz.
    formats : notations, such as "CSR" or "dense, sparse, dense(2) through 0/4, 1/4, 0%4, 1%4".
    measure : bits of index arrays for each entry, in memory ("bits") and in files ("narrow", "bitpacked"), and the
        information limit of the entries ("limit"); values for each entry ("padding"). Milliseconds to "pack" entries,
        to "convert" the tensor, to look up one entry ("point"), to load 16 coordinates in the middle of a dimension
        from a file ("slice:0"), and of an `einsum` whose first operand is the tensor, such as "ij,j->i".
    repeat : rounds.
    seed : of the dense operands, and of the entries that are looked up.
    progress : called with the name of a tensor, the number of finished rounds, and their total.

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
    rows: list[Row] = []
    wanted = list(formats)
    for name, source in _named(tensors):
        rows += _rows(name, source, wanted, measure, rounds, seed, progress)
    return Sweep(tuple(rows), tuple(measure), _record(seed, rounds))


def _sliced(name: str) -> bool:
    head, _, dimension = name.partition(":")
    return head == "slice" and dimension.isdecimal()


def _named(tensors: Any) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(tensors, Mapping):
        listed = tensors if isinstance(tensors, list | tuple) else [tensors]
        tensors = {_name(k, x): x for k, x in enumerate(listed)}
    for name, x in tensors.items():
        tensor = read(x) if isinstance(x, str | os.PathLike) else as_tensor(x)
        yield str(name), expanded(tensor.load()).without_map()


def _name(number: int, tensor: Any) -> str:
    return os.path.basename(tensor) if isinstance(tensor, str | os.PathLike) else f"tensor {number}"


@dataclass
class _Timed:
    """A format: its measures so far, what is timed, and why it refuses the tensor."""

    measures: dict[str, float] = field(default_factory=dict)
    calls: dict[str, Callable[[], Any]] = field(default_factory=dict)
    refused: str = ""

    def time(self) -> None:
        for name, call in self.calls.items():
            begin = time.perf_counter()
            call()
            taken = 1e3 * (time.perf_counter() - begin) / (_POINTS if name == "point" else 1)
            self.measures[name] = min(self.measures.get(name, taken), taken)


def _rows(
    name: str, source: Tensor, formats: Sequence[FormatLike], measure: Sequence[str], rounds: int, seed: int,
    progress: Callable[[str, int, int], None] | None,
) -> list[Row]:  # fmt: skip
    operands = _operands(measure, source, seed)
    results: dict[str, Any] = {}  # of the first format
    with tempfile.TemporaryDirectory() as folder:
        timed = []
        for number, format in enumerate(formats):
            try:
                tensor = source.convert(format)
                calls = _calls(source, tensor, format, measure, operands, f"{folder}/{number}.h5", seed)
                for spec, call in calls.items():
                    result = call()  # which compiles
                    if spec in operands:
                        _compare(spec, result, results)
                timed.append(_Timed(_sizes(source, tensor, measure), calls))
            except BinsparseError as error:
                timed.append(_Timed(refused=str(error.problems[0])))
        for done in range(rounds):
            for x in timed:
                x.time()
            if progress is not None:
                progress(name, done + 1, rounds)
        for x in timed:
            x.calls = {}  # which close the files
    rows = []
    for format, x in zip(formats, timed, strict=True):
        label = format if isinstance(format, str) else str(parse_format(format))
        measures = {key: x.measures[key] for key in measure if key in x.measures}
        rows.append(Row(name, label, source.number_of_stored_values, measures, x.refused))
    return rows


def _sizes(source: Tensor, tensor: Tensor, measure: Sequence[str]) -> dict[str, float]:
    """What needs no clock."""
    entries = source.number_of_stored_values
    count = max(entries, 1)
    made = {name: 8 * index_bytes(tensor, how) / count for name, how in _BITS.items() if name in measure}
    return made | {"limit": limit(source.size, entries) / count, "padding": len(tensor.stored.values) / count}


def _calls(
    source: Tensor, tensor: Tensor, format: FormatLike, measure: Sequence[str], operands: Mapping[str, list[Any]],
    path: str, seed: int,
) -> dict[str, Callable[[], Any]]:  # fmt: skip
    """What is timed."""
    coords, values = source.unpack()
    calls: dict[str, Callable[[], Any]] = {}
    for name in measure:
        if name == "pack":
            calls[name] = partial(pack, coords, values, source.shape, format)
        elif name == "convert":
            calls[name] = partial(source.convert, format)
        elif name == "point" and len(values):
            at = np.random.default_rng(seed).integers(0, len(values), _POINTS)
            places = list(zip(*(x[at].tolist() for x in coords), strict=True))
            calls[name] = partial(_look_up, tensor, places)
        elif _sliced(name) and int(name.partition(":")[2]) < tensor.ndim:
            calls[name] = _slice(tensor, int(name.partition(":")[2]), path)
        elif name in operands:
            calls[name] = partial(einsum, name, tensor, *operands[name])
    return calls


def _compare(spec: str, result: Any, results: dict[str, Any]) -> None:
    """Raise ArrayError where a result is not that of the first format."""
    dense = result.to_dense() if isinstance(result, Tensor) else result
    if not np.allclose(dense, results.setdefault(spec, dense), rtol=1e-4, equal_nan=True):
        raise ArrayError(Problem(spec, "the result is not that of the first format; please report it"))


def _look_up(tensor: Tensor, places: Sequence[tuple[int, ...]]) -> None:
    for place in places:
        tensor[place]


def _slice(tensor: Tensor, dimension: int, path: str) -> Callable[[], Any]:
    """Load the coordinates in the middle of a dimension from a file."""
    write(path, tensor, overwrite=True)
    middle = tensor.shape[dimension] // 2
    view = open_tensor(path)[(slice(None),) * dimension + (slice(middle, middle + _WIDTH),)]
    return lambda: view[...].load()


def _operands(measure: Sequence[str], tensor: Tensor, seed: int) -> dict[str, list[Any]]:
    """Dense operands of each einsum whose first operand has the rank of the tensor."""
    random = np.random.default_rng(seed)
    operands = {}
    for spec in measure:
        first, *others = spec.replace(" ", "").partition("->")[0].split(",")
        if "->" in spec and len(first) == tensor.ndim:
            sizes = dict(zip(first, tensor.shape, strict=True))
            operands[spec] = [random.random([sizes.get(letter, _WIDTH) for letter in letters]) for letters in others]
    return operands


def _record(seed: int, rounds: int) -> dict[str, Any]:
    return {
        "processor": processor_name(), "system": platform.platform(), "python": platform.python_version(),
        "numpy": np.__version__, "numba": numba.__version__, "binsparse_levels": __version__,
        "threads": get_threads(), "seed": seed, "rounds": rounds,
    }  # fmt: skip
