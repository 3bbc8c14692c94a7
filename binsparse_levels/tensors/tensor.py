"""The class Tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy.typing as npt

from ..errors import ArrayError, raise_if, within_memory
from ..formats.format import FormatLike, with_map
from ..formats.index_map import DimensionMap, IndexMap, MapLike
from ..formats.shapes import checked_axes
from ..levels.positions import Array
from ..limits import DEFAULT_LIMITS, Limits
from . import changing, naming, selecting
from .contents import Dimension, Metadata
from .encoding import encode_tensor
from .held import Check, Stored
from .upper import Upper
from .validation import checked_fill, checked_format, checked_json, checked_places, checked_type, tree_of, writable


@within_memory
class Tensor(Upper):
    """A sparse tensor of any rank, stored in a tree of levels. It is immutable, and its arrays are read-only.

    The constructor wraps arrays without a copy. `pack` and `pack_dense` make a tensor of entries or cells. Index and
    pointer arrays that you can still write to are checked again at each use; pass read-only ones to save that time.

    Parameters
    ----------
    format : a Format, its notation, or a Binsparse `custom` object.
    shape : the sizes of the dimensions.
    arrays : the arrays of the levels by stored name (`pointers_to_1`, `indices_1`, `bitmap_0` …). Each has one
        dimension and any integer type; a bitmap holds booleans or bytes. Masked items are refused.
    values : an array with an item for each position of the last level, or one scalar for all (an *iso* tensor).
    fill_value : the value of cells that are not stored. None stays None, and counts as 0 in numbers.
    structure : one of the six structures of Binsparse 0.1, section 3.8.
    attributes : the user's own JSON, which is kept with the tensor.
    descriptor_attributes : the same inside the descriptor (section 3.9).
    check : "full" checks every invariant, "trusted" skips the order of the entries, "none" checks nothing.
    limits : the largest rank and size of the attributes.

    Raises
    ------
    FormatError, ArrayError, LimitError : with every fault.

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
        stored = Stored(parsed, tree, limits, structure, shared=shared)
        self._set(stored, Metadata(fill, checked_json(attributes, limits), checked_json(descriptor_attributes, limits)))
        stored.check(check)

    @classmethod
    def _owning(cls, *arguments: Any, **options: Any) -> Tensor:
        """As `Tensor`, around arrays that nobody else has."""
        self = cls(*arguments, **options)
        self._held.stored.shared = False
        return self

    # Parts of it

    def __getitem__(self, key: Any) -> Any:
        """Select by integers, slices, an ellipsis, arrays of integers and masks, with numpy's rules.

        An integer for every dimension gives a numpy scalar. Integers and arrays for all dimensions give an array of
        values. Several arrays beside a slice, or an array of several dimensions, give a list of coordinates in memory.
        All else gives a view, which reads nothing until it is used. A view has no structure. It keeps the attributes,
        and the names and labels of its dimensions.

        Raises
        ------
        IndexError : numpy would refuse the key, or it adds a dimension.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2, 0], [3, 0, 4]], "CSR")
        >>> int(tensor[1, 2]), tensor[:, ::2].to_dense().tolist()
        (4, [[0, 0], [3, 4]])
        """
        return selecting.select(self, key)

    def locate(self, coords: Sequence[npt.ArrayLike]) -> Array:
        """The positions of entries among `values`, as an int64 array; -1 where nothing is stored.

        Parameters
        ----------
        coords : an integer array for each dimension, all of one length. Of a structure only its triangle is stored.

        Raises
        ------
        IndexError, ArrayError : a coordinate is out of range, or the arrays do not fit each other.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").locate([[2, 1]]).tolist()
        [1, -1]
        """
        return self._held.locate(checked_places(coords, self.shape), self._pad())

    def sel(self, labels: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
        """Select by label, with xarray's conventions; otherwise as an index does.

        A label removes its dimension, and several labels keep their order. A slice has both its ends, and selects the
        labels between them, whatever their order; in a slice of times, "2026-03" is the whole month. A label of several
        coordinates selects them all. Coordinates without labels are their own labels.

        Parameters
        ----------
        labels, named : the labels by dimension, which has a name, or in `labels` a number.

        Raises
        ------
        LabelError : no coordinate has a label. It is a KeyError, too.
        IndexError : no dimension has this name.
        ArrayError : damaged labels.

        >>> import pyarrow
        >>> from binsparse_levels import from_table
        >>> table = pyarrow.table({"user": [7, 9], "item": ["pen", "ink"], "value": [1.5, 2.5]})
        >>> tensor = from_table(table, ["user", "item"], "value", "CSR")
        >>> float(tensor.sel(user=9, item="ink")), tensor.sel(item=["ink", "pen"]).labels("item").tolist()
        (2.5, ['ink', 'pen'])
        """
        return naming.sel(self, {**(labels or {}), **named})

    def isel(self, indices: Mapping[Any, Any] | None = None, /, **named: Any) -> Any:
        """Select by coordinate along dimensions by name. Others stay whole. Raises IndexError as an index does.

        Parameters
        ----------
        indices, named : integers, slices and arrays by dimension, as for `sel`.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR", dims=["user", "day"])
        >>> tensor.isel(day=0).to_dense().tolist()
        [0, 3]
        """
        return naming.isel(self, {**(indices or {}), **named})

    def permute(self, axes: Sequence[Dimension]) -> Tensor:
        """The same entries with the dimensions in another order. The arrays are shared.

        Parameters
        ----------
        axes : dimension k of the result is dimension axes[k] of this tensor, by number or name.

        Raises
        ------
        FormatError : `axes` is no permutation.

        >>> pack([[0], [1], [2]], [1], (2, 3, 5), "sparse(3)").permute((2, 0, 1)).shape
        (5, 2, 3)
        """
        return changing.permuted(self, checked_axes(naming.numbered(self, axes), self.ndim))

    @property
    def T(self) -> Tensor:
        """The same entries with the dimensions reversed."""
        return self.permute(range(self.ndim)[::-1])

    def load(self, format: FormatLike | None = None) -> Tensor:
        """Read the entries and labels into memory. A view gets arrays of its own, and no more than it needs is read.

        Parameters
        ----------
        format : by default the format does not change.

        Raises
        ------
        ArrayError, ContainerError, FormatError, LimitError : as `read` and `convert` raise them.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "CSR")[1:].load("COO").values.tolist()
        [3]
        """
        own, metadata = self._held.own(self._pad()), self._metadata
        if metadata.labels is not None and metadata.labels.lazy:
            metadata = replace(metadata, labels=metadata.labels.loaded())
        if own is self._held:  # what was read is kept, so that nothing holds the file
            self._metadata = metadata
        whole = self if own is self._held else self._of(own, metadata)
        return whole if format is None else whole.convert(format)

    def slabs(self, dimension: Dimension, *, max_bytes: int) -> Iterator[tuple[range, Tensor]]:
        """Iterate over parts along a dimension: the coordinates of each part, and a tensor in memory.

        Along the outermost stored dimension of dense and sparse levels, each entry is read once. Along another, it is
        read once to count, and once for each part. With other kinds, a part that turns out too large is halved. A
        structure is expanded first, and a map is removed.

        Parameters
        ----------
        dimension : counted from 0, or from -1 backwards; or a name.
        max_bytes : the most that the arrays of a part take.

        Raises
        ------
        LimitError : one coordinate alone takes more.
        IndexError : there is no such dimension.

        >>> from binsparse_levels import pack_dense
        >>> [(part, slab.shape) for part, slab in pack_dense([[0, 2], [3, 0]], "CSR").slabs(0, max_bytes=100)]
        [(range(0, 2), (2, 2))]
        """
        whole = changing.expanded(self.without_map())
        yield from selecting.slabs(whole, naming.dimension_of(self, dimension), max_bytes)

    # What it does

    def check(self) -> None:
        """Check every invariant again. Raises ArrayError with the place of every fault.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").check()
        """
        stored = self._held.own(self._pad()).stored
        stored.check("full")
        raise_if(ArrayError, stored.diagonal_problems())

    def unpack(self, dtype: Literal["stored"] | None = None) -> tuple[tuple[Array, ...], Array]:
        """The stored entries in stored order: a tuple of coordinates for each dimension, and the values.

        With a structure, these are the entries of its triangle. With a map, padding holds no entries.

        Parameters
        ----------
        dtype : of the coordinates, by default int64. "stored" takes less memory and time: of each dimension the stored
            type, and the narrowest that holds it in place of 64 bits.

        >>> from binsparse_levels import pack_dense
        >>> coords, values = pack_dense([[0, 2], [3, 0]], "CSR").unpack()
        >>> [x.tolist() for x in coords], values.tolist()
        ([[0, 1], [1, 0]], [2, 3])
        """
        return changing.entries(self, dtype)

    def to_dense(self, fill: Any = None, *, limits: Limits | None = None) -> Array:
        """A numpy array of the tensor's shape and type. A structure is expanded.

        Parameters
        ----------
        fill : the value of cells that are not stored; by default the fill value, or zero.
        limits : `dense_bytes` is the most that the array takes.

        Raises
        ------
        LimitError : the array is larger.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1, 2], 3, "CVEC").to_dense(fill=7).tolist()
        [1, 7, 2]
        """
        limits = self.limits if limits is None else limits
        return changing.to_dense(self, self._pad() if fill is None else checked_fill(fill, self.dtype), limits)

    def with_map(self, map: IndexMap) -> Tensor:
        """See this tensor through a map: a tensor of shape `map.shape` that stores the same arrays.

        Parameters
        ----------
        map : its `stored_shape` is the shape of this tensor. If this tensor has a map too, the result has one map that
            does what both do. Values stored at padding are no entries.

        Raises
        ------
        FormatError : the shapes differ, this tensor has a structure, or the maps do not become one.

        >>> from binsparse_levels import IndexMap, pack
        >>> stored = pack([[1, 2]], [2, 3], 4, "CVEC", fill_value=0)
        >>> stored.with_map(IndexMap.grouping((2, 2), (0, 1), ())).to_dense().tolist()
        [[0, 2], [3, 0]]
        """
        return changing.seen_through(self, map)

    def without_map(self, format: FormatLike | None = None, *, limits: Limits | None = None) -> Tensor:
        """The same entries without a map.

        Parameters
        ----------
        format : by default a tensor with a map becomes a list of coordinates, and another stays as it is.

        Raises
        ------
        FormatError, LimitError : as `convert` raises them.

        >>> from binsparse_levels import pack_dense
        >>> str(pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").without_map("CSR").format)
        'CSR'
        """
        return changing.without_map(self, format, limits)

    def dm(self) -> DimensionMap:
        """The strides and offsets of a map that groups dimensions, of a view too; see `IndexMap.dm`.

        Raises FormatError for another map, or none.

        >>> from binsparse_levels import IndexMap, pack_dense
        >>> grouped = pack_dense([[0, 2], [3, 0]], "sparse", map=IndexMap.grouping((2, 2), (0, 1), ()))
        >>> grouped.dm().strides
        ((2, 1),)
        """
        return self._held.dm()

    def convert(self, format: FormatLike, *, map: MapLike | None = None, limits: Limits | None = None) -> Tensor:
        """The same entries in another format.

        Formats with one order of the dimensions share the values, and the indices that list every entry. A format that
        stores more than entries, such as one that ends with a dense level, is padded with the fill value, or zero. The
        padding counts as entries from then on; `drop_fill` removes it.

        Parameters
        ----------
        format : of the stored tensor. `LEVELS through MAP` names both: `sparse, sparse(3) through 0/8, 1/8, 0%8, 1%8`.
        map : an index map or its notation. By default the tensor keeps its map; `without_map` removes it. A new map
            expands the structure.

        Raises
        ------
        FormatError : the format cannot hold the tensor.
        LimitError : the arrays would be too large.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> tensor.convert("CSC").values.tolist(), tensor.convert("sparse", map="(1 0)").values.tolist()
        ([3, 2], [3, 2])
        """
        return changing.converted(self, *with_map(format, map), self.limits if limits is None else limits)

    def drop_fill(self) -> Tensor:
        """A tensor of the same format without the entries that equal the fill value, or zero if there is none.

        A format that ends with a dense level stores them again; convert it first.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [0, 2], 3, "CVEC").drop_fill().values.tolist()
        [2]
        """
        return changing.drop_fill(self)

    def astype(self, dtype: npt.DTypeLike) -> Tensor:
        """The same tensor with values of another type, cast as numpy casts them. The other arrays are shared.

        Parameters
        ----------
        dtype : a type of numpy.

        Raises
        ------
        ArrayError, FormatError : no tensor, or none of this structure, has the type, or the mirror images would differ.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1.5, 2.5], 3, "CVEC").astype("int8").values.tolist()
        [1, 2]
        """
        return changing.astype(self, checked_type(dtype))

    def with_values(self, values: npt.ArrayLike, *, fill_value: Any = None) -> Tensor:
        """The same tensor with other values at the same places, such as a function of `values`. The rest is shared.

        Parameters
        ----------
        values : an array as long as `values`, or a scalar for all.
        fill_value : by default the same number.

        Raises
        ------
        ArrayError, FormatError : the length differs, or no tensor, or none of this structure, has the type.

        >>> from binsparse_levels import pack
        >>> tensor = pack([[0, 2]], [4.0, 9.0], 3, "CVEC")
        >>> tensor.with_values(np.sqrt(tensor.values)).to_dense().tolist()
        [2.0, 0.0, 3.0]
        """
        return changing.with_values(self, values, fill_value)

    def equals(self, other: Tensor) -> bool:
        """Whether both have the same shape, entries and fill value, in whatever formats and through whatever maps.

        NaN equals NaN. Types do not matter, only values, as in numpy. No fill value is zero. A stored fill value counts
        as an entry. Labels of a dimension count where both tensors have some.

        Parameters
        ----------
        other : a tensor; anything else is not equal.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> tensor.equals(tensor.convert("COO")), tensor.equals(tensor.T)
        (True, False)
        """
        return isinstance(other, Tensor) and changing.equal(self, other)

    def expand_structure(self) -> Tensor:
        """The same matrix without a structure: it stores the entries of both triangles in the same format.

        >>> from binsparse_levels import pack
        >>> lower = pack([[0, 1], [0, 0]], [1, 5], (2, 2), "CSR", structure="symmetric_lower")
        >>> lower.expand_structure().to_dense().tolist()
        [[1, 5], [5, 0]]
        """
        return changing.without_structure(self)

    def with_structure(self, structure: str) -> Tensor:
        """The same matrix with one triangle stored, the inverse of `expand_structure`.

        Parameters
        ----------
        structure : one of the six structures of Binsparse, such as "symmetric_lower".

        Raises ArrayError, with a place, for triangles that contradict each other, and FormatError for a shape, type or
        map that no structure has.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[1, 5], [5, 0]], "CSR").with_structure("symmetric_lower").number_of_stored_values
        2
        """
        return changing.with_structure(self, structure)

    def __binsparse_descriptor__(self) -> dict[str, Any]:
        """The descriptor, a dictionary with the key `binsparse`. The protocol is a draft and may change."""
        return encode_tensor(self)[0]

    def __binsparse__(self) -> dict[str, Array]:
        """The arrays by name, as a container holds them. The protocol is a draft and may change."""
        return encode_tensor(self)[1]
