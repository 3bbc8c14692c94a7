"""What the tests draw: entries of tensors of any rank, type and format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from binsparse_levels import Dense, Format, Sparse, testing

INDEX_TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i4", ">u8"]
VALUE_TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Coordinates in any order, some perhaps given twice, with values."""

    format: Format
    shape: tuple[int, ...]
    coords: list[np.ndarray]
    values: np.ndarray

    @property
    def rows(self):
        """Coordinates and values as Python and numpy scalars."""
        return [x.tolist() for x in self.coords], list(self.values)


@st.composite
def cases(draw, *, unique=True, kinds=(Dense, Sparse), max_rank=4, dtypes=VALUE_TYPES):
    format = draw(testing.formats(max_rank=max_rank, kinds=kinds))
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=format.rank, max_size=format.rank)))
    places = [tuple(place) for place in np.ndindex(*shape)]
    chosen = draw(st.lists(st.sampled_from(places), unique=unique, max_size=15)) if places else []
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    numbers = draw(st.lists(st.integers(-100, 100), min_size=len(chosen), max_size=len(chosen)))
    index_type = draw(st.sampled_from(INDEX_TYPES))
    with np.errstate(all="ignore"):
        values = np.array(numbers, np.int64).astype(dtype)
    table = np.array(chosen, np.int64).reshape(len(chosen), format.rank).astype(index_type)
    return Case(format, shape, [table[:, k] for k in range(format.rank)], values)
