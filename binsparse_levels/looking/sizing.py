"""The size of a tensor that does not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engine.tree import index_dtype
from ..errors import OptionError, Problem, within_memory
from ..formats.format import FormatLike, with_map
from ..formats.index_map import parse_map
from ..limits import INT64_MAX, Limits, as_integer
from ..tensors.validation import checked_sizes
from .advice import Advice
from .sizes import Sizes, bits


@within_memory
def size_of(format: FormatLike, shape: int | Sequence[int], counts: Any, dtype: npt.DTypeLike = np.float64) -> int:
    """Compute the bytes of all arrays of a tensor that does not exist.

    Parameters
    ----------
    format : str, Format or mapping
        A notation, also with a map, or a Format.
    shape : int or sequence of int
        Sizes of the dimensions.
    counts : int or mapping
        The number of entries; or numbers of distinct coordinates by dimensions of the stored tensor, as in
        `Advice.counts`: of all dimensions, and of those down to each level whose children they determine.
    dtype : dtype_like, default np.float64
        Type of the values.

    Returns
    -------
    int
        Number of bytes.

    Raises
    ------
    FormatError
        A number is missing, or the size depends on more than counts.

    See Also
    --------
    advise : Rank formats by size.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.size_of("CSR", (10**9, 10**9), 10**12), bl.size_of("CSF", (9, 9, 9), {(0,): 5, (0, 1): 7, (0, 1, 2): 8})
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
