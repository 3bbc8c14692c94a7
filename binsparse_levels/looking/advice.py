"""Advice on formats: the size of every format to the byte, without packing any."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.tree import index_dtype
from ..errors import FormatError, LimitError, OptionError, Problem, within_memory
from ..formats.format import Format, FormatLike, coordinates, in_order, notation, parse_format, with_map
from ..formats.index_map import IndexMap, parse_map
from ..io import read
from ..levels import LEVELS, places
from ..limits import DEFAULT_LIMITS, INT64_MAX, Limits, as_integer
from ..tensors.contents import Dimension, dimension_of
from ..tensors.foreign import as_tensor
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_sizes
from .compressed import Slabs
from .fibers import limit
from .sizes import Choices, Sizes, bits, cheapest, choices_of, mapped_sizes, named_formats, sizes_of, usual_formats
from .tables import as_html, as_text, escaped

_OWN = 3  # formats that are listed though only this package reads them
_RANKED = 10  # formats of the fewest bytes that are compressed, or have a measured kind in place of another
_SLICED = "counts do not determine what a slice reads; leave out slices_by"
_UNRANKED = "its formats cost more than these, or exceed the limits"


@dataclass(frozen=True)
class Candidate:
    """A format and its cost.

    Parameters
    ----------
    nbytes, values_nbytes : the bytes of all arrays, and those of the values; 0 where the format refuses the tensor.
    slice_nbytes : the mean number of bytes that a slice reads; None if no dimension was named.
    map : the notation of an index map, or None. `str` gives the notation of the format with its map.
    refused : the reason why the format refuses the tensor, or an empty text.
    compressed_nbytes : the estimated bytes in a compressed file; None if formats are not ranked by these.
    """

    format: Format
    nbytes: int
    values_nbytes: int
    slice_nbytes: float | None
    map: str | None = None
    refused: str = ""
    compressed_nbytes: int | None = None

    def __str__(self) -> str:
        return notation(self.format, self.map)

    @property
    def cost(self) -> tuple[float, int]:
        """The numbers that rank a format: the bytes that a slice reads, if slices are ranked, then all bytes."""
        return self.slice_nbytes or 0, self.nbytes if self.compressed_nbytes is None else self.compressed_nbytes

    @property
    def readers(self) -> str:
        """The programs that read a file in this format."""
        if self.map is not None or not all(level.specified for level in self.format.levels):
            return "only this package"
        return "every reader" if self.format.alias is not None else "readers of custom formats"


@within_memory
class Advice:
    """The sizes of formats for the entries of a tensor, as `advise` returns them.

    Attributes
    ----------
    candidates : the ranked formats, best first.
    own : the formats that only this package reads, and that cost less than the best candidate.
    compared : the usual formats, or those that were passed.
    omitted : why no candidate has a kind that was named, by kind.
    shape, entries, dtype : the sizes of the dimensions, the number of entries, and the type of the values.
    slices_by : the dimension of the slices, or None.

    >>> from binsparse_levels import advise, pack
    >>> advice = advise(pack([[0, 2], [1, 3]], [1.0, 2.0], (50, 40), "CSR"))
    >>> str(advice.best), advice.candidate("CSR").nbytes
    ('COOR', 228)
    """

    def __init__(self, sizes: Sizes, dtype: np.dtype[Any], slabs: Slabs | None = None) -> None:
        self._sizes, self._slabs = sizes, slabs
        self._mapped: dict[IndexMap, Sizes] = {}
        self.shape = sizes.shape
        self.entries = sizes.entries
        self.slices_by = sizes.by
        self.dtype = dtype
        self.candidates: tuple[Candidate, ...] = ()
        self.own: tuple[Candidate, ...] = ()
        self.compared: tuple[Candidate, ...] = ()
        self.omitted: dict[str, str] = {}

    @property
    def counts(self) -> Mapping[tuple[int, ...], int]:
        """The number of distinct coordinates by subset of the dimensions, ascending."""
        counts = {tuple(k for k in range(len(self.shape)) if m >> k & 1): c for m, c in self._sizes.counts.items()}
        return dict(sorted(counts.items(), key=lambda item: (len(item[0]), item[0])))

    @property
    def best(self) -> Format:
        """The format of the first candidate.

        Raises
        ------
        LimitError : no format is within the limits.
        """
        if not self.candidates:
            raise LimitError(Problem("format", "none fits within the limits; pass larger limits"))
        return self.candidates[0].format

    def candidate(self, format: FormatLike) -> Candidate:
        """Compute the cost of a format: the bytes of all arrays that `pack` makes, and those that a slice reads.

        Parameters
        ----------
        format : a notation, with one of the maps that `advise` tries or without a map, or a Format.

        Returns
        -------
        The cost, with `nbytes`.

        Raises
        ------
        FormatError : the size depends on more than counts, or the format does not fit the tensor.
        LimitError : the format exceeds the limits.

        >>> from binsparse_levels import advise
        >>> advise([[0, 2], [1, 3]], (50, 40), slices_by=0).candidate("CSR").slice_nbytes
        4.56
        """
        levels, map = with_map(format)
        sizes = self._sizes if map is None else self._mapped.get(parse_map(map, self.shape))
        if sizes is None:
            what = f"no counts are known through the map {map}; name the format in formats="
            raise FormatError(Problem("format", what))
        shape, by, parsed = sizes.shape, sizes.by, parse_format(levels, len(sizes.shape))
        if parsed.rank != len(shape):
            what = f"{parsed} has {parsed.rank} dimensions, not {len(shape)}; choose another"
            raise FormatError(Problem("format", what))
        read = total = above = 0
        n = 1
        for place in places(parsed.levels, [shape[k] for k in parsed.order]):
            covered = parsed.order[place.depth : place.depth + place.level.rank]
            step = sizes.step(place.level, covered, above, n)
            above |= bits(covered)
            if step is None:
                what = (
                    f"counts do not determine the size of {place.level} in this order; pack it, or use advise(formats=)"
                )
                raise FormatError(Problem("format", what))
            read, total, n = read + step[0], total + step[1], step[2]
            if not sizes.fits(n):
                sizes.limits.hold("dense_bytes", 8 * n, "format", "the size in bytes of what the dense levels make")
        if parsed.padded and not sizes.may_pad:
            what = f"the fill value of the structure does not fit {parsed}; choose a format without padding"
            raise FormatError(Problem("format", what))
        reads, values = sizes.values(n, any(level.padded for level in parsed.levels))
        mean = None if by is None else (read + reads) / max(shape[by], 1)
        return Candidate(parsed, total + values, values, mean, sizes.map)

    def compressed(self, candidate: Candidate) -> int | None:
        """Estimate the bytes of all arrays in a file with the `compression` of `advise`, or else with "small".

        Sixteen slabs with 1 % of the tensor are packed and compressed, or all of at most 32,768 entries.

        Parameters
        ----------
        candidate : a format and its cost.

        Returns
        -------
        The bytes; None without values, for a format that refuses the tensor or the slabs, and for one of much padding.

        >>> from binsparse_levels import advise, testing
        >>> advice = advise(testing.uniform((300, 200), 2000))
        >>> advice.compressed(advice.candidate("CSR")) < advice.candidate("CSR").nbytes
        True
        """
        if self._slabs is None or candidate.refused:
            return None
        return self._slabs.nbytes(str(candidate), candidate.format, candidate.nbytes)

    def _costed(self, candidate: Candidate) -> Candidate:
        """The candidate with its compressed size, if that is ranked."""
        ranks = self._slabs is not None and self._slabs.ranks
        return replace(candidate, compressed_nbytes=self.compressed(candidate)) if ranks else candidate

    def rows(self) -> Iterator[tuple[str, Candidate, float]]:
        """List for each format its rank, its cost, and its size relative to the first candidate.

        The candidates come first, then `own` with the rank "*", then `compared` without a rank. A candidate of the
        same cost as the one above it has the rank "=".

        >>> from binsparse_levels import advise
        >>> [(rank, str(c), ratio) for rank, c, ratio in advise([[0, 2], [1, 3]], (50, 40), count=2).rows()][:3]
        [('1', 'COOR', 1.0), ('2', 'DCSR', 1.375), ('*', 'CVEC through alto', 0.75)]
        """
        ranked = (*self.candidates, *self.own)
        known = {(c.format.canonical(), c.map) for c in ranked}
        others = (c for c in self.compared if c.refused or (c.format.canonical(), c.map) not in known)
        first = next((c.cost[1] for c in (*ranked, *self.compared) if not c.refused), 0)
        for k, candidate in enumerate((*ranked, *others)):
            rank = str(k + 1) if k < len(self.candidates) else "*" if k < len(ranked) else ""
            if 0 < k < len(self.candidates) and candidate.cost == ranked[k - 1].cost:
                rank = "="
            size = candidate.cost[1]
            yield rank, candidate, size / first if first else 1.0 if size == 0 else math.inf

    def _table(self) -> tuple[str, list[list[str]]]:
        """A line about the entries; the head and the rows of the table."""
        shape = " × ".join(map(str, self.shape)) or "scalar"
        table = [["", "format", "bytes", "ratio"]]
        if self.slices_by is not None:
            table[0].append(f"a slice of dimension {self.slices_by}")
        table[0] += ["read by", *([] if self._slabs is None else [f"≈ {self._slabs.compression}"])]
        for number, candidate, ratio in self.rows():
            sizes = ["", ""] if candidate.refused else [f"{candidate.nbytes:,}", f"{ratio:.3f}"]
            table.append([number, str(candidate), *sizes])
            if self.slices_by is not None:
                table[-1].append("" if candidate.slice_nbytes is None else f"{candidate.slice_nbytes:,.0f}")
            table[-1].append(f"refused: {candidate.refused}" if candidate.refused else candidate.readers)
            if self._slabs is not None:
                nbytes = self.compressed(candidate)
                table[-1].append("" if nbytes is None else f"≈{nbytes:,}")
        iso = ", iso" if self._sizes.iso else ""
        bound = limit(math.prod(self.shape), self.entries) / max(self.entries, 1)
        entries = f"{self.entries:,} entries, at least {bound:.3g} bits of coordinates each"
        return "\n".join([f"{shape} {self.dtype}{iso}, {entries}", *map(": ".join, self.omitted.items())]), table

    def __str__(self) -> str:
        title, (head, *rows) = self._table()
        return f"{title}\n{as_text(head, rows)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        title, (head, *rows) = self._table()
        return f"<p>{escaped(title)}</p>{as_html(head, rows)}"


@within_memory
def advise(
    source: Any,
    shape: int | Sequence[int] | None = None,
    dtype: npt.DTypeLike = np.float64,
    *,
    slices_by: Dimension | None = None,
    count: int = 10,
    kinds: str | Iterable[str] | None = None,
    formats: FormatLike | Iterable[FormatLike] | Mapping[str, FormatLike] | None = None,
    compression: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Advice:
    """Rank formats by size for the entries of a tensor, without packing any.

    By default, the formats that other programs read are ranked. Up to three formats that only this package reads follow
    if they cost less than the best of these. Among them is the best format through each of these index maps: blocks of
    2, 4 and 8 in each dimension, ALTO, and the diagonals of a matrix. Maps are not tried beyond 8 dimensions, nor with
    `slices_by` or `kinds`. `convert(str(candidate))` stores a tensor so.

    Sizes are exact. A tensor with wider integers than it needs is the exception: they are counted in every format, and
    a conversion to another order does not keep them. Every entry counts, also stored zeros and padding; call
    `drop_fill` first to leave them out. At rank 3, an entry takes eight words of memory. One of several formats
    is listed if they differ only in the order inside a level, or among neighbouring dense levels. Ties go to fewer
    levels. Beyond 8 dimensions, only formats in the order of the tensor are ranked; `convert` it to try another.

    With `slices_by`, a slice reads all of the levels above the one that covers the dimension, the bytes that
    `Level.sliced` returns for that level, and its share of the levels and values below. The ranking takes the mean of
    all slices.

    Parameters
    ----------
    source : a tensor, an array of another library but numpy, as `as_tensor` takes it, a path of any file that `read`
        takes, or coordinates as `pack` takes them. A map is removed first.
    shape, dtype : for coordinates: the sizes of the dimensions, and the type of the values.
    slices_by : rank by the bytes that a slice along this dimension, a number or a name, reads, then by size.
    count : the number of candidates.
    kinds : the level kinds to rank, such as ("dense", "sparse", "mask"), whether other programs read them or not. A
        kind whose size depends on more than counts, such as "run", is measured: the tensor is converted to the kind
        alone, and to up to ten of the best formats of the other kinds with it in place of one level. The result lists
        kinds that are in no candidate as omitted, with the reason. Kinds with other parameters are compared if
        `formats` names them.
    formats : one or several formats to compare with, instead of the usual ones, such as "dense, sparse, dense(2)
        through 0/4, 1/4, 0%4, 1%4". The tensor is converted where counts do not determine the size. A format that
        refuses the tensor is listed with its reason.
    compression : rank by the estimated bytes in a file with this compression of `write`; "gzip" as in HDF5. By default,
        and with "none", the exact bytes in memory rank, and the last column of the table has estimates for "small".
    limits : formats beyond these limits are left out.

    Returns
    -------
    The ranking, which prints as a table.

    Raises
    ------
    IndexError, FormatError, ArrayError, OptionError : the arguments do not fit each other.

    >>> from binsparse_levels import advise
    >>> str(advise([[0, 2], [1, 3]], (50, 40)).best)
    'COOR'
    >>> str(advise(pack_dense(np.ones((50, 40)), "CSR"), kinds=["sparse", "run"]).best)
    'run, run'
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
    most = as_integer(count)
    if most is None:
        raise OptionError(Problem("count", f"expected an integer, got {count!r:.40}; it is the number of formats"))
    named = [kinds] if isinstance(kinds, str) else kinds
    standard = [name for name, kind in LEVELS.items() if kind.specified]
    if compression is not None and not has_values:
        raise OptionError(Problem("compression", "coordinates have no values to compress; pass a tensor"))
    slabs = Slabs(tensor, compression) if has_values else None
    advice = Advice(sizes_of(tensor, has_values, by, limits), tensor.dtype, slabs)
    chosen = list(standard if named is None else named)
    choices = choices_of(tensor.ndim, chosen, advice.omitted)
    found = _ranked(advice, tensor, advice._sizes, choices, most if compression is None else max(most, _RANKED))
    if named is not None:
        smallest = [c.format for c in found[:_RANKED]]
        found += map(advice._costed, _measured(tensor, choices, smallest, by is not None))
    advice.candidates = tuple(heapq.nsmallest(most, (c for c in found if not c.refused), key=lambda c: c.cost))
    for name in chosen if named is not None else ():
        having = [c for c in found if LEVELS[name] in map(type, c.format.levels)]
        if not {*having} & {*advice.candidates}:
            advice.omitted.setdefault(name, next((c.refused for c in having if c.refused), _UNRANKED))
    if named is None and advice.candidates:
        for mapped in mapped_sizes(tensor, advice._sizes) if by is None else ():
            advice._mapped[parse_map(str(mapped.map), tensor.shape)] = mapped
        best = advice.candidates[0].cost
        found = _ranked(advice, tensor, advice._sizes, choices_of(tensor.ndim, LEVELS), _OWN)
        for mapped in advice._mapped.values():
            found += _ranked(advice, tensor, mapped, choices_of(len(mapped.shape), LEVELS), 1)
        found = heapq.nsmallest(min(most, _OWN), (c for c in found if not c.refused), key=lambda c: c.cost)
        advice.own = tuple(c for c in found if c.cost < best)
    if formats is not None:
        advice.compared = tuple(advice._costed(_compared(advice, tensor, x)) for _, x in named_formats(formats))
        return advice
    for usual in usual_formats(tensor):
        with contextlib.suppress(FormatError, LimitError):
            advice.compared += (advice._costed(advice.candidate(usual)),)
    return advice


