"""Hypothesis strategies of the tests: entries of tensors of any rank, type and format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from binsparse_levels import Dense, Format, Sparse, pack_dense, testing
from binsparse_levels.levels import LEVELS

INDEX_TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", ">i4", ">u8"]
VALUE_TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Coordinates in any order, possibly repeated, with values."""

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
    cells = list(np.ndindex(*shape))
    chosen = draw(st.lists(st.sampled_from(cells), unique=unique, max_size=15)) if cells else []
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    numbers = draw(st.lists(st.integers(-100, 100), min_size=len(chosen), max_size=len(chosen)))
    index_type = draw(st.sampled_from(INDEX_TYPES))
    with np.errstate(all="ignore"):
        values = np.array(numbers, np.int64).astype(dtype)
    table = np.array(chosen, np.int64).reshape(len(chosen), format.rank).astype(index_type)
    return Case(format, shape, [table[:, k] for k in range(format.rank)], values)


class Index:
    """An integer of another type than those of Python and numpy."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


INTEGERS = [int, np.int64, np.int8, np.array, Index]  # types of integer arguments


@st.composite
def keys(draw, shape, *, arrays=True):
    """An index that numpy accepts for an array of that shape, with an ellipsis anywhere, perhaps for no dimension."""
    with_array = draw(st.sets(st.sampled_from(range(len(shape))))) if arrays and shape else set()
    length = draw(st.integers(0, 4))  # of the arrays, if there are several
    several = len(with_array) > 1 or (len(with_array) == 1 and draw(st.booleans()))
    items = []
    for k, size in enumerate(shape):
        if k in with_array:
            if several:
                index = st.integers(-size, size - 1) if size else st.nothing()
                length = length if size else 0
                wide = draw(st.sampled_from([(length,), (1, length), (2, 1), (1,), ()])) if size else (length,)
                made = draw(st.lists(index, min_size=int(np.prod(wide)), max_size=int(np.prod(wide))))
                items.append(np.array(made, np.int64).reshape(wide))
            elif draw(st.booleans()):
                made = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
                items.append(made.tolist() if size and draw(st.booleans()) else made)
            else:
                index = st.integers(-size, size - 1) if size else st.nothing()
                made = draw(st.lists(index, max_size=6)) if size else []
                kind = draw(st.sampled_from([list, np.int64, np.int8, *([np.uint64] * all(x >= 0 for x in made))]))
                items.append(made if kind is list else np.array(made, kind))
            continue
        ends = st.none() | st.integers(-size - 2, size + 2)
        step = st.sampled_from([None, 1, 2, 3, -1, np.int64(-2)])
        sliced = st.builds(slice, ends, ends, step)
        whole = st.builds(lambda make, x: make(x), st.sampled_from(INTEGERS), st.integers(-size, size - 1))
        items.append(draw(sliced | whole if size and draw(st.booleans()) else sliced))
    if draw(st.booleans()):
        begin = draw(st.integers(0, len(items)))
        items[begin : draw(st.sampled_from([begin, *range(begin, len(items) + 1)]))] = [Ellipsis]
    else:
        while items and isinstance(items[-1], slice) and items[-1] == slice(None, None, None):
            items.pop()
    try:
        np.broadcast_to(False, shape)[tuple(items)]
    except IndexError:  # arrays that do not fit together
        assume(False)
    return tuple(items)


@st.composite
def any_tensors(draw, **options):
    return draw(
        testing.tensors(kinds=tuple(LEVELS.values()), dtypes=("bool", "int16", "float64", "complex64"), **options)
    )


@st.composite
def masks(draw, shape):
    """A mask of a shape, or none, and the cells that it has."""
    size = int(np.prod(shape))
    cells = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool).reshape(shape)
    kind = draw(st.sampled_from(["none", "array", "tensor", "numbers", "complement"]))
    if kind == "none":
        return None, np.ones(shape, bool)
    if kind == "array":
        return cells, cells
    tensor = pack_dense(cells, f"sparse({len(shape)})" if shape else "element", pattern=np.ones(shape, bool))
    if kind == "complement":
        return ~tensor, ~cells
    return tensor.astype(np.float32) if kind == "numbers" else tensor, cells
