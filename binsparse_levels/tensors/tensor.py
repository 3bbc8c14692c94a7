"""The class Tensor, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..errors import within_memory
from ..formats.format import FormatLike
from ..levels.positions import Array
from ..limits import DEFAULT_LIMITS, Limits
from . import changing, comparing, dense, labelling, late_imports, selecting, values
from .backing import Backing, Check, TreeBacking
from .contents import Contents
from .contents import remade as remade
from .encoding import encode_tensor
from .inside import Inside, Metadata
from .late_imports import late_import, numpy_method, reduction
from .names import Refusals, instead_of
from .slabs import slabs
from .validation import checked_fill, checked_format, checked_json, tree_of, writable

_REDUCTIONS = "sum", "prod", "mean", "var", "std", "min", "max", "any", "all"


@within_memory
class Tensor(Contents, Refusals, NDArrayOperatorsMixin):
    """A sparse tensor of any rank, stored in a tree of levels. It is immutable, and its arrays are read-only.

    The constructor wraps arrays without a copy. `pack` and `pack_dense` make a tensor from entries or cells. Writable
    index and pointer arrays are checked again at each use; pass read-only ones to save that time.

    Parameters
    ----------
    format : str, Format or mapping
        A Format, its notation, or a Binsparse `custom` object.
    shape : int or sequence of int
        The sizes of the dimensions.
    arrays : mapping of str to array_like
        The arrays of the levels by stored name (`pointers_to_1`, `indices_1`, `bitmap_0` …). Each has one dimension
        and any integer type; a bitmap contains booleans or bytes. Masked items are refused.
    values : array_like
        An array with an item for each position of the last level, or one scalar for all (an *iso* tensor).
    fill_value : scalar, optional
        The value of cells that are not stored. None stays None, and is treated as 0.
    structure : str, optional
        One of the six structures of Binsparse 0.1, section 3.8.
    attributes : mapping, optional
        The user's own JSON, which is stored with the tensor.
    descriptor_attributes : mapping, optional
        The same inside the descriptor (section 3.9).
    check : {'full', 'trusted', 'none'}, default 'full'
        "full" checks every invariant, "trusted" skips the order of the entries, "none" checks nothing.
    limits : Limits, optional
        The largest rank and size of the attributes.

    Raises
    ------
    FormatError, ArrayError, LimitError
        The arguments are inconsistent. The error lists every fault.

    See Also
    --------
    pack : Pack entries in any order into a Tensor.
    open : Open a tensor without reading its arrays.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> arrays = {"pointers_to_1": [0, 1, 2], "indices_1": [2, 0]}
    >>> bl.Tensor("CSR", (2, 3), arrays, [1.5, 2.5]).to_dense().tolist()
    [[0.0, 0.0, 1.5], [2.5, 0.0, 0.0]]
    """

    __slots__ = ()
    __array_priority__ = 1000.0  # numpy calls the tensor first, as in array @ tensor

    def __init__(
        self,
        format: FormatLike,
        shape: int | Sequence[int],
        arrays: Mapping[str, npt.ArrayLike],
        values: npt.ArrayLike,
        *,
        fill_value: Any = None,
        structure: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        descriptor_attributes: Mapping[str, Any] | None = None,
        check: Check = "full",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        parsed, sizes = checked_format(format, shape, limits)
        tree = tree_of(parsed, sizes, arrays, values)
        fill = checked_fill(fill_value, tree.values.dtype)
        shared = any(map(writable, tree.arrays.values()))
        stored = TreeBacking(parsed, tree, limits, structure, shared=shared)
        kept = checked_json(attributes, limits), checked_json(descriptor_attributes, limits)
        self._inside = Inside(stored, Metadata(fill, *kept))
        stored.check(check)

    def __reduce__(self) -> tuple[Any, ...]:
        old = self._inside.metadata
        metadata = old if old.labels is None else replace(old, labels=old.labels.loaded())
        return tensor_of, (self._inside.backing, metadata)

    # Selection

    __getitem__ = selecting.select
    sel = selecting.sel
    isel = selecting.isel
    slabs = slabs
    permute = selecting.permute

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    @property
    def T(self) -> Tensor:
        """The same entries with the dimensions reversed.

        See Also
        --------
        Tensor.transpose : Permute the dimensions.
        """
        return self.permute(range(self.ndim)[::-1])

    def load(self, format: FormatLike | None = None) -> Tensor:
        """Read the entries and labels into memory. For a view, only the arrays that it needs are read.

        Parameters
        ----------
        format : str, Format or mapping, optional
            Format of the result. By default the format does not change.

        Returns
        -------
        Tensor
            Tensor of the same shape, in memory.

        Raises
        ------
        ArrayError, ContainerError, FormatError, LimitError
            The file or the arrays are damaged, or the format does not fit; see `read` and `convert`.

        See Also
        --------
        Tensor.convert : The same entries in another format.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack_dense([[0, 2], [3, 0]], "CSR")[1:].load("COO").values.tolist()
        [3]
        """
        own, metadata = self._inside.own, self._inside.metadata
        if metadata.labels is not None and metadata.labels.lazy:
            metadata = replace(metadata, labels=metadata.labels.loaded())
        if own is self._inside.backing:  # the labels in memory replace those in the file, which can be closed
            self._inside.metadata = metadata
        whole = self if own is self._inside.backing else tensor_of(own, metadata)
        return whole if format is None else whole.convert(format)

    # Conversions

    convert = changing.convert
    without_map = changing.without_map
    drop_fill = changing.drop_fill
    astype = values.astype
    with_values = values.with_values
    with_labels = labelling.with_labels
    expand_structure = changing.expand_structure
    with_structure = changing.with_structure
    to_dense = dense.to_dense

    # Contents and comparisons

    def unpack(self, dtype: Literal["stored"] | None = None) -> tuple[tuple[Array, ...], Array]:
        """The stored entries in stored order: a tuple of coordinates for each dimension, and the values.

        With a structure, these are the entries of its triangle. With a map, padding contains no entries.

        Parameters
        ----------
        dtype : {'stored'}, optional
            The type of the coordinates, by default int64. "stored" takes less memory and time: it returns the stored
            type of each dimension, or a narrower one instead of 64 bits.

        Returns
        -------
        tuple of ndarray, and ndarray
            Coords : tuple of ndim integer arrays of length n. values : array of length n.

        Raises
        ------
        OptionError
            `dtype` has another value.

        See Also
        --------
        Tensor.to_dense : Return a dense array.
        Tensor.locate : Find the positions of entries in `values`.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> coords, values = bl.pack_dense([[0, 2], [3, 0]], "CSR").unpack()
        >>> [x.tolist() for x in coords], values.tolist()
        ([[0, 1], [1, 0]], [2, 3])
        """
        return changing.entries(self, dtype)

    equals = comparing.equals

    def __repr__(self) -> str:
        """A line, and a line for each level unless the tensor is a view. Nothing is read."""
        backing = self._inside.backing
        names = self.dims or ()
        shape = " × ".join(map(str, backing.shape)) or "scalar"
        shape += f" ({', '.join(names)})" if names else ""
        stored = f", map {backing.map}" if backing.map is not None else f", {backing.format}"
        fill = "" if self.fill_value is None else f", fill {self.fill_value}"
        if self.parts:
            parts = f"{len(self.parts)} part{'' if len(self.parts) == 1 else 's'}"
            return f"<Tensor {shape} {backing.dtype}, {parts}{fill}{stored}>"
        if backing.viewed:
            return f"<Tensor {shape} {backing.dtype}, a view{fill}{stored}>"
        if backing.map is not None:
            return f"<Tensor {shape} {backing.dtype}{fill}{stored}>\n{self.stored!r}"
        known = backing.stored.tree.dictionary
        iso = ", iso" if self.iso else "" if known is None else f", dictionary of {len(known.table)}"
        structure = f", {backing.structure}" if backing.structure else ""
        tree = backing.stored.tree
        count = len(tree.values) if tree.lazy else self.number_of_stored_values
        entries = f"{count} stored value{'' if count == 1 else 's'}"
        head = f"<Tensor {shape} {backing.dtype}{iso}, {entries}{fill}{structure}{stored}>"
        return "\n".join([head, *_lines(backing.stored, names)])

    def _repr_html_(self) -> str:
        """HTML for a notebook: facts, the levels, and a picture of a tensor in memory. No array of a file is read."""
        shown: str = late_import("html_of")(self)
        return shown

    report = late_imports.report
    draw = late_imports.draw

    sum = reduction("sum", "Sum the cells", [3, 2])
    prod = reduction("prod", "Multiply the cells", [0, 0])
    mean = reduction("mean", "Compute the mean", [1.5, 1.0])
    var = reduction("var", "Compute the variance", [2.25, 1.0])
    std = reduction("std", "Compute the standard deviation", [1.5, 1.0])
    min = reduction("min", "Find the smallest cell", [0, 0])
    max = reduction("max", "Find the largest cell", [3, 2])
    any = reduction("any", "Test whether any cell is true", [True, True])
    all = reduction("all", "Test whether all cells are true", [False, False])
    count = reduction("count", "Count the stored entries", [1, 1])

    argmax = numpy_method("argmax", "argmax(axis=1).tolist()", "[1, 0]")
    argmin = numpy_method("argmin", "argmin(axis=1).tolist()", "[0, 1]")
    count_nonzero = numpy_method("count_nonzero", "count_nonzero(axis=0).tolist()", "[1, 1]")
    trace = numpy_method("trace", "trace().item()", "0")
    diagonal = numpy_method("diagonal", "diagonal(1).tolist()", "[2]")
    dot = numpy_method("dot", "dot([1, 10]).tolist()", "[20, 3]")
    round = numpy_method("round", "round(1).values.tolist()", "[2, 3]")
    clip = numpy_method("clip", "clip(0, 2).values.tolist()", "[2, 2]")
    squeeze = numpy_method("squeeze", "squeeze().shape", "(2, 2)")
    swapaxes = numpy_method("swapaxes", "swapaxes(0, 1).to_dense().tolist()", "[[0, 3], [2, 0]]")
    take = numpy_method("take", "take([1], axis=0).to_dense().tolist()", "[[3, 0]]")

    def transpose(self, *axes: Any) -> Tensor:
        """`numpy.ndarray.transpose`: `permute` of the axes, or of all in reverse.

        Parameters
        ----------
        *axes
            The order of the dimensions, as several integers or one sequence; None or nothing reverses them.

        Returns
        -------
        Tensor
            Tensor that shares the arrays.

        Raises
        ------
        FormatError
            The axes are no permutation.

        See Also
        --------
        Tensor.permute : The same entries with the dimensions in another order.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack([[0], [1], [2]], [1], (2, 3, 5), "sparse(3)").transpose(2, 0, 1).shape
        (5, 2, 3)
        """
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return self.T if order is None else self.permute(order)

    matvec = late_imports.matvec
    rmatvec = late_imports.rmatvec

    def __binsparse_descriptor__(self) -> dict[str, Any]:
        """The descriptor, a dictionary with the key `binsparse`. The protocol is a draft and may change."""
        return encode_tensor(self)[0]

    def __binsparse__(self) -> dict[str, Array]:
        """The arrays by name, as a container stores them. The protocol is a draft and may change."""
        return encode_tensor(self)[1]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The stored entries as a table with a row for each, for polars, pandas and duckdb; see `to_table`."""
        return late_import("to_table")(self).__arrow_c_stream__(requested_schema)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Functions of numpy that the tensor has, such as `numpy.sum(tensor, axis=0)`. Raise TypeError for others."""
        name = {"amin": "min", "amax": "max"}.get(function.__name__, function.__name__)
        if name in ("shape", "ndim", "size") and not kwargs and len(args) == 1:
            return getattr(self, name)
        options = {"out", "where", "initial"}.intersection(kwargs)
        if name in _REDUCTIONS and args and isinstance(args[0], Tensor) and not options:
            return getattr(args[0], name)(*args[1:], **kwargs)
        if (made := late_import("numpy_function")(name, args, kwargs)) is not NotImplemented:
            return made
        raise TypeError(f"numpy.{name} does not accept a Tensor; use {instead_of(function, args, kwargs)}")

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply a numpy function to each cell of one or two tensors; all operators, and products by `@`.

        The result is a Tensor. Its fill value is the function of the fill values. Labels that both tensors have for a
        dimension must be equal. A dense array is broadcast to the shape of the tensor. A product `@` with a dense
        vector or matrix is an array; see `einsum`.

        Raises
        ------
        ArrayError, LabelError, OptionError
            The operands do not fit each other, or the function is not elementwise.

        Examples
        --------
        >>> import numpy as np
        >>> import binsparse_levels as bl
        >>> tensor = bl.pack_dense([[0, 2], [3, 0]], "CSR")
        >>> (2 * tensor + tensor.T).to_dense().tolist(), np.sqrt(tensor).values.round(2).tolist()
        ([[0, 7], [8, 0]], [1.41, 1.73])
        >>> (tensor @ [1, 10]).tolist(), (tensor @ tensor).to_dense().tolist()
        ([20, 3], [[6, 0], [0, 6]])
        """
        if function is np.matmul and method == "__call__" and not options:
            return late_import("product")(*inputs)
        return late_import("calculate")(function, method, inputs, options)


