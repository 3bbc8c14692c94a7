"""The laws of tensors and of files: loops, walks with another tensor, indices; readers agree, also of damaged files."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..building.sources import Tensors
from ..compute.cursors import is_walked
from ..compute.merging import merged
from ..compute.reducing import reduce
from ..errors import BinsparseError, FormatError, needing
from ..formats.format import Format, coordinates
from ..formats.structure import in_triangle
from ..io import append, concatenate, open, read, write
from ..levels import Dense, Level, Sparse
from ..levels.positions import Array
from ..tensors.packing import pack
from ..tensors.tensor import Tensor, inside

with needing("test"):
    from hypothesis import assume
    from hypothesis import strategies as st


def check_same(again: Tensor, tensor: Tensor) -> None:
    """Assert that a container returned the tensor that was written.

    Values are equal bit for bit, and so are the stored entries, fill value, format, types, structure and attributes.
    """
    assert again.equals(tensor), "the entries are others"
    assert again.shape == tensor.shape, "the shape is another"
    assert again.dtype == tensor.dtype, "the type of the values is another"
    assert again.format.canonical() == tensor.format.canonical(), "the format is another"
    assert again.structure == tensor.structure, "the structure is another"
    assert again.iso == (tensor.iso and len(tensor.values) > 0), "one value for all has become several, or the reverse"
    assert again.attributes == tensor.attributes, "the attributes are others"
    assert again.descriptor_attributes == tensor.descriptor_attributes, "the attributes of the descriptor are others"
    types = [{name: array.dtype for name, array in x.arrays.items()} for x in (again, tensor)]
    assert types[0] == types[1], "the arrays, or their types, are others"
    assert again.values.tobytes() == tensor.values.tobytes(), "the values differ in their bits"


def damaged(stored: Mapping[str, Any], *, most: int = 4) -> Iterator[dict[str, Any]]:
    """Copies of a mapping that `write` filled, each with an array of another length, or with a changed item.

    most: the number of changed items of each array, including the first and the last.
    """
    for name, array in stored.items():
        if not isinstance(array, np.ndarray):
            continue
        for changed in (array[:-1], array[:0], np.append(array, array[-1:]), np.append(array, array.dtype.type(0))):
            if len(changed) != len(array):
                yield {**stored, name: changed}
        chosen = sorted({*range(len(array))[:: len(array) // most + 1], *range(len(array))[-1:]})
        for k in chosen if array.dtype.kind in "biu" and name not in ("values", "fill_value") else ():
            for item in _others(array[k]):
                changed = array.copy()
                changed[k] = item
                yield {**stored, name: changed}


def _others(item: Any) -> list[Any]:
    """Other numbers of the same type: neighbours, small and large ones, the ends of the type."""
    ends = np.iinfo(np.uint8 if item.dtype == bool else item.dtype)
    numbers = {int(item) - 1, int(item) + 1, -1, 0, 3, 2**20, int(ends.max), int(ends.min)} - {int(item)}
    return [item.dtype.type(x) for x in sorted(numbers) if ends.min <= x <= ends.max]


def check_stored(stored: Mapping[str, Any]) -> bool:
    """Assert law 8 for a mapping that may be damaged. Returns True if `read` accepts it.

    If `read` accepts it, all readers agree, including `open` and its views. Else see `check_refused`.
    """
    try:
        tensor: Any = read(stored)
    except BinsparseError:
        check_refused(stored)
        return False
    check_agreement(tensor)
    assert read(_written(tensor)).equals(tensor), "read gives back another tensor than write was given"
    opened = open(stored)
    dense = tensor.to_dense()
    for key in keys_of(tensor.shape):
        assert _equal(_dense(opened[key]), dense[key]), f"[{key}] of a file is wrong; see part and above"
    assert opened.load().equals(tensor), "load gives another tensor than read"
    coords, values = tensor.unpack()
    whole = list(zip(rows_of(coords, len(values)), map(repr, values), strict=True))
    inside = in_triangle(tensor.structure, coords) if tensor.structure else np.ones(len(values), bool)
    wanted = sorted(itertools.compress(whole, inside))
    assert sorted(_in_parts(stored)) == wanted, "a file that is read in parts has other entries; see above"
    return True


def _in_parts(stored: Mapping[str, Any]) -> list[tuple[tuple[int, ...], str]]:
    """The coordinates of all entries and their values as strings, read and checked two entries at a time."""
    entries, rows = Tensors([("stored", open(stored))], 2), list[tuple[tuple[int, ...], str]]()
    for number in range(len(entries)):
        coords, values = entries.read(number)
        assert len(values) <= 2, "a part has more entries than were asked for"
        rows += zip(rows_of(coords, len(values)), map(repr, values), strict=True)
    return rows


def check_refused(stored: Mapping[str, Any]) -> None:
    """Assert that `open` refuses the mapping when all of it is read, and that views raise only BinsparseError."""
    try:
        opened = open(stored)
    except BinsparseError:
        return
    for key in keys_of(opened.shape):
        with contextlib.suppress(BinsparseError):
            _dense(opened[key])
    for whole in (opened.load, opened.to_dense, opened.unpack, lambda: _in_parts(stored)):
        try:
            whole()
        except BinsparseError:
            continue
        raise AssertionError(f"{whole} accepts a mapping that read refuses")


def check_agreement(tensor: Tensor) -> None:
    """Assert that all readers of a tensor list the same entries."""
    whole = tensor.expand_structure()
    coords, values = whole.unpack()
    dense = np.full(tensor.shape, inside(tensor).pad, tensor.dtype)
    rows = rows_of(coords, len(values))
    for row, value in zip(rows, values, strict=True):
        dense[row] = value
    assert len(set(rows)) == len(rows), "unpack lists a coordinate twice"
    assert len(rows) == whole.number_of_stored_values, "unpack lists another number of entries; see count"
    assert _equal(tensor.to_dense(), dense), "to_dense differs from unpack"
    assert _equal(tensor.convert(coordinates(tensor.ndim)).to_dense(), dense), "a converted tensor differs from unpack"
    if tensor.ndim:
        assert _equal(whole.values[whole.locate(coords)], values), "locate finds other values than unpack"
        everywhere = np.array(list(np.ndindex(tensor.shape)), np.int64).reshape(-1, tensor.ndim).T
        found = whole.locate(list(everywhere)) >= 0
        assert np.count_nonzero(found) == len(rows), "locate finds what unpack does not list, or the reverse"
        assert _equal(tensor[tuple(everywhere)], dense.ravel()), "an index by arrays differs from unpack"
    for key in keys_of(tensor.shape):
        assert _equal(_dense(tensor[key]), dense[key]), f"[{key}] differs from unpack; see expand"


def _equal(a: Any, b: Any) -> bool:
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc")


def _dense(selected: Any) -> Any:
    return selected.to_dense() if isinstance(selected, Tensor) else selected


def keys_of(shape: Sequence[int]) -> Iterator[Any]:
    """Keys of single values, of some coordinates, of slices with a step, of an array, and of nothing."""
    if all(shape):
        yield from {(0,) * len(shape), tuple(size - 1 for size in shape), tuple(size // 2 for size in shape)}
    for k, size in enumerate(shape):
        slices = slice(0, 0), slice(1, None), slice(None, None, 2), slice(None, None, -1)
        some = sorted({x for x in (0, 1, 2, 3, size // 2, size - 1) if 0 <= x < size})
        for item in (*some, *slices, np.array(some, np.int64)[::-1]):
            yield (*[slice(None)] * k, item, ...)


def rows_of(coords: Sequence[Array], count: int) -> list[tuple[int, ...]]:
    """The coordinates of `count` entries, as a tuple for each."""
    return list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * count


# The laws of a level kind within tensors


@st.composite
def tensors_with(draw: st.DrawFn, level: Level, *, below: bool = True) -> Tensor:
    """Tensors of small shapes with this level only, or above or below others."""
    chains = [(level,), (Dense(), level), (Sparse(), level)]
    chains += [(level, Sparse()), (Dense(), level, Sparse()), (level, level), (level, Dense())] if below else []
    format = Format(draw(st.sampled_from(chains)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=format.rank, max_size=format.rank)))
    chosen = draw(st.lists(st.sampled_from(list(np.ndindex(*shape))), unique=True, max_size=9))
    table = np.array(chosen, np.int64).reshape(len(chosen), len(shape))
    values = draw(st.lists(st.integers(1, 3), min_size=len(chosen), max_size=len(chosen)))
    try:
        return pack(table.T, np.array(values, float), shape, format)
    except FormatError:  # a kind may refuse a tensor
        assume(False)
        raise


def check_compiled(tensor: Tensor) -> None:
    """Compiled loops over the tensor give the sums of numpy, in memory and from a file."""
    opened = open(_written(tensor))
    for axis, source in itertools.product((None, 0) if tensor.ndim else (None,), (tensor, opened)):
        found = reduce(source, axis, "sum")
        assert np.array_equal(found, tensor.to_dense().sum(axis)), "a compiled sum is wrong; see loop"


def check_merged(tensor: Tensor) -> None:
    """Sums and products with another tensor, and with one without entries, equal those of numpy, in both orders.

    Walks are interpreted. Formats without a walk are converted first.
    """
    if not tensor.ndim:  # a scalar has no levels to walk
        return
    every = np.indices(tensor.shape).reshape(tensor.ndim, -1)
    some = every[:, every.sum(0) % 2 == 0]
    listed = Format((Dense(), *[Sparse()] * (tensor.ndim - 1)) if tensor.ndim > 1 else (Sparse(),))
    walks = all(is_walked(level, not d) for d, level in enumerate(tensor.format.levels))
    walked = tensor if walks else tensor.convert(listed)
    for coords in (some, some[:, :0]):
        other = pack(coords, np.full(coords.shape[1], 2.0), tensor.shape, listed)
        for a, b in ((walked, other), (other, walked)):
            for function in (np.multiply, np.add):
                cells, name = function(a.to_dense(), b.to_dense()), function.__name__
                zeros = np.zeros(()), np.zeros(())
                tree, _ = merged(inside(a).tree, inside(b).tree, name, function is np.add, zeros, compiled=False)
                found = Tensor(Format(tree.levels), tensor.shape, tree.arrays, tree.values)
                assert np.array_equal(found.to_dense(), cells), f"numpy.{name} of two tensors is wrong; see loop"


def check_read(tensor: Tensor) -> None:
    """Every reader of a file returns the tensor that was written."""
    assert check_stored(_written(tensor)), "read refuses the result of write"


def check_damage(tensor: Tensor) -> None:
    """Copies of a file with a changed item or array length are refused, or read equally by every reader."""
    for changed in damaged(_written(tensor), most=2):
        check_stored(changed)


def _written(tensor: Tensor) -> dict[str, Any]:
    """A file in memory."""
    stored: dict[str, Any] = {}
    write(stored, tensor)
    return stored


def check_joined(tensor: Tensor) -> None:
    """Two halves, appended or concatenated, equal the whole."""
    if not tensor.ndim:  # a scalar has no halves
        return
    middle, halves = tensor.shape[0] // 2, list[dict[str, Any]]()
    for piece in (slice(0, middle), slice(middle, None)):
        try:
            halves.append(_written(tensor[piece].convert(tensor.format)))
        except FormatError:  # a kind may refuse a part of a tensor that it accepts
            assume(False)
    whole: dict[str, Any] = {}
    concatenate(halves, whole)
    append(halves[0], read(halves[1]))
    for joined in map(read, (whole, halves[0])):
        assert np.array_equal(joined.to_dense(), tensor.to_dense()), "the halves are not the whole"
