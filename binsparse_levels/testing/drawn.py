"""Hypothesis strategies: formats, index maps, tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import levels
from ..errors import FormatError, needing
from ..formats.digits import extent
from ..formats.format import ALIASES, Format
from ..formats.index_map import Digit, IndexMap
from ..formats.structure import STRUCTURES, in_triangle, structure_problems
from ..levels import LEVELS, Level
from ..levels.positions import Array
from ..tensors.packing import pack
from ..tensors.tensor import Tensor

with needing("test"):
    from hypothesis import assume
    from hypothesis import strategies as st

PLAIN = tuple(kind for kind in levels.OURS if kind.specified)  # the kinds of the specification
OURS = (*PLAIN, *(kind for kind in levels.OURS if not kind.specified))


@st.composite
def formats(
    draw: st.DrawFn, *, min_rank: int = 0, max_rank: int = 4, kinds: Sequence[type[Level]] | None = None
) -> Format:
    """Formats of chains of these kinds, with any transpose. By default, all registered kinds that accept any tensor."""
    known = list(kinds or (kind for kind in LEVELS.values() if not kind.refuses))
    flat = [kind for kind in known if kind.min_rank == 0]
    rank = draw(st.integers(min_rank, max_rank))
    chain: list[Level] = []
    while (left := rank - sum(level.rank for level in chain)) > 0:
        kind = draw(st.sampled_from([k for k in known if k.min_rank <= left]))
        chain.append(kind(draw(st.integers(max(kind.min_rank, 1), min(kind.max_rank, left)))))
    for kind in draw(st.lists(st.sampled_from(flat), max_size=2)) if flat else ():  # levels of rank 0, at any depth
        chain.insert(draw(st.integers(0, len(chain))), kind(0))
    transpose = draw(st.none() | st.permutations(range(rank)).map(tuple))
    return Format(tuple(chain), transpose)


@st.composite
def maps(draw: st.DrawFn, shape: Sequence[int], *, max_digits: int = 3, max_radix: int = 4) -> IndexMap:
    """Index maps of a tensor of this shape, with any digits of its dimensions in any order and grouping.

    Some are those of ALTO and BLCO. In some, a dimension is stored as the difference from another.
    """
    name = draw(st.sampled_from(["any", "any", "any", "alto", "blco"]))
    if name != "any":
        return IndexMap.alto(shape) if name == "alto" else IndexMap.blco(shape, 2)
    changed = draw(st.integers(-1, len(shape) - 1)) if len(shape) > 1 else -1
    other = draw(st.sampled_from([k for k in range(len(shape)) if k != changed])) if changed >= 0 else -1
    digits = []
    for k in range(len(shape)):
        stride, less = 1, other if k == changed else -1
        for radix in draw(st.lists(st.integers(1, max_radix), max_size=max_digits - 1)):
            digits.append(Digit(k, stride, radix, less))
            stride *= radix
        digits.append(Digit(k, stride, -(-extent(shape, k, less) // stride), less))
    order = draw(st.permutations(digits))
    groups: list[list[Digit]] = []
    for digit in order:
        if not groups or draw(st.booleans()):
            groups.append([])
        groups[-1].append(digit)
    return IndexMap(tuple(shape), tuple(tuple(group) for group in groups))


VALUE_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip


@st.composite
def tensors(
    draw: st.DrawFn,
    *,
    max_rank: int = 4,
    max_size: int = 4,
    dtypes: Sequence[str] = VALUE_TYPES,
    kinds: Sequence[type[Level]] = OURS,
    structures: bool = True,
) -> Tensor:
    """Tensors that Binsparse can represent, and tensors of other level kinds unless `kinds` excludes them.

    Ranks and sizes start at 0. Formats are predefined or custom, with any transpose. Values have any data type, iso or
    not. Some tensors have a fill value or a structure.
    """
    format = draw(
        st.sampled_from([f for f in ALIASES.values() if f.rank <= max_rank]) | formats(max_rank=max_rank, kinds=kinds)
    )
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(0, max_size), min_size=format.rank, max_size=format.rank)))
    structure = None
    if structures and format.rank == 2 and shape[0] == shape[1] and draw(st.booleans()):
        possible = [name for name in STRUCTURES if not list(structure_problems(name, shape, dtype))]
        structure = draw(st.none() | st.sampled_from(possible))
    cells = list(np.ndindex(*shape))
    if structure is not None:
        cells = [cell for cell in cells if in_triangle(structure, [np.array(x) for x in cell])]
        if not structure.startswith("symmetric"):  # a diagonal must equal its mirror image
            cells = [cell for cell in cells if cell[0] != cell[1]]
    chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=12)) if cells else []
    fill = draw(st.none() | _scalars(dtype)) if structure is None else None
    table = np.array(chosen, np.int64).reshape(len(chosen), len(shape))
    values: Any = draw(_scalars(dtype)) if draw(st.booleans()) else draw(_arrays(dtype, len(chosen)))
    if not format.levels and np.ndim(values) and not chosen:
        values = draw(_arrays(dtype, 1))
    if not shape and np.ndim(values):
        values = values[:1]
    try:
        return pack(table.T, values, shape, format, fill_value=fill, structure=structure)
    except FormatError:  # a kind may refuse a tensor
        assume(False)
        raise


@st.composite
def _arrays(draw: st.DrawFn, dtype: np.dtype[Any], length: int) -> Array:
    return np.array(draw(st.lists(_scalars(dtype), min_size=length, max_size=length)), dtype)


@st.composite
def _scalars(draw: st.DrawFn, dtype: np.dtype[Any]) -> Any:
    """A scalar of the type: small numbers, the ends of its range, NaN, infinity, negative zero."""
    if dtype.kind in "iu":
        ends = [int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)]
        return dtype.type(draw(st.integers(0, 5) | st.sampled_from(ends)))
    if dtype.kind == "b":
        return np.bool_(draw(st.booleans()))
    parts = st.integers(-5, 5) | st.sampled_from([0.5, -0.0, np.nan, np.inf])
    return dtype.type(draw(parts) if dtype.kind == "f" else complex(draw(parts), draw(parts)))
