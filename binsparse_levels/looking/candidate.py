"""A format with its cost, and the costs of formats that are measured by converting the tensor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import FormatError, LimitError
from ..formats.format import Format, in_order, notation
from ..tensors.tensor import Tensor
from .sizes import Choices

_SLICED = "counts do not determine what a slice reads; leave out slices_by"


@dataclass(frozen=True)
class Candidate:
    """A format and its cost.

    Parameters
    ----------
    nbytes, values_nbytes : int
        The bytes of all arrays, and those of the values; 0 where the format refuses the tensor.
    slice_nbytes : float
        The mean number of bytes that a slice reads; None if no dimension was named.
    map : str, optional
        The notation of an index map, or None. `str` gives the notation of the format with its map.
    refused : str, default ''
        The reason why the format refuses the tensor, or an empty text.
    compressed_nbytes : int, optional
        The estimated bytes in a compressed file; None if formats are not ranked by these.
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


def measured(tensor: Tensor, choices: Choices, ranked: Sequence[Format], sliced: bool) -> list[Candidate]:
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
    measured = [measure(tensor, format.canonical(), None) for format in dict.fromkeys(tried)]
    return [replace(c, refused=c.refused or _SLICED) for c in measured] if sliced else measured


def measure(tensor: Tensor, format: Format, map: str | None) -> Candidate:
    """The size of a format by converting the tensor."""
    try:
        stored = tensor.convert(format, map=map).stored
    except (FormatError, LimitError) as error:
        return Candidate(format, 0, 0, None, map, str(error.problems[0]))
    indices = sum(array.nbytes for array in stored.arrays.values())
    return Candidate(format, stored.nbytes, stored.nbytes - indices, None, map)
