"""Advice on formats: the size of every format to the byte, without packing any.

Sizes follow from one number for each subset of the dimensions: its count of distinct coordinates. That count tells how
many children a level has in any chain; dense levels above multiply it.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from ..engine import sorting
from ..errors import FormatError, LimitError, OptionError, Problem, raise_if, within_memory
from ..formats.format import (
    Format,
    FormatLike,
    coordinates,
    notation,
    parse_format,
    with_map,
)
from ..formats.index_map import parse_map
from ..formats.shapes import permutation_problems
from ..io import read
from ..levels import LEVELS, Level, canonical, full, listing, places
from ..limits import DEFAULT_LIMITS, Limits, as_integer, as_integers
from ..tensors.foreign import as_tensor
from ..tensors.naming import Dimension, dimension_of
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_sizes
from . import drawing
from .fibers import limit
from .search import Choices, cheapest, prefixes, subsets
from .sizes import Sizes, bits, sizes_of
from .stored import Stored, bytes_in
from .tables import as_html, as_text, escaped

MAX_RANK = sorting.MAX_FUSED_RANK  # above this rank not all orders are tried; 2^8 counts take 70 sorts


@dataclass(frozen=True)
class Candidate:
    """A format and its cost: bytes of all arrays, bytes of the values, and the mean bytes that a slice reads.

    `slice_nbytes` is None if no dimension was named, and `seconds`, of the kernel, if no kernel was. map: the notation
    of an index map, or None. refused: why the format does not hold the tensor, whose sizes are 0 then.
    """

    format: Format
    nbytes: int
    values_nbytes: int
    slice_nbytes: float | None
    seconds: float | None = None
    map: str | None = None
    refused: str = ""

    def __str__(self) -> str:
        return notation(self.format, self.map)

    @property
    def estimated(self) -> bool:
        """Whether the sizes are estimates. They are counted, or those of the converted tensor, so none is."""
        return False

    @property
    def readers(self) -> str:
        """Who reads a file in this format: "every reader" of Binsparse, those that know "custom" formats, or "ours"."""
        if self.map is not None:
            return "ours"
        if self.format.alias is not None:
            return "every reader"
        return "custom" if all(level.specified for level in self.format.levels) else "ours"


@within_memory
class Advice:
    """The sizes of formats for the entries of a tensor: `candidates` are the best, `compared` the usual ones.

    counts: distinct coordinates by subset of the dimensions. slices_by: the dimension of the slices, or None.

    >>> from binsparse_levels import advise, pack
    >>> advice = advise(pack([[0, 2], [1, 3]], [1.0, 2.0], (50, 40), "CSR"))
    >>> str(advice.best), advice.nbytes("CSR")
    ('COOR', 228)
    """

    def __init__(self, sizes: Sizes, dtype: np.dtype[Any], slices_by: int | None) -> None:
        self._sizes = sizes
        self.shape = sizes.shape
        self.entries = sizes.entries
        self.dtype = dtype
        self.slices_by = slices_by
        self.kernel: str | None = None
        self.stored: Stored = "memory"
        self.candidates: tuple[Candidate, ...] = ()
        self.compared: tuple[Candidate, ...] = ()

    @property
    def counts(self) -> Mapping[tuple[int, ...], int]:
        """The number of distinct coordinates by subset of the dimensions, ascending."""
        counts = {tuple(k for k in range(len(self.shape)) if m >> k & 1): c for m, c in self._sizes.counts.items()}
        return MappingProxyType({part: counts[part] for part in sorted(counts, key=lambda part: (len(part), part))})

    @property
    def best(self) -> Format:
        """The first candidate's format. Raises LimitError if no format is within the limits."""
        if not self.candidates:
            raise LimitError(Problem("format", "none fits within the limits; pass larger limits"))
        return self.candidates[0].format

    def nbytes(self, format: FormatLike) -> int:
        """The bytes of all arrays that `pack` makes in a format.

        Raises FormatError if counts do not tell the size of a kind, or an order was not counted, and LimitError.
        """
        return self.candidate(format).nbytes

    def candidate(self, format: FormatLike) -> Candidate:
        """A format with its cost. Raises the errors of `nbytes`."""
        parsed, sizes, by = parse_format(format, len(self.shape)), self._sizes, self.slices_by
        if parsed.rank != len(self.shape):
            what = f"{parsed} has {parsed.rank} dimensions, not {len(self.shape)}; choose another"
            raise FormatError(Problem("format", what))
        read = total = above = 0
        n = 1
        for place in places(parsed.levels, sizes.dims(parsed.order)):
            covered = parsed.order[place.depth : place.depth + place.level.rank]
            told = sizes.step(place.level, covered, above, n, by)
            above |= bits(covered)
            if told is None:
                whose = str(place.level) if above in sizes.counts else "an order not counted; name it in orders="
                raise FormatError(Problem("format", f"counts do not tell the size of {whose}"))
            read, total, n = read + told[0], total + told[1], told[2]
            if not sizes.fits(n):
                sizes.limits.hold("dense_bytes", 8 * n, "format", "the size in bytes of what the dense levels make")
        if parsed.padded and not sizes.may_pad:
            what = f"the fill value of the structure does not fit {parsed}; choose a format without padding"
            raise FormatError(Problem("format", what))
        reads, values = sizes.values(n, any(level.padded for level in parsed.levels), by)
        mean = None if by is None else (read + reads) / max(self.shape[by], 1)
        return Candidate(parsed, total + values, values, mean)

    def rows(self) -> Iterator[tuple[str, Candidate, float]]:
        """The candidates with their ranks, then the usual formats, and sizes relative to the smallest.

        A candidate that costs as much as that above it has the rank "=".
        """
        smallest = min((c.nbytes for c in (*self.candidates, *self.compared) if not c.refused), default=0)
        above: Any = None
        for k, candidate in enumerate(self.candidates):
            cost = candidate.nbytes, candidate.slice_nbytes
            yield "=" if cost == above else str(k + 1), candidate, _ratio(candidate.nbytes, smallest)
            above = cost
        listed = {c.format.canonical() for c in self.candidates}
        for candidate in self.compared:
            if candidate.map is not None or candidate.refused or candidate.format.canonical() not in listed:
                yield "", candidate, _ratio(candidate.nbytes, smallest)

    def _table(self) -> tuple[str, list[list[str]]]:
        """A line about the entries; the head and the rows of the table."""
        shape = " × ".join(map(str, self.shape)) or "scalar"
        table = [["", "format", "bytes", "ratio"]]
        if self.slices_by is not None:
            table[0].append(f"a slice of dimension {self.slices_by}")
        if self.kernel is not None:
            table[0].append(f"{self.kernel}, ms")
        table[0].append("read by")
        for number, candidate, ratio in self.rows():
            sizes = ["", ""] if candidate.refused else [f"{candidate.nbytes:,}", f"{ratio:.3f}"]
            table.append([number, str(candidate), *sizes])
            if self.slices_by is not None:
                table[-1].append("" if candidate.slice_nbytes is None else f"{candidate.slice_nbytes:,.0f}")
            if self.kernel is not None:
                table[-1].append("" if candidate.seconds is None else f"{1e3 * candidate.seconds:.3g}")
            table[-1].append(f"refused: {candidate.refused}" if candidate.refused else candidate.readers)
        iso = ", iso" if self._sizes.iso else ""
        bound = limit(math.prod(self.shape), self.entries) / max(self.entries, 1)
        head = f"{shape} {self.dtype}{iso}, {self.entries:,} entries, whose coordinates hold {bound:.3g} bits each"
        return head if self.stored == "memory" else f"{head}; bytes in a file, {self.stored}", table

    def __str__(self) -> str:
        title, (head, *rows) = self._table()
        return f"{title}\n{as_text(head, rows)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table and the picture, for a notebook."""
        title, (head, *rows) = self._table()
        return f"<p>{escaped(title)}</p>{as_html(head, rows)}{self.draw()}"

    def draw(self) -> str:
        """Draw the table as an SVG: a bar for each format, with parts for indices and values."""
        bars = []
        for _, candidate, ratio in self.rows():
            if candidate.refused:
                continue
            text = f"{candidate.nbytes:,} bytes, {ratio:.3f} ×"
            if candidate.slice_nbytes is not None:
                text += f"; a slice {candidate.slice_nbytes:,.0f}"
            parts = (candidate.nbytes - candidate.values_nbytes, candidate.values_nbytes)
            bars.append(drawing.Bar(str(candidate), parts, text))
        return drawing.bars(("indices and pointers", "values"), bars)


