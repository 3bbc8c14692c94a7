"""Advice on formats: the size of every format to the byte, without packing any."""

from __future__ import annotations

import contextlib
import heapq
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, LimitError, OptionError, Problem, within_memory
from ..formats.format import Format, FormatLike, coordinates, notation, parse_format, with_map
from ..formats.index_map import IndexMap, parse_map
from ..io import read
from ..levels import LEVELS, places
from ..limits import DEFAULT_LIMITS, Limits, as_integer
from ..tensors.contents import Dimension, dimension_of
from ..tensors.foreign import as_tensor
from ..tensors.packing import pack
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_sizes
from .candidate import Candidate as Candidate
from .candidate import measure, measured
from .compressed import Slabs
from .fibers import limit
from .sizes import Choices, Sizes, bits, cheapest, choices_of, mapped_sizes, named_formats, sizes_of, usual_formats
from .tables import as_html, as_text, escaped

_OWN = 3  # formats that are listed though only this package reads them
_RANKED = 10  # formats of the fewest bytes that are compressed, or have a measured kind in place of another
_UNRANKED = "its formats cost more than these, or exceed the limits"


@within_memory
class Advice:
    """The sizes of formats for the entries of a tensor, as `advise` returns them.

    Attributes
    ----------
    candidates : tuple of Candidate
        The ranked formats, best first.
    own : tuple of Candidate
        The formats that only this package reads, and that cost less than the best candidate.
    compared : tuple of Candidate
        The usual formats, or those that were passed.
    omitted : dict of str to str
        Why no candidate has a kind that was named, by kind.
    shape : tuple of int
        The sizes of the dimensions, the number of entries, and the type of the values.
    entries : int
        The sizes of the dimensions, the number of entries, and the type of the values.
    dtype : dtype_like
        The sizes of the dimensions, the number of entries, and the type of the values.
    slices_by : int or None
        The dimension of the slices, or None.

    See Also
    --------
    advise : Rank formats by size.
    size_of : Compute the bytes of all arrays of a tensor that does not exist.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> advice = bl.advise(bl.pack([[0, 2], [1, 3]], [1.0, 2.0], (50, 40), "CSR"))
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
        LimitError
            No format is within the limits.
        """
        if not self.candidates:
            raise LimitError(Problem("format", "none fits within the limits; pass larger limits"))
        return self.candidates[0].format

    def candidate(self, format: FormatLike) -> Candidate:
        """Compute the cost of a format: the bytes of all arrays that `pack` makes, and those that a slice reads.

        Parameters
        ----------
        format : str, Format or mapping
            A notation, with one of the maps that `advise` tries or without a map, or a Format.

        Returns
        -------
        Candidate
            The cost, with `nbytes`.

        Raises
        ------
        FormatError
            The size depends on more than counts, or the format does not fit the tensor.
        LimitError
            The format exceeds the limits.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.advise([[0, 2], [1, 3]], (50, 40), slices_by=0).candidate("CSR").slice_nbytes
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
        candidate : Candidate
            A format and its cost.

        Returns
        -------
        int
            The bytes; None without values, for a format that refuses the tensor or the slabs, and for one of much
            padding.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> from binsparse_levels import testing
        >>> advice = bl.advise(testing.uniform((300, 200), 2000))
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
        """List each format with its rank and its size relative to the first candidate.

        The candidates come first, then `own` with the rank "*", then `compared` without a rank. A candidate of the
        same cost as the one above it has the rank "=".

        Yields
        ------
        rank : str
            Place of the format.
        candidate : Candidate
            Format and its cost.
        ratio : float
            Size relative to the first candidate.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> [(rank, str(c), ratio) for rank, c, ratio in bl.advise([[0, 2], [1, 3]], (50, 40), count=2).rows()][:3]
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
    `slices_by` or `kinds`. `convert(str(candidate))` stores a
    tensor in that format.

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
    source : object
        A tensor, an array that `as_tensor` accepts, a path that `read` accepts, or coordinates as for
        `pack`. A map is removed first.
    shape : int or sequence of int, optional
        For coordinates: the sizes of the dimensions.
    dtype : dtype_like, default np.float64
        For coordinates: the type of the values.
    slices_by : int or str, optional
        Rank by the bytes that a slice along this dimension, a number or a name, reads, then by size.
    count : int, default 10
        The number of candidates.
    kinds : str or iterable of str, optional
        The level kinds to rank, such as ("dense", "sparse", "mask"), whether other programs read them or not. A kind
        whose size depends on more than counts, such as "run", is measured: the tensor is converted to the kind alone,
        and to up to ten of the best formats of the other kinds with it in place of one level. The result lists kinds
        that are in no candidate as omitted, with the reason. Kinds with other parameters are compared if `formats`
        names them.
    formats : str, Format, or several of these, optional
        One or several formats to compare with, instead of the usual ones, such as "dense, sparse, dense(2) through
        0/4, 1/4, 0%4, 1%4". The tensor is converted where counts do not determine the size. A format that refuses the
        tensor is listed with its reason.
    compression : str, optional
        Rank by the estimated bytes in a file with this compression of `write`; "gzip" as in HDF5. By default, and with
        "none", the exact bytes in memory rank, and the last column of the table has estimates for "small".
    limits : Limits, optional
        Formats beyond these limits are left out.

    Returns
    -------
    Advice
        The ranking, which prints as a table.

    Raises
    ------
    IndexError, FormatError, ArrayError, OptionError
        The arguments do not fit each other.

    See Also
    --------
    size_of : Compute the bytes of all arrays of a tensor that does not exist.
    sweep : Store tensors in formats, and measure bits and times.
    levels_of : Compute statistics of the levels of the stored tensor.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> str(bl.advise([[0, 2], [1, 3]], (50, 40)).best)
    'COOR'
    >>> str(bl.advise(bl.pack_dense(np.ones((50, 40)), "CSR"), kinds=["sparse", "run"]).best)
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
        found += map(advice._costed, measured(tensor, choices, smallest, by is not None))
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


def _ranked(advice: Advice, tensor: Tensor, sizes: Sizes, choices: Choices, count: int) -> list[Candidate]:
    """The cheapest formats by counts, among them those whose kinds refuse the entries."""
    found = []
    for format in cheapest(sizes, choices, count):
        refuses = any(level.refuses for level in format.levels)
        made = measure(tensor, format, sizes.map) if refuses else None
        found.append(made if made and made.refused else advice._costed(advice.candidate(notation(format, sizes.map))))
    return found


def _compared(advice: Advice, tensor: Tensor, format: FormatLike) -> Candidate:
    """The size of a format, from counts, or else by converting the tensor."""
    levels, map = with_map(format)
    parsed = parse_format(levels, len(advice.shape) if map is None else len(parse_map(map, advice.shape).groups))
    with contextlib.suppress(FormatError, LimitError):
        if not any(level.refuses for level in parsed.levels):
            return advice.candidate(format)
    return measure(tensor, parsed, map)
