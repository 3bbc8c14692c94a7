"""The laws of containers and of damaged files: what is given back is the same, and what is accepted is read alike."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..building.sources import Tensors
from ..errors import BinsparseError
from ..formats.format import coordinates
from ..formats.structure import in_triangle
from ..io import open, read, write
from ..levels.positions import Array
from ..tensors.tensor import Tensor


def check_same(again: Tensor, tensor: Tensor) -> None:
    """Assert that a container gave back what it was given.

    Values are the same bit for bit, and so are the stored entries, fill value, format, types, structure and attributes.
    """
    assert again.equals(tensor)
    assert again.shape == tensor.shape
    assert again.dtype == tensor.dtype
    assert again.format.canonical() == tensor.format.canonical()
    assert again.structure == tensor.structure
    assert again.iso == (tensor.iso and len(tensor.values) > 0)
    assert again.attributes == tensor.attributes
    assert again.descriptor_attributes == tensor.descriptor_attributes
    assert {name: array.dtype for name, array in again.arrays.items()} == {
        name: array.dtype for name, array in tensor.arrays.items()
    }
    assert again.values.tobytes() == tensor.values.tobytes()


def damaged(stored: Mapping[str, Any], *, most: int = 4) -> Iterator[dict[str, Any]]:
    """Copies of a mapping that `write` filled, each with an array of another length, or with an item changed.

    most: how many items of each array are changed; the first and the last are among them.
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
    near = {int(item) - 1, int(item) + 1, -1, 0, 3, 2**20, int(ends.max), int(ends.min)} - {int(item)}
    return [item.dtype.type(x) for x in sorted(near) if ends.min <= x <= ends.max]


def check_stored(stored: Mapping[str, Any]) -> bool:
    """Assert law 8 for a mapping that may be damaged. Returns whether `read` accepted it.

    Where `read` accepts it, all ways to read it agree, `open` and its views among them. Else see `check_refused`.
    """
    try:
        tensor: Any = read(stored)
    except BinsparseError:
        check_refused(stored)
        return False
    check_agreement(tensor)
    again: dict[str, Any] = {}
    write(again, tensor)
    assert read(again).equals(tensor)
    opened = open(stored)
    dense = tensor.to_dense()
    for key in _keys(tensor.shape):
        assert _equal(_dense(opened[key]), dense[key])
    assert opened.load().equals(tensor)
    coords, values = tensor.unpack()
    whole = list(zip(rows_of(coords, len(values)), map(repr, values), strict=True))
    inside = in_triangle(tensor.structure, coords) if tensor.structure else np.ones(len(values), bool)
    assert sorted(_in_parts(stored)) == sorted(itertools.compress(whole, inside))
    return True


def _in_parts(stored: Mapping[str, Any]) -> list[tuple[tuple[int, ...], str]]:
    """The coordinates of all entries, and their values as text, read two entries at a time, and checked in parts."""
    entries, rows = Tensors([stored], 2), list[tuple[tuple[int, ...], str]]()
    for number in range(len(entries)):
        coords, values = entries.read(number)
        assert len(values) <= 2
        rows += zip(rows_of(coords, len(values)), map(repr, values), strict=True)
    return rows


def check_refused(stored: Mapping[str, Any]) -> None:
    """Assert that `open` refuses what `read` refuses once all of it is read, and that views raise only our errors."""
    try:
        opened = open(stored)
    except BinsparseError:
        return
    for key in _keys(opened.shape):
        with contextlib.suppress(BinsparseError):
            _dense(opened[key])
    for whole in (opened.load, opened.to_dense, opened.unpack, lambda: _in_parts(stored)):
        try:
            whole()
        except BinsparseError:
            continue
        raise AssertionError(f"{whole} accepts what read refuses")


def check_agreement(tensor: Tensor) -> None:
    """Assert that every way to read a tensor lists the same entries."""
    whole = tensor.expand_structure()
    coords, values = whole.unpack()
    dense = np.full(tensor.shape, tensor._pad(), tensor.dtype)
    rows = rows_of(coords, len(values))
    for row, value in zip(rows, values, strict=True):
        dense[row] = value
    assert len(set(rows)) == len(rows) == whole.number_of_stored_values
    assert _equal(tensor.to_dense(), dense)
    assert _equal(tensor.convert(coordinates(tensor.ndim)).to_dense(), dense)
    if tensor.ndim:
        assert _equal(whole.values[whole.locate(coords)], values)
        everywhere = np.array(list(np.ndindex(tensor.shape)), np.int64).reshape(-1, tensor.ndim).T
        assert np.count_nonzero(whole.locate(list(everywhere)) >= 0) == len(rows)
        assert _equal(tensor[tuple(everywhere)], dense.ravel())
    for key in _keys(tensor.shape):
        assert _equal(_dense(tensor[key]), dense[key])


def _equal(a: Any, b: Any) -> bool:
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc")


def _dense(selected: Any) -> Any:
    return selected.to_dense() if isinstance(selected, Tensor) else selected


def _keys(shape: Sequence[int]) -> Iterator[Any]:
    """Keys of some values, of all slices of a coordinate, of slices with a step, of nothing."""
    if all(shape):
        yield from {(0,) * len(shape), tuple(size - 1 for size in shape), tuple(size // 2 for size in shape)}
    for k, size in enumerate(shape):
        for item in (*range(size), slice(0, 0), slice(1, None), slice(None, None, 2), slice(None, None, -1)):
            yield (*[slice(None)] * k, item, ...)


def rows_of(coords: Sequence[Array], count: int) -> list[tuple[int, ...]]:
    """The coordinates of so many entries, a tuple for each."""
    return list(zip(*(x.tolist() for x in coords), strict=True)) if coords else [()] * count
