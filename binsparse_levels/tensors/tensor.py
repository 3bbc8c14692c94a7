"""The class Tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..engine.tree import same
from ..errors import within_memory
from ..formats.format import FormatLike
from ..formats.shapes import checked_axes
from ..levels.positions import Array
from ..limits import DEFAULT_LIMITS, Limits
from . import changing, selecting
from .backing import Check, TreeBacking
from .changing import Converting
from .contents import Dimension, Metadata, dimension_of, labels_of
from .encoding import encode_tensor
from .labels import same_labels
from .validation import checked_fill, checked_format, checked_json, tree_of, writable


@within_memory
class Tensor(Converting):
    """A sparse tensor of any rank, stored in a tree of levels. It is immutable, and its arrays are read-only.

    The constructor wraps arrays without a copy. `pack` and `pack_dense` make a tensor from entries or cells. Writable
    index and pointer arrays are checked again at each use; pass read-only ones to save that time.

    Parameters
    ----------
    format : a Format, its notation, or a Binsparse `custom` object.
    shape : the sizes of the dimensions.
    arrays : the arrays of the levels by stored name (`pointers_to_1`, `indices_1`, `bitmap_0` …). Each has one
        dimension and any integer type; a bitmap contains booleans or bytes. Masked items are refused.
    values : an array with an item for each position of the last level, or one scalar for all (an *iso* tensor).
    fill_value : the value of cells that are not stored. None stays None, and is treated as 0.
    structure : one of the six structures of Binsparse 0.1, section 3.8.
    attributes : the user's own JSON, which is stored with the tensor.
    descriptor_attributes : the same inside the descriptor (section 3.9).
    check : "full" checks every invariant, "trusted" skips the order of the entries, "none" checks nothing.
    limits : the largest rank and size of the attributes.

    Raises
    ------
    FormatError, ArrayError, LimitError : the arguments are inconsistent. The error lists every fault.

    >>> from binsparse_levels import Tensor
    >>> arrays = {"pointers_to_1": [0, 1, 2], "indices_1": [2, 0]}
    >>> Tensor("CSR", (2, 3), arrays, [1.5, 2.5]).to_dense().tolist()
    [[0.0, 0.0, 1.5], [2.5, 0.0, 0.0]]
    """

    __slots__ = ()

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
        self._set(stored, Metadata(fill, checked_json(attributes, limits), checked_json(descriptor_attributes, limits)))
        stored.check(check)

    @classmethod
    def _owning(cls, *arguments: Any, **options: Any) -> Tensor:
        """As `Tensor`, for arrays that no other code refers to."""
        self = cls(*arguments, **options)
        self._backing.stored.shared = False
        return self

    # Selection

    def __getitem__(self, key: Any) -> Any:
        """Select by integers, slices, an ellipsis, arrays of integers and masks, with numpy's rules.

        An integer for every dimension returns a numpy scalar. Integers and arrays of one dimension for all dimensions
        return an array of values. Several arrays together with a slice, or an array of several dimensions, return a
        list of coordinates in memory. Every other key, also `numpy.ix_`, returns a view, which reads nothing until it
        is used. A view has no structure. It keeps the attributes, and the names and labels of its dimensions.

        Raises
        ------
        IndexError : numpy would refuse the key, or the key adds a dimension.
        LimitError : arrays that are no mesh select more than `dense_bytes`.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2, 0], [3, 0, 4]], "CSR")
        >>> int(tensor[1, 2]), tensor[:, ::2].to_dense().tolist()
        (4, [[0, 0], [3, 4]])
        """
        return selecting.select(self, key)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def sel(self, labels: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
        """Select by label, as `xarray.DataArray.sel` does; otherwise like indexing.

        A label removes its dimension, unless several coordinates have it. Several labels keep their order. A slice goes
        from the coordinate of its first label to that of its last, inclusive; labels that are not there can be ends if
        the labels ascend or descend. A string for times is a period: "2026-03" is the whole month. Along a dimension
        without labels, `sel` is `isel`.

        Texts and integers are found without pandas; ranges and other labels need it.

        Parameters
        ----------
        labels, named : the labels by name of the dimension; `labels` also accepts its number. An array of booleans is
            a mask of the coordinates.

        Returns
        -------
        Tensor, or a numpy scalar if every dimension has one label.

        Raises
        ------
        LabelError : no coordinate has the label, or xarray also refuses the key. It is also a KeyError.
        OptionError : an option of xarray that is not supported here, such as `method`; or pandas is missing.
        IndexError : no dimension has this name.
        ArrayError : the labels are damaged.

        >>> import pyarrow
        >>> from binsparse_levels import from_table
        >>> table = pyarrow.table({"user": [7, 9], "item": ["pen", "ink"], "value": [1.5, 2.5]})
        >>> tensor = from_table(table, ["user", "item"], "value", "CSR")
        >>> float(tensor.sel(user=9, item="ink")), tensor.sel(item=["ink", "pen"]).labels("item").tolist()
        (2.5, ['ink', 'pen'])
        """
        return selecting.sel(self, {**(labels or {}), **named})

    def isel(self, indices: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
        """Select by coordinate along dimensions given by name, as `xarray.DataArray.isel` does.

        Each array selects along its own dimension. Other dimensions are not cut.

        Parameters
        ----------
        indices, named : integers, slices and arrays by dimension, as for `sel`.

        Returns
        -------
        Tensor, or a numpy scalar if every dimension has an integer.

        Raises
        ------
        IndexError : as for indexing.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR", dims=["user", "day"])
        >>> tensor.isel(day=0).to_dense().tolist()
        [0, 3]
        """
        return selecting.isel(self, {**(indices or {}), **named})

    def permute(self, axes: Sequence[Dimension]) -> Tensor:
        """The same entries with the dimensions in another order. The arrays are shared.

        Parameters
        ----------
        axes : dimension k of the result is dimension axes[k] of this tensor, by number or name.

        Returns
        -------
        Tensor with `shape[axes[k]]` as the size of dimension k.

        Raises
        ------
        FormatError : `axes` is not a permutation.

        >>> pack([[0], [1], [2]], [1], (2, 3, 5), "sparse(3)").permute((2, 0, 1)).shape
        (5, 2, 3)
        """
        order = checked_axes([dimension_of(self, x) if isinstance(x, str) else x for x in axes], self.ndim)
        return selecting.permuted(self, order)

    @property
    def T(self) -> Tensor:
        """The same entries with the dimensions reversed."""
        return self.permute(range(self.ndim)[::-1])

    def load(self, format: FormatLike | None = None) -> Tensor:
        """Read the entries and labels into memory. For a view, only the arrays that it needs are read.

        Parameters
        ----------
        format : by default the format does not change.

        Returns
        -------
        Tensor of the same shape, in memory.

        Raises
        ------
        ArrayError, ContainerError, FormatError, LimitError : as for `read` and `convert`.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "CSR")[1:].load("COO").values.tolist()
        [3]
        """
        own, metadata = self._backing.own(self._pad()), self._metadata
        if metadata.labels is not None and metadata.labels.lazy:
            metadata = replace(metadata, labels=metadata.labels.loaded())
        if own is self._backing:  # the labels in memory replace those in the file, which can be closed
            self._metadata = metadata
        whole = self if own is self._backing else self._of(own, metadata)
        return whole if format is None else whole.convert(format)

    def slabs(self, dimension: Dimension, *, max_bytes: int) -> Iterator[tuple[range, Tensor]]:
        """Iterate over parts along a dimension: the coordinates of each part, and a tensor in memory.

        Along the outermost stored dimension of dense and sparse levels, each entry is read once. Along another, it is
        read once to count, and once for each part. With other kinds, a part that is too large is halved. A structure is
        expanded first, and a map is removed.

        Parameters
        ----------
        dimension : counted from 0, or from -1 backwards; or a name.
        max_bytes : the largest size of the arrays of a part, in bytes.

        Returns
        -------
        iterator of (range, Tensor) : coordinates along `dimension`, and a tensor of `len(range)` coordinates there.

        Raises
        ------
        LimitError : a single coordinate takes more.
        IndexError : there is no such dimension.

        >>> from binsparse_levels import pack_dense
        >>> [(part, slab.shape) for part, slab in pack_dense([[0, 2], [3, 0]], "CSR").slabs(0, max_bytes=100)]
        [(range(0, 2), (2, 2))]
        """
        whole = changing.expanded(self.without_map())
        yield from selecting.slabs(whole, dimension_of(self, dimension), max_bytes)

    # Contents and comparisons

    def unpack(self, dtype: Literal["stored"] | None = None) -> tuple[tuple[Array, ...], Array]:
        """The stored entries in stored order: a tuple of coordinates for each dimension, and the values.

        With a structure, these are the entries of its triangle. With a map, padding contains no entries.

        Parameters
        ----------
        dtype : the type of the coordinates, by default int64. "stored" takes less memory and time: it returns the
            stored type of each dimension, or a narrower one instead of 64 bits.

        Returns
        -------
        coords : tuple of ndim integer arrays of length n.
        values : array of length n.

        Raises
        ------
        OptionError : `dtype` has another value.

        >>> from binsparse_levels import pack_dense
        >>> coords, values = pack_dense([[0, 2], [3, 0]], "CSR").unpack()
        >>> [x.tolist() for x in coords], values.tolist()
        ([[0, 1], [1, 0]], [2, 3])
        """
        return changing.entries(self, dtype)

    def to_dense(self, fill: Any = None, *, limits: Limits | None = None) -> Array:
        """Return a numpy array of the tensor's shape and type. A structure is expanded.

        Parameters
        ----------
        fill : the value of cells that are not stored; by default the fill value, or zero.
        limits : `dense_bytes` is the largest size of the array.

        Returns
        -------
        numpy.ndarray of shape `shape` and type `dtype`.

        Raises
        ------
        LimitError : the array is larger.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").to_dense(fill=7).tolist()
        [1, 7, 2]
        """
        limits = self.limits if limits is None else limits
        return changing.to_dense(self, self._pad() if fill is None else checked_fill(fill, self.dtype), limits)

    def equals(self, other: Tensor) -> bool:
        """Return True if both have the same shape, entries and fill value. Formats and maps may differ.

        NaN equals NaN. Types may differ, as in numpy. No fill value is treated as zero. A stored fill value counts as
        an entry. Labels are compared for dimensions that have labels in both tensors.

        Parameters
        ----------
        other : a tensor; any other object is not equal.

        Returns
        -------
        bool

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> tensor.equals(tensor.convert("COO")), tensor.equals(tensor.T)
        (True, False)
        """
        if not isinstance(other, Tensor) or self.shape != other.shape:
            return False
        try:
            with np.errstate(invalid="ignore"):  # a NaN may be signaling
                if not same(self._pad(), other._pad()):
                    return False
                (mine, values), (others, other_values) = changing.in_order(self), changing.in_order(other)
                labels = ((labels_of(self, k), labels_of(other, k)) for k in range(self.ndim))
                return (
                    all(map(np.array_equal, mine, others))
                    and _alike(values, other_values)
                    and all(x is None or y is None or same_labels(x, y) for x, y in labels)
                )
        except TypeError:  # numpy does not compare some types
            return False

    def __binsparse_descriptor__(self) -> dict[str, Any]:
        """The descriptor, a dictionary with the key `binsparse`. The protocol is a draft and may change."""
        return encode_tensor(self)[0]

    def __binsparse__(self) -> dict[str, Array]:
        """The arrays by name, as a container stores them. The protocol is a draft and may change."""
        return encode_tensor(self)[1]


def _alike(a: Array, b: Array) -> bool:
    """Return True if all items are equal. NaN equals NaN."""
    return len(a) == len(b) and bool(np.all((a == b) | ((a != a) & (b != b))))
