"""The contents of a tensor, and the properties that follow from them."""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import ArrayError, FormatError, Problem, did_you_mean, raise_if, within_memory
from ..formats.format import Format, notation
from ..formats.index_map import DimensionMap, IndexMap
from ..levels.positions import Array
from ..limits import Limits
from .backing import Backing
from .boxes import Box
from .inside import Inside
from .labels import Column
from .validation import checked_dimension, checked_json, checked_places
from .views import Joined, Mapped

Dimension: TypeAlias = int | str  # a number, counted from 0 or from -1 backwards, or a name
T = TypeVar("T", bound="Contents")


@within_memory
class Contents:
    """Entries and metadata. Tensor adds the methods, which are functions of the other files of this folder."""

    __slots__ = ("__weakref__", "_inside")
    _inside: Inside

    @property
    def format(self) -> Format:
        """The levels and the transpose of the stored tensor, as the caller spelled them."""
        return self._inside.backing.format

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._inside.backing.shape

    @property
    def map(self) -> IndexMap | None:
        """The index map from the tensor to the stored tensor; None if there is only a transpose."""
        return self._inside.backing.map

    @property
    def notation(self) -> str:
        """The levels, their order and the map as a string, which every function with a format accepts.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack_dense([[0, 2], [3, 0]], "dense, sparse through 1/1, 0").notation
        'CSR through 1, 0'
        """
        return notation(self.format, self.map)

    @property
    def stored(self) -> Self:
        """The stored tensor, which has no map; the tensor itself if it has no map.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").stored.to_dense().tolist()
        [0, 2, 3, 0]
        """
        beneath = self._inside.backing.beneath(self._inside.pad)
        return self if beneath is self._inside.backing else remade(self, beneath, labels=None)

    @property
    def _stored_at(self) -> tuple[str, Collection[str]] | None:
        """The file that the tensor was opened from, and the names of its arrays; None for another tensor."""
        plan = self._inside.backing.plan
        return None if plan.origin is None else (plan.origin.place, {*plan.tree.arrays, "values"})

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._inside.backing.shape)

    @property
    def size(self) -> int:
        """The number of cells, stored or not, as a Python integer of any size."""
        return math.prod(self._inside.backing.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of the values."""
        return self._inside.backing.dtype

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The index and pointer arrays by stored name, read-only."""
        return MappingProxyType(dict(self._inside.in_memory.arrays))

    @property
    def values(self) -> Array:
        """The values by position of the last level, read-only. One value is broadcast; a dictionary is looked up."""
        return self._inside.tree.values

    @property
    def fill_value(self) -> Any:
        """The value of cells that are not stored, as a numpy scalar of the tensor's type, or None."""
        return self._inside.metadata.fill_value

    @property
    def structure(self) -> str | None:
        """The structure of a matrix that stores one triangle, or None."""
        return self._inside.backing.structure

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The user's own JSON."""
        return MappingProxyType(self._inside.metadata.attributes)

    @property
    def descriptor_attributes(self) -> Mapping[str, Any]:
        """The `attributes` inside the descriptor (Binsparse 0.1, section 3.9)."""
        return MappingProxyType(self._inside.metadata.descriptor_attributes)

    @property
    def limits(self) -> Limits:
        """The limits of the call that made or opened the tensor. Tensors made from it have the same limits."""
        return self._inside.backing.plan.limits

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The names of the dimensions, as a table, a file or `with_labels` gave them, or None."""
        return None if self._inside.metadata.labels is None else self._inside.metadata.labels.dims

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the dimensions by name, as of xarray; without names, by `dim_0` and so on.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> dict(bl.pack_dense([[0, 2, 0]], "CSR", dims=["user", "day"]).sizes)
        {'user': 1, 'day': 3}
        """
        return dict(zip(self.dims or [f"dim_{k}" for k in range(self.ndim)], self.shape, strict=True))

    def labels(self, dimension: Dimension) -> Array | None:
        """The labels of a dimension by coordinate, as a numpy array; None if it has no labels.

        Times with a zone are pandas.Timestamp objects. The last coordinates of a dimension that grew may have no label.
        Results of `with_map` and of several index arrays have no names.

        Parameters
        ----------
        dimension : int or str
            Its name, one of `dims`, or its number.

        Returns
        -------
        ndarray or None
            Array with at most `shape[dimension]` items, or None.

        Raises
        ------
        IndexError
            No dimension has this name.
        ArrayError
            The labels in the file are damaged.

        See Also
        --------
        Tensor.with_labels : The same tensor with labels of coordinates and names of dimensions.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> import pyarrow
        >>> table = pyarrow.table({"user": [7, 9], "item": ["pen", "ink"], "value": [1.5, 2.5]})
        >>> tensor = bl.from_table(table, ["user", "item"], "value", "CSR")
        >>> tensor.dims, tensor.shape, tensor.labels("item").tolist()
        (('user', 'item'), (10, 2), ['ink', 'pen'])
        """
        column = labels_of(self, dimension_of(self, dimension))
        if column is None or column.zone is None:
            return None if column is None else column.array()
        return column.index().to_numpy(object)  # type: ignore[no-any-return]

    @property
    def density(self) -> float:
        """The fraction of cells that are stored: `nnz / size`; NaN if there are no cells."""
        return self.number_of_stored_values / self.size if self.size else math.nan

    @property
    def iso(self) -> bool:
        """True if one value is stored for all entries."""
        return self._inside.backing.iso(self._inside.pad)

    @property
    def number_of_stored_values(self) -> int:
        """The number of stored entries; with a structure, those of its triangle. A view counts its entries."""
        return self._inside.backing.count(self._inside.pad)

    @property
    def nnz(self) -> int:
        """The number of stored entries, by scipy's name: `number_of_stored_values`."""
        return self.number_of_stored_values

    @property
    def parts(self) -> tuple[Box, ...]:
        """The parts of a tensor that was opened from a store that grew, or from several files; else none.

        Each has an `origin`, a `shape` and a `notation`; in a store that grew, also a `group`, which can be opened.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> one, other = {}, {}
        >>> bl.write(one, bl.pack_dense([[0, 2]], "CSR")), bl.write(other, bl.pack_dense([[3, 0]], "CSC"))
        (None, None)
        >>> [(part.origin, part.shape, part.notation) for part in bl.open([one, other]).parts]
        [((0, 0), (1, 2), 'CSR'), ((1, 0), (1, 2), 'CSC')]
        """
        backing = self._inside.backing
        return backing.boxes.boxes if isinstance(backing, Joined) and backing.whole else ()

    @property
    def nbytes(self) -> int:
        """The number of bytes of all arrays and values in memory; an iso tensor has one value."""
        return self._inside.backing.nbytes(self._inside.pad)

    def locate(self, coords: Sequence[npt.ArrayLike]) -> Array:
        """The positions of entries in `values`, as an int64 array; -1 where nothing is stored.

        Parameters
        ----------
        coords : sequence of array_like
            An integer array for each dimension, all of one length. With a structure, only its triangle is stored.

        Returns
        -------
        ndarray
            Int64 array of the length of the coordinates.

        Raises
        ------
        IndexError, ArrayError
            A coordinate is out of range, or the arrays do not fit each other.

        See Also
        --------
        Tensor.unpack : Return the stored entries.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack([[0, 2]], [1, 2], 3, "CVEC").locate([[2, 1]]).tolist()
        [1, -1]
        """
        return self._inside.backing.locate(checked_places(coords, self.shape), self._inside.pad)

    def check(self) -> None:
        """Check every invariant again.

        Raises
        ------
        ArrayError
            With the location of every fault.

        See Also
        --------
        Tensor.equals : Return True if both have the same shape, entries and fill value.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> bl.pack([[0, 2]], [1, 2], 3, "CVEC").check()
        """
        stored = self._inside.own.stored
        stored.check("full")
        raise_if(ArrayError, stored.diagonal_problems())

    def dm(self) -> DimensionMap:
        """The strides and offsets of a map that groups dimensions, also for a view; see `IndexMap.dm`.

        Returns
        -------
        DimensionMap
            DimensionMap.

        Raises
        ------
        FormatError
            The tensor has no map, or a map of another form.

        See Also
        --------
        Tensor.with_map : See this tensor through a map.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> grouped = bl.pack_dense([[0, 2], [3, 0]], "sparse", map=bl.IndexMap.grouping((2, 2), (0, 1), ()))
        >>> grouped.dm().strides
        ((2, 1),)
        """
        return self._inside.backing.dm()

    def with_map(self, map: IndexMap) -> Self:
        """See this tensor through a map: a tensor of shape `map.shape` that stores the same arrays.

        Parameters
        ----------
        map : IndexMap
            Its `stored_shape` is the shape of this tensor. If this tensor has a map too, the result has one map that
            composes both. Values stored at padding are not entries.

        Returns
        -------
        Tensor
            Tensor of shape `map.shape`.

        Raises
        ------
        FormatError
            The shapes differ, this tensor has a structure, or the maps cannot be composed.

        See Also
        --------
        Tensor.without_map : The same entries without a map.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> stored = bl.pack([[1, 2]], [2, 3], 4, "CVEC", fill_value=0)
        >>> stored.with_map(bl.IndexMap.grouping((2, 2), (0, 1), ())).to_dense().tolist()
        [[0, 2], [3, 0]]
        """
        stored, own = self.stored, self.map
        whole = map if own is None else map.then(own)
        made = Mapped(stored._inside.backing, whole)
        if whole.stored_shape != stored.shape:
            what = f"stores a tensor of shape {whole.stored_shape}, and this one has {stored.shape}"
            raise FormatError(Problem("map", what))
        return remade(stored, made, labels=None)

    def with_attributes(self, attributes: Mapping[str, Any] | None, *, limits: Limits | None = None) -> Self:
        """The same tensor with other attributes, which replace all existing ones. The arrays are shared.

        Parameters
        ----------
        attributes : mapping
            JSON object that is stored with the tensor.
        limits : Limits, optional
            Bounds on the resources of this call.

        Returns
        -------
        Tensor
            Tensor of the same shape.

        Raises
        ------
        TypeError, DescriptorError, LimitError
            The attributes are not JSON, or too long.

        See Also
        --------
        Tensor.with_labels : The same tensor with labels of coordinates and names of dimensions.

        Examples
        --------
        >>> import binsparse_levels as bl
        >>> tensor = bl.pack([[0, 2]], [1, 2], 3, "CVEC").with_attributes({"unit": "m"})
        >>> dict(tensor.attributes)
        {'unit': 'm'}
        """
        kept = checked_json(attributes, self.limits if limits is None else limits)
        return remade(self, attributes=kept)

    def __enter__(self) -> Self:
        """The tensor itself. At the end of the block, the file of `open` is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        if (close := self._inside.file) is not None:
            close()

    def __dask_tokenize__(self) -> str:
        """A hash of the contents; for an opened tensor, of the file, its token and the view."""
        buffers: list[pickle.PickleBuffer] = []
        digest = hashlib.blake2b(pickle.dumps(self, 5, buffer_callback=buffers.append), digest_size=16)
        for buffer in buffers:
            digest.update(buffer.raw())
        return digest.hexdigest()


def dimension_of(tensor: Contents, dimension: Any) -> int:
    """The number of a dimension given by number or name. Raises IndexError, TypeError."""
    if not isinstance(dimension, str):
        return checked_dimension(dimension, tensor.ndim)
    names = tensor.dims or ()
    if dimension not in names:
        known = f"{did_you_mean(dimension, names)}they are {', '.join(names):.200}"
        known = known if names else "none has one; count from 0, or name them by with_labels(dims=names)"
        raise IndexError(f"no dimension has the name {dimension!r:.40}; {known}")
    return names.index(dimension)


def labels_of(tensor: Contents, k: int) -> Column | None:
    """The labels of a dimension."""
    labels = tensor._inside.metadata.labels
    return None if labels is None else labels.columns.get(labels.dims[k])


def remade(tensor: T, backing: Backing | None = None, **metadata: Any) -> T:
    """The same tensor with another backing or other metadata."""
    old, new = tensor._inside, type(tensor).__new__(type(tensor))
    kept = replace(old.metadata, **metadata) if metadata else old.metadata
    new._inside = Inside(old.backing if backing is None else backing, kept)
    return new
