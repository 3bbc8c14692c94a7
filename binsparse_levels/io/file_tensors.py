"""Tensors from the content of files: opened, or in memory."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ..arrays import Array, LazyArray, Sliceable, cut, lazy, repeat_one
from ..engine.emission import Duplicates
from ..engine.tree import Tree, count_positions
from ..errors import ArrayError, BinsparseError, DialectWarning, FormatError, Problem, raise_if
from ..formats.dtypes import sound_booleans
from ..formats.format import FormatLike, has_empty_fibers
from ..formats.index_map import IndexMap
from ..formats.structure import structure_problems
from ..limits import INT64_MAX, Limits
from ..tensors.backing import Check, TreeBacking
from ..tensors.contents import Metadata
from ..tensors.labels import Labels
from ..tensors.packing import in_order
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_fill, checked_format
from ..tensors.views import Mapped

Compression: TypeAlias = Literal["CSR", "CSC"]


class FileTensor(NamedTuple):
    """A tensor in an open file, with lazy arrays by stored name.

    Values without a dimension are one value for all entries. names: of the arrays in the file, for errors. labels:
    read on demand. map: from the tensor to the stored one; `shape` is that of the stored one. label: of the tensor, for
    errors. ordered: True if the file promises the order of the entries. positions: their number in the last level, if
    known. repairs: receives the repairs of loading.
    """

    format: FormatLike
    shape: tuple[int, ...]
    arrays: Mapping[str, Any]
    values: Any
    attributes: Mapping[str, Any] = {}
    names: Mapping[str, str] = {}
    labels: Labels | None = None
    fill_value: Any = None
    structure: str | None = None
    map: IndexMap | None = None
    label: str = ""
    ordered: bool = False
    descriptor_attributes: Mapping[str, Any] = {}
    positions: int | None = None
    repairs: list[str] | None = None

    @property
    def lazy(self) -> bool:
        """True if some array is not in memory."""
        return any(isinstance(x, LazyArray) for x in (*self.arrays.values(), self.values))


def compressed(
    format: Compression,
    shape: tuple[int, int],
    arrays: Mapping[str, Sliceable],
    labels: Labels | None = None,
    *,
    cells: int = 1,
    **more: Any,
) -> FileTensor:
    """A matrix in a file. Only the number and the ends of its pointers are checked.

    arrays: its pointers, indices and values by their names in the file. Those that are too long are cut. labels: the
    names of its rows and columns. cells: the number of values for each index. more: fields of FileTensor. Raises
    ArrayError.
    """
    names = dict(zip(("pointers_to_1", "indices_1", "values"), arrays, strict=True))
    pointers, indices, values = arrays.values()
    fibers = shape[format == "CSC"]
    if fibers == 0 and len(pointers) == 2 and not pointers[:].any():  # BPCells writes two pointers for zero fibers
        pointers = cut(pointers, 0, 1)
    if len(pointers) != fibers + 1:
        what = f"expected a length of {fibers + 1} for shape {shape[0]} × {shape[1]}, got {len(pointers)}"
        raise ArrayError(Problem(names["pointers_to_1"], what))
    first, last = (int(pointers[at : at + 1][0]) for at in (0, fibers))
    if first != 0 or not 0 <= last <= INT64_MAX:
        raise ArrayError(Problem(names["pointers_to_1"], f"goes from {first} to {last}, expected 0 and more"))

    def beginning(array: Sliceable, name: str, count: int) -> Sliceable:
        if len(array) < count:
            raise ArrayError(Problem(name, f"expected a length of {count}, got {len(array)}"))
        return array if len(array) == count else cut(array, 0, count)

    stored = {"pointers_to_1": pointers, "indices_1": beginning(indices, names["indices_1"], last)}
    values = beginning(values, names["values"], last * cells)
    return FileTensor(format, shape, stored, values, {}, names, labels, **more)


def guarded(array: LazyArray, check: Callable[[], None]) -> LazyArray:
    """The same array. `check` is called after each read."""

    def checked(read: Callable[..., Array]) -> Callable[..., Array]:
        def reading(*where: Any) -> Array:
            try:
                return read(*where)
            finally:
                check()

        return reading

    part, at = checked(array.part), checked(array.at)
    return lazy(array.shape, array.dtype, part, at=at, nbytes=lambda: array.nbytes, chunk=array.chunk)


@contextlib.contextmanager
def named(names: Mapping[str, str], label: str = "") -> Iterator[None]:
    """Prefix errors with the label, and use the names of arrays in the file."""
    try:
        yield
    except BinsparseError as error:
        problems = []
        for problem in error.problems:
            name, bracket, rest = problem.path.partition("[")
            path = ": ".join(filter(None, [label, names.get(name, name) + bracket + rest]))
            problems.append(Problem(path, problem.message))
        raise type(error)(problems) from None


def opened_tensor(source: FileTensor, limits: Limits) -> Tensor:
    """The tensor, with arrays that are read on demand. Raises ArrayError for lengths that do not fit, FormatError."""
    format, shape = checked_format(source.format, source.shape, limits)
    values, iso = source.values, not source.values.shape
    values = np.asarray(values).reshape(1) if iso else values
    if source.structure is not None:
        raise_if(FormatError, structure_problems(source.structure, shape, values.dtype))
    fill = checked_fill(source.fill_value, values.dtype)
    dims = tuple(shape[k] for k in format.order)
    count = source.positions
    if count is None:
        count = count_positions(format.levels, dims, source.arrays, None if iso else len(values))
    every: Any = lazy(count, values.dtype, lambda start, stop: repeat_one(values[:1], stop - start)) if iso else values
    if values.dtype.kind == "b" and not iso:
        every = values.mapped(sound_booleans) if isinstance(values, LazyArray) else sound_booleans(values)
    tree = Tree(format.levels, dims, dict(source.arrays), every, iso, True)
    stored = TreeBacking(format, tree, limits, source.structure)
    metadata = Metadata(fill, dict(source.attributes), dict(source.descriptor_attributes), source.labels)
    return Tensor._of(stored if source.map is None else Mapped(stored, source.map), metadata)


def loaded_tensor(
    source: FileTensor, limits: Limits, duplicates: Duplicates = "error", check: Check = "full"
) -> Tensor:
    """The tensor in memory, in its stored format, decoded and checked.

    Unordered entries of a fiber are sorted, unless the file promises their order. Raises ContainerError, ArrayError,
    LimitError.
    """
    with named(source.names, source.label):
        arrays: dict[str, Any] = {}
        for name, array in {**source.arrays, "values": source.values}.items():
            if array.shape and (size := array.shape[0] * array.dtype.itemsize) > limits.array_bytes:
                limits.hold("array_bytes", size, name, "the size in bytes")
            arrays[name] = array[:] if array.shape else array  # one value for all entries has no dimension
        whole = source._replace(values=arrays.pop("values"), arrays=arrays)
        tensor = opened_tensor(whole, limits)
        try:
            tensor._backing.stored.load(check)
        except ArrayError as fault:
            if source.ordered:
                raise
            tensor = opened_tensor(whole, limits)
            tensor._backing.stored.load("trusted")
            # If the tree is sound, a diagonal is at fault, which `write` refuses.
            is_sorted = not any(tensor._backing.stored.tree.check())
            if not is_sorted:
                tensor = in_order(tensor, fault, duplicates, limits)
            if source.repairs is not None and not is_sorted:
                how = "sorted" if duplicates == "error" else f"sorted, of duplicates the {duplicates}"
                source.repairs.append(f"entries: not in order, {how}")
    if source.label and {"indices_0", "pointers_to_1"} <= arrays.keys() and has_empty_fibers(arrays["pointers_to_1"]):
        what = f"{source.label}: {source.names['pointers_to_1']}: a row or column without an entry is stored"
        warnings.warn(what, DialectWarning, stacklevel=5)
    return tensor if source.labels is None else tensor._labelled(source.labels.loaded())