@within_memory
def size_of(format: FormatLike, shape: int | Sequence[int], counts: Any, dtype: npt.DTypeLike = np.float64) -> int:
    """Compute the bytes of all arrays of a tensor that does not exist.

    Parameters
    ----------
    format, shape, dtype : a notation, also with a map, or a Format; sizes of the dimensions; the type of the values.
    counts : the number of entries; or numbers of distinct coordinates by dimensions of the stored tensor, as in
        `Advice.counts`: of all dimensions, and of those down to each level whose children they determine.

    Raises
    ------
    FormatError : a number is missing, or the size depends on more than counts.

    >>> size_of("CSR", (10**9, 10**9), 10**12), size_of("CSF", (9, 9, 9), {(0,): 5, (0, 1): 7, (0, 1, 2): 8})
    (16008000000008, 200)
    """
    (levels, map), sizes = with_map(format), checked_sizes(shape)
    stored = sizes if map is None else parse_map(map, sizes).stored_shape
    every = tuple(range(len(stored)))
    given = counts if isinstance(counts, Mapping) else {every: counts}
    numbers = {bits(k): n for k, x in given.items() if (n := as_integer(x)) is not None}
    if len(numbers) < len(given) or (entries := numbers.get(bits(every))) is None:
        raise OptionError(Problem("counts", f"expected integers, one for all dimensions, got {counts!r:.60}"))
    width, limits = index_dtype(stored, entries).itemsize, Limits(dense_bytes=INT64_MAX)
    numbers, itemsize = numbers | {0: min(entries, 1)}, np.dtype(dtype).itemsize
    known = Sizes(stored, entries, numbers, None, every, width, itemsize, False, False, True, limits, map)
    return Advice(known, np.dtype(dtype)).candidate(levels).nbytes


