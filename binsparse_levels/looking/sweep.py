"""Tensors times formats: a table of bits and times, with the machine that it was made on."""

from __future__ import annotations

import csv
import io
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

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

MEASURES = ("bits", "narrow", "bitpacked", "limit", "padding", "pack", "convert", "point", "slice:0", "ij,j->i")
MEASURED = ("bits", "narrow", "bitpacked", "limit", "padding")  # unless others are named
_WIDTH = 16  # the size of dimensions that the tensor does not have, and the coordinates of a slice
_POINTS = 200  # places that are looked up
_BITS: dict[str, Stored] = {"bits": "memory", "narrow": "narrow", "bitpacked": "bitpacked"}
_LATEX = str.maketrans({c: f"\\{c}" for c in "_%&#${}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})


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

    def _cells(self) -> Iterator[list[str]]:
        for row in self.rows:
            numbers = [f"{row.measures[name]:.4g}" if name in row.measures else "" for name in self.names]
            yield [row.tensor, row.format, f"{row.entries}", *numbers, row.refused]

    @property
    def _heads(self) -> list[str]:
        return ["tensor", "format", "entries", *self.names, "refused"]

    def __str__(self) -> str:
        lines = [self._heads, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        ends = len(self._heads) - 1
        return "\n".join(
            "  ".join(
                x.ljust(w) if k in (0, 1, ends) else x.rjust(w)
                for k, (x, w) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def line(tag: str, cells: Iterable[str]) -> str:
            return f"<tr>{''.join(f'<{tag}>{drawing.escaped(cell)}</{tag}>' for cell in cells)}</tr>"

        return f"<table>{line('th', self._heads)}{''.join(line('td', cells) for cells in self._cells())}</table>"

    def to_pandas(self) -> Any:
        """A DataFrame of pandas, whose `attrs` hold the record."""
        with needing("pandas"):
            import pandas  # type: ignore[import-untyped]

        frame = pandas.DataFrame([{**_plain(row), **row.measures} for row in self.rows])
        frame.attrs.update(self.record)
        return frame

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str:
        """The table as CSV, with the record in comments before it; also written into a file, where a path is passed.

        Raises FileExistsError unless `overwrite`; ContainerError.
        """
        text = io.StringIO()
        text.writelines(f"# {name}: {value}\n" for name, value in self.record.items())
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self._heads)
        for row in self.rows:
            numbers = [row.measures.get(name, "") for name in self.names]
            writer.writerow([row.tensor, row.format, row.entries, *numbers, row.refused])
        if path is not None:
            write_text(path, text.getvalue(), overwrite)
        return text.getvalue()

    def to_latex(self) -> str:
        """The table as a `tabular` of LaTeX. Rows that were refused have a dash for each measure."""
        columns = "ll" + "r" * (len(self.names) + 1)
        lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", _latex(self._heads[:-1]), r"\hline"]
        for *cells, _ in self._cells():
            lines.append(_latex([*cells[:3], *(x or "--" for x in cells[3:])]))
        return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])

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
    if isinstance(tensors, str | os.PathLike) or not isinstance(tensors, Mapping | list | tuple):
        tensors = [tensors]
    if not isinstance(tensors, Mapping):
        named = {}
        for k, x in enumerate(tensors):
            named[os.path.basename(x) if isinstance(x, str | os.PathLike) else f"tensor {k}"] = x
        tensors = named
    for name, x in tensors.items():
        held = read(x) if isinstance(x, str | os.PathLike) else as_tensor(x)
        whole = expanded(held.load())
        yield str(name), whole.without_map() if whole.map is not None else whole


class _Candidate:
    """A tensor in a format, and the shortest times so far."""

    def __init__(self, source: Tensor, format: FormatLike) -> None:
        self.name = format if isinstance(format, str) else str(parse_format(format))
        self.tensor: Tensor | None = None
        self.refused = ""
        self.measures: dict[str, float] = {}
        self.timed: dict[str, Callable[[], Any]] = {}
        try:
            self.tensor = source.convert(format)
        except BinsparseError as error:
            self.refuse(error)

    def refuse(self, error: BinsparseError) -> None:
        self.refused, self.measures, self.timed = str(error.problems[0]), {}, {}

    def time(self) -> None:
        for name, call in self.timed.items():
            begin = time.perf_counter()
            call()
            taken = 1e3 * (time.perf_counter() - begin) / (_POINTS if name == "point" else 1)
            self.measures[name] = min(self.measures.get(name, taken), taken)


def _rows(
    name: str,
    source: Tensor,
    formats: Sequence[FormatLike],
    measure: Sequence[str],
    rounds: int,
    seed: int,
    progress: Callable[[str, int, int], None] | None,
) -> list[Row]:
    random = np.random.default_rng(seed)
    fitting = [spec for spec in measure if len(spec.replace(" ", "").partition("->")[0].split(",")[0]) == source.ndim]
    operands = {spec: _operands(spec, source, random) for spec in fitting if "->" in spec}
    expected: dict[str, Any] = {}
    with _folder(any(map(_sliced, measure))) as folder:
        candidates = [_Candidate(source, format) for format in formats]
        for number, (candidate, format) in enumerate(zip(candidates, formats, strict=True)):
            try:
                _prepare(candidate, format, source, measure, operands, expected, f"{folder}/{number}.h5", seed)
            except BinsparseError as error:
                candidate.refuse(error)
        for done in range(rounds):
            for candidate in candidates:
                candidate.time()
            if progress is not None:
                progress(name, done + 1, rounds)
        for candidate in candidates:
            candidate.timed = {}  # which close the files
    count = source.number_of_stored_values
    return [
        Row(name, x.name, count, {key: x.measures[key] for key in measure if key in x.measures}, x.refused)
        for x in candidates
    ]


@contextmanager
def _folder(needed: bool) -> Iterator[str]:
    if not needed:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def _prepare(
    candidate: _Candidate,
    format: FormatLike,
    source: Tensor,
    measure: Sequence[str],
    operands: Mapping[str, list[Any]],
    expected: dict[str, Any],
    path: str,
    seed: int,
) -> None:
    """Measure what needs no clock, and say what is timed. Every call is made once, which compiles it."""
    from ..compute import einsum  # which imports numba, as no other command has to

    tensor = candidate.tensor
    if tensor is None:
        return
    coords, values = source.unpack()
    count = max(len(values), 1)
    for name in measure:
        if name in _BITS:
            candidate.measures[name] = 8 * index_bytes(tensor, _BITS[name]) / count
        elif name == "limit":
            candidate.measures[name] = limit(source.size, len(values)) / count
        elif name == "padding":
            candidate.measures[name] = len(tensor.stored.values) / count
        elif name == "pack":
            candidate.timed[name] = partial(pack, coords, values, source.shape, format)
        elif name == "convert":
            candidate.timed[name] = partial(source.convert, format)
        elif name == "point" and len(values):
            at = np.random.default_rng(seed).integers(0, len(values), _POINTS)
            places = list(zip(*(x[at].tolist() for x in coords), strict=True))
            candidate.timed[name] = partial(_look_up, tensor, places)
        elif _sliced(name) and int(name.partition(":")[2]) < tensor.ndim:
            candidate.timed[name] = _slice(tensor, int(name.partition(":")[2]), path)
        elif name in operands:
            result = einsum(name, tensor, *operands[name])
            dense = result.to_dense() if isinstance(result, Tensor) else result
            if not np.allclose(dense, expected.setdefault(name, dense), rtol=1e-4, equal_nan=True):
                raise ArrayError(Problem(name, "the result is not that of the first format; please report it"))
            candidate.timed[name] = partial(einsum, name, tensor, *operands[name])
    for call in candidate.timed.values():
        call()


def _look_up(tensor: Tensor, places: Sequence[tuple[int, ...]]) -> None:
    for place in places:
        tensor[place]


def _slice(tensor: Tensor, dimension: int, path: str) -> Callable[[], Any]:
    """Load the coordinates in the middle of a dimension from a file."""
    write(path, tensor, overwrite=True)
    middle = tensor.shape[dimension] // 2
    view = open_tensor(path)[(slice(None),) * dimension + (slice(middle, middle + _WIDTH),)]
    return lambda: view[...].load()


def _operands(spec: str, tensor: Tensor, random: np.random.Generator) -> list[Any]:
    """Dense operands of an einsum, whose first operand is the tensor."""
    first, *others = spec.replace(" ", "").partition("->")[0].split(",")
    sizes = dict(zip(first, tensor.shape, strict=False))
    return [random.random([sizes.get(letter, _WIDTH) for letter in letters]) for letters in others]


def _record(seed: int, rounds: int) -> dict[str, Any]:
    import numba

    return {
        "processor": processor_name(), "system": platform.platform(), "python": platform.python_version(),
        "numpy": np.__version__, "numba": numba.__version__, "binsparse_levels": __version__,
        "threads": get_threads(), "seed": seed, "rounds": rounds,
    }  # fmt: skip


def _plain(row: Row) -> dict[str, Any]:
    return {"tensor": row.tensor, "format": row.format, "entries": row.entries, "refused": row.refused}


def _latex(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"