@within_memory
def advise(
    source: Any,
    shape: int | Sequence[int] | None = None,
    dtype: npt.DTypeLike = np.float64,
    *,
    slices_by: Dimension | None = None,
    count: int = 10,
    orders: Iterable[Sequence[int]] | None = None,
    kinds: Iterable[str] | None = None,
    formats: Iterable[FormatLike] | None = None,
    kernel: str | None = None,
    stored: Stored = "memory",
    limits: Limits = DEFAULT_LIMITS,
) -> Advice:
    """Rank formats by size for the entries of a tensor, without packing any.

    Sizes are exact for `pack`, and for `convert` unless it keeps wider integers. Every entry counts, also stored zeros
    and padding; call `drop_fill` first to leave them out. Two or three words for each entry are needed in memory. Of
    formats that differ only in the order inside a level, or among neighbouring dense levels, one is listed. Ties go to
    fewer levels.

    With `slices_by`, a slice reads all of the levels above the one that covers the dimension. Of that level it reads
    what `Level.sliced` says, and its share of the levels and values below. The ranking takes the mean of all slices.

    Parameters
    ----------
    source : a tensor, an array of another library but numpy, as `as_tensor` takes it, a path of any file that `read`
        takes, or coordinates as `pack` takes them. A map is removed first.
    shape, dtype : of coordinates: the sizes of the dimensions, and the type of the values.
    slices_by : rank by the bytes that a slice along this dimension, a number or a name, reads, then by size.
    count : the number of candidates.
    orders : the orders of the dimensions to try; required beyond 8 dimensions.
    kinds : the level kinds to try, such as ("dense", "sparse"), which other programs read. A level with parameters,
        such as "n_of_m(1, n=2, m=4)", and a kind whose size counts do not tell, such as "run", are compared below dense
        and below sparse levels.
    formats : the formats to compare with, instead of the usual ones, such as "dense, sparse, dense(2) through 0/4, 1/4,
        0%4, 1%4". Where counts do not tell the size, the tensor is converted. A format that refuses the tensor
        says why.
    kernel : an `einsum` whose time is measured in each format, such as "ij,j->i". Its first operand is the tensor, the
        others are dense; other dimensions have the size 16. Of a large tensor, some first coordinates are measured.
    stored : rank the sizes of files: "narrow" or "bitpacked" as `write` has them. The best in memory are converted.
    limits : formats beyond these limits are left out.

    Raises
    ------
    LimitError : more than 8 dimensions without `orders`.
    IndexError, FormatError, ArrayError, OptionError : the arguments do not fit each other.

    >>> from binsparse_levels import advise
    >>> str(advise([[0, 2], [1, 3]], (50, 40)).best)
    'COOR'
    """
    has_values = isinstance(source, Tensor) or (shape is None and not isinstance(source, list | tuple | np.ndarray))
    if has_values:
        tensor = (read(source) if isinstance(source, str | os.PathLike) else as_tensor(source)).without_map()
        if shape is not None:
            raise OptionError(Problem("shape", "a tensor has its own; leave it out"))
    elif shape is None:
        raise OptionError(Problem("shape", "coordinates need one; pass shape="))
    else:
        listed = coordinates(len(checked_sizes(shape)))
        tensor = pack(source, np.zeros((), dtype), shape, listed, duplicates="first", limits=limits)
    by = None if slices_by is None else dimension_of(tensor, slices_by)
    if stored not in get_args(Stored):
        raise OptionError(Problem("stored", f"expected one of {get_args(Stored)}, got {stored!r:.40}"))
    if kernel is not None and not isinstance(kernel, str):
        raise OptionError(Problem("kernel", f"expected the notation of einsum, such as 'ij,j->i', got {kernel!r:.60}"))
    kinds = None if kinds is None else list(kinds)
    most = as_integer(count)
    if most is None:
        raise OptionError(Problem("count", f"expected an integer, got {count!r:.40}; say how many formats to list"))
    wanted = None if orders is None else [as_integers(order) for order in orders]
    for order in wanted or ():
        raise_if(FormatError, permutation_problems(order, tensor.ndim))
    if wanted is None and tensor.ndim > MAX_RANK:
        what = f"{tensor.ndim} dimensions, more than {MAX_RANK}, have too many orders; name some in orders="
        raise LimitError(Problem("shape", what))
    sizes = sizes_of(tensor, has_values, wanted, limits)
    advice = Advice(sizes, tensor.dtype, by)
    choices = _choices(tensor.ndim, kinds)
    if wanted is None:
        chains = cheapest(sizes, choices, subsets(tensor.ndim, by), by, most)
    else:
        ranked = [chain for order in wanted for chain in cheapest(sizes, choices, prefixes(order), by, most)]
        chains = heapq.nsmallest(most, ranked, key=lambda chain: chain.cost)
    advice.candidates = tuple(advice.candidate(format) for format in dict.fromkeys(chain.format() for chain in chains))
    advice.candidates = tuple(c for c in advice.candidates if _holds(tensor, c.format))
    if formats is not None:
        advice.compared = tuple(_compared(advice, tensor, format) for format in formats)
    else:
        for format in _usual(tensor):
            with contextlib.suppress(FormatError, LimitError):
                advice.compared += (advice.candidate(format),)
    for level in _not_ranked(kinds):
        for outer in (*full(1), *listing(1)):
            chain = Format((outer,) * (tensor.ndim - level.rank) + (level,))
            if level.rank <= tensor.ndim:
                advice.compared += (_compared(advice, tensor, chain),)
    if stored != "memory":
        _in_files(advice, tensor, stored)
    return advice if kernel is None else _timed(advice, tensor, kernel)