def _lines(stored: TreeBacking, names: Sequence[str]) -> list[str]:
    """The levels of a tree, each with its dimensions, its number of fibers and the lengths of its arrays."""
    tree, lines = stored.tree, []
    n: int | None = 1
    for depth, place in enumerate(tree.places):
        arrays = {role: tree.arrays[spec.name] for role, spec in place.arrays.items()}
        covered = stored.format.order[place.depth : place.depth + place.level.rank]
        called = [f"{names[k]}, " if names else "" for k in covered]
        sizes = ", ".join(f"{k} ({name}size {n})" for k, name, n in zip(covered, called, place.dims, strict=True))
        fibers = "" if n is None else f", {n} fiber{'s' if n != 1 else ''}"
        lengths = "".join(f", {place.arrays[role].name}[{len(array)}]" for role, array in arrays.items())
        dimensions = f"dimension {sizes}" if sizes else "no dimension"
        lines.append(f"{'  ' * depth}└ {place.level}: {dimensions}{fibers}{lengths}")
        below, _ = place.level.lengths({role: len(array) for role, array in arrays.items()}, place.dims, n)
        if below is None and n is not None and not tree.lazy:  # no array of a file is read for this
            below = place.level.size(arrays, place.dims, n)
        n = below
    lines.append(f"{'  ' * len(tree.levels)}└ element: values[{len(tree.values)}]")
    return lines


def inside(tensor: Tensor) -> Inside:
    """The state of a tensor. No other room uses private members of a tensor."""
    return tensor._inside


def tensor_of(backing: Backing, metadata: Metadata) -> Tensor:
    """A tensor of a backing that needs no check, or is checked when it is read."""
    tensor = Tensor.__new__(Tensor)
    tensor._inside = Inside(backing, metadata)
    return tensor


def owning(*arguments: Any, **options: Any) -> Tensor:
    """As `Tensor`, for arrays that no other code refers to."""
    tensor = Tensor(*arguments, **options)
    tensor._inside.backing.stored.shared = False
    return tensor