def _ranked(advice: Advice, tensor: Tensor, sizes: Sizes, choices: Choices, count: int) -> list[Candidate]:
    """The cheapest formats by counts, among them those whose kinds refuse the entries."""
    found = []
    for format in cheapest(sizes, choices, count):
        refuses = any(level.refuses for level in format.levels)
        made = _measure(tensor, format, sizes.map) if refuses else None
        found.append(made if made and made.refused else advice._costed(advice.candidate(notation(format, sizes.map))))
    return found


def _measured(tensor: Tensor, choices: Choices, ranked: Sequence[Format], sliced: bool) -> list[Candidate]:
    """Formats with kinds whose size depends on more than counts: alone, and in place of one level of ranked formats."""
    rank, order = tensor.ndim, tensor.format.order
    tried: list[Format] = []
    for level in itertools.chain.from_iterable(choices.values()):
        dims = (4,) * level.rank
        if None not in (level.children(dims, 2, 3), level.nbytes(dims, 2, 3, root=False, itemsize=4)):
            continue
        tried += [in_order((level,) * (rank // level.rank), order)] if rank % level.rank == 0 else []
        for format in ranked:
            places = [k for k, x in enumerate(format.levels) if x.rank == level.rank]
            tried += [replace(format, levels=(*format.levels[:k], level, *format.levels[k + 1 :])) for k in places]
    measured = [_measure(tensor, format.canonical(), None) for format in dict.fromkeys(tried)]
    return [replace(c, refused=c.refused or _SLICED) for c in measured] if sliced else measured


def _compared(advice: Advice, tensor: Tensor, format: FormatLike) -> Candidate:
    """The size of a format, from counts, or else by converting the tensor."""
    levels, map = with_map(format)
    parsed = parse_format(levels, len(advice.shape) if map is None else len(parse_map(map, advice.shape).groups))
    with contextlib.suppress(FormatError, LimitError):
        if not any(level.refuses for level in parsed.levels):
            return advice.candidate(format)
    return _measure(tensor, parsed, map)


def _measure(tensor: Tensor, format: Format, map: str | None) -> Candidate:
    """The size of a format by converting the tensor."""
    try:
        stored = tensor.convert(format, map=map).stored
    except (FormatError, LimitError) as error:
        return Candidate(format, 0, 0, None, map, str(error.problems[0]))
    indices = sum(array.nbytes for array in stored.arrays.values())
    return Candidate(format, stored.nbytes, stored.nbytes - indices, None, map)