def _holds(tensor: Tensor, format: Format) -> bool:
    """Whether a kind that may refuse entries takes these."""
    try:
        return not any(level.refuses for level in format.levels) or bool(bytes_in(tensor, format, None, "memory"))
    except FormatError:
        return False


def _compared(advice: Advice, tensor: Tensor, format: FormatLike) -> Candidate:
    """A format with its size, from counts, or else by converting the tensor."""
    levels, map = with_map(format)
    parsed = parse_format(levels, len(advice.shape) if map is None else len(parse_map(map, advice.shape).groups))
    with contextlib.suppress(FormatError, LimitError):
        if map is None and not any(level.refuses for level in parsed.levels):
            return advice.candidate(parsed)
    try:
        indices, values = bytes_in(tensor, parsed, map, "memory")
    except (FormatError, LimitError) as error:
        return Candidate(parsed, 0, 0, None, None, map, str(error.problems[0]))
    return Candidate(parsed, indices + values, values, None, None, map)


def _in_files(advice: Advice, tensor: Tensor, stored: Stored) -> None:
    """Replace sizes in memory by those in a file, and rank the candidates again."""

    def measured(candidate: Candidate) -> Candidate:
        if candidate.refused:
            return candidate
        indices, _ = bytes_in(tensor, candidate.format, candidate.map, stored)
        return replace(candidate, nbytes=indices + candidate.values_nbytes)

    advice.stored = stored
    advice.candidates = tuple(sorted(map(measured, advice.candidates), key=lambda c: c.nbytes))
    advice.compared = tuple(map(measured, advice.compared))


def _timed(advice: Advice, tensor: Tensor, kernel: str) -> Advice:
    """The advice with the measured times of a kernel."""
    from ..compute import kernel_seconds  # which imports numba, as no other advice does

    listed = [candidate.format for _, candidate, _ in advice.rows()]
    seconds = kernel_seconds(tensor, kernel, listed)
    for name in ("candidates", "compared"):
        timed = (replace(candidate, seconds=seconds.get(candidate.format)) for candidate in getattr(advice, name))
        setattr(advice, name, tuple(timed))
    advice.kernel = kernel
    return advice


def _usual(tensor: Tensor) -> list[Format]:
    """The usual formats: the tensor's own, coordinates, all sparse, dense above sparse, all dense."""
    rank = tensor.ndim
    usual = [tensor.format, coordinates(rank)]
    dense, sparse = *full(1), *listing(1)
    for outer, inner in ((sparse, sparse), (dense, sparse), (dense, dense)):
        usual.append(Format((outer,) * (rank - 1) + (inner,) * min(rank, 1)))
    return list(dict.fromkeys(usual))


def _choices(rank: int, kinds: Iterable[str] | None) -> Choices:
    """The levels of each rank, for every kind without further parameters."""
    names = list(LEVELS) if kinds is None else [name for name in kinds if "(" not in name]
    unknown, known = [name for name in names if name not in LEVELS], ", ".join(LEVELS)
    raise_if(FormatError, [Problem("kinds", f"{name!r} is no level kind; known are {known}") for name in unknown])
    choices: Choices = {r: [] for r in range(1, rank + 1)}
    for name in names:
        made = []
        for r in choices:
            with contextlib.suppress(FormatError, TypeError):
                made.append(LEVELS[name](r))
        whole = any(len(canonical([level])) > 1 for level in made)
        for level in made:
            choices[level.rank].append((level, whole))
    return choices


def _not_ranked(kinds: Sequence[str] | None) -> list[Level]:
    """The levels among the kinds that have parameters, or whose size counts do not tell."""
    named = [(name, level, [1] * level.rank) for name in kinds or () for level in parse_format(name).levels]
    return [
        level
        for name, level, dims in named
        if "(" in name or None in (level.children(dims, 1, 1), level.nbytes(dims, 1, 1, root=True, itemsize=8))
    ]


def _ratio(size: int, smallest: int) -> float:
    return size / smallest if smallest else (math.inf if size else 1.0)
