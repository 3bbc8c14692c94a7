"""What a tensor contains, and what this tells of the tensor."""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from ..engine.tree import Tree
from ..errors import OptionError, Problem, within_memory
from ..formats.format import Format, notation
from ..formats.index_map import IndexMap
from ..levels.positions import Array
from ..limits import Limits
from .held import Held
from .labels import Column, Labels, column_of
from .refusing import Refusals
from .validation import checked_dimension, checked_json, pad_of

Dimension: TypeAlias = int | str  # a number, counted from 0 or from -1 backwards, or a name


@dataclass(frozen=True, eq=False)
class Metadata:
    """What travels beside the entries of a tensor, in the tensor's own coordinates.

    attributes: the user's JSON. descriptor_attributes: the same inside the descriptor (section 3.9). labels: the names
    of the dimensions, and labels of coordinates.
    """

    fill_value: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    descriptor_attributes: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels | None = None


@within_memory
class Contents(Refusals):
    """Entries and metadata. What is done with them are functions of the files beside, and the methods of Tensor."""

    __slots__ = ("__weakref__", "_file", "_held", "_metadata")

    def _set(self, held: Held, metadata: Metadata) -> None:
        self._held = held
        self._metadata = metadata
        self._file: Callable[[], Any] | None = None  # closes the file that `open` has opened

    @classmethod
    def _of(cls, held: Held, metadata: Metadata) -> Self:
        """A tensor around what needs no check, or is checked when it is read."""
        self = cls.__new__(cls)
        self._set(held, metadata)
        return self

    def _labelled(self, labels: Labels | None) -> Self:
        """The same tensor with other names and labels."""
        return self._of(self._held, replace(self._metadata, labels=labels))

    def _pad(self) -> Any:
        """The value of cells that are not stored: the fill value, or zero."""
        return pad_of(self._metadata.fill_value, self._held.dtype)

    @property
    def _tree(self) -> Tree:
        """The stored tree in memory. The first access reads and checks a lazy tree, and makes that of a view."""
        return self._held.own(self._pad()).stored.tree

    @property
    def _source(self) -> Tree:
        """The tree whose arrays are held, perhaps lazy, of a view that of the whole. Nothing is read."""
        return self._held.stored.tree

    @property
    def format(self) -> Format:
        """The levels and the transpose of the stored tensor, spelled as they were given."""
        return self._held.format

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._held.shape

    @property
    def map(self) -> IndexMap | None:
        """The index map from the tensor to the stored tensor; None if the format's transpose is all.

        >>> from binsparse_levels import pack_dense
        >>> str(pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").map)
        '(0 1)'
        """
        return self._held.map

    @property
    def notation(self) -> str:
        """The levels, their order and the map as one text, which every function with a format takes.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "dense, sparse through 1/1, 0").notation
        'CSR through 1, 0'
        """
        return notation(self.format, self.map)

    @property
    def stored(self) -> Self:
        """The stored tensor, which has no map; the tensor itself if it has no map.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").stored.to_dense().tolist()
        [0, 2, 3, 0]
        """
        beneath = self._held.beneath(self._pad())
        return self if beneath is self._held else self._of(beneath, replace(self._metadata, labels=None))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._held.shape)

    @property
    def size(self) -> int:
        """The number of cells, stored or not, as a Python integer of any size."""
        return math.prod(self._held.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    @property
    def dtype(self) -> np.dtype[Any]:
        """numpy's type of the values."""
        return self._held.dtype

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The index and pointer arrays by stored name, read-only."""
        return MappingProxyType(dict(self._tree.arrays))

    @property
    def values(self) -> Array:
        """The values by position of the last level, read-only. An iso tensor broadcasts its one value."""
        return self._tree.values

    @property
    def fill_value(self) -> Any:
        """The value of cells that are not stored, as a numpy scalar of the tensor's type, or None."""
        return self._metadata.fill_value

    @property
    def structure(self) -> str | None:
        """The structure of a matrix that stores one triangle, or None."""
        return self._held.structure

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The user's own JSON."""
        return MappingProxyType(self._metadata.attributes)

    @property
    def descriptor_attributes(self) -> Mapping[str, Any]:
        """The `attributes` inside the descriptor (Binsparse 0.1, section 3.9)."""
        return MappingProxyType(self._metadata.descriptor_attributes)

    @property
    def limits(self) -> Limits:
        """The limits of the call that made or opened the tensor. What is made of it keeps to them."""
        return self._held.stored.limits

    @property
    def dims(self) -> tuple[str, ...] | None:
        """The names of the dimensions, as a table, a file or `with_labels` gave them, or None."""
        return None if self._metadata.labels is None else self._metadata.labels.dims

    def labels(self, dimension: Dimension) -> Array | None:
        """The labels of a dimension by coordinate, as an array of numpy; None where coordinates are their own labels.

        Coordinates behind the last label have none. `with_map` and lists of coordinates by index arrays have no names.

        Parameters
        ----------
        dimension : its name, one of `dims`, or its number.

        Raises
        ------
        IndexError : no dimension has this name.
        ArrayError : the labels in the file are damaged.

        >>> import pyarrow
        >>> from binsparse_levels import from_table
        >>> table = pyarrow.table({"user": [7, 9], "item": ["pen", "ink"], "value": [1.5, 2.5]})
        >>> tensor = from_table(table, ["user", "item"], "value", "CSR")
        >>> tensor.dims, tensor.shape, tensor.labels("item").tolist()
        (('user', 'item'), (10, 2), ['ink', 'pen'])
        """
        column = labels_of(self, dimension_of(self, dimension))
        return None if column is None else column.array()

    def with_labels(
        self, labels: Mapping[Dimension, npt.ArrayLike | None] | None = None, *, dims: Sequence[str] | None = None
    ) -> Self:
        """The same tensor with labels of coordinates and names of dimensions. The arrays are shared.

        Parameters
        ----------
        labels : an array of texts, numbers, booleans or times by dimension; others keep their labels. None in place of
            an array removes the labels of a dimension.
        dims : the names of all dimensions. By default they stay, or are `dim_0` and so on.

        Raises
        ------
        ArrayError : there are more labels than coordinates, or no labels have this type.
        OptionError, IndexError : the names do not fit, or no dimension has this name.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR").with_labels({"item": ["pen", "ink"]}, dims=["user", "item"])
        >>> tensor.sel(item="ink").to_dense().tolist()
        [2, 0]
        """
        known = self._metadata.labels or Labels(tuple(f"dim_{k}" for k in range(self.ndim)))
        names = known.dims if dims is None else tuple(dims)
        if len(set(names)) != self.ndim or len(names) != self.ndim or not all(isinstance(x, str) for x in names):
            raise OptionError(Problem("dims", f"expected {self.ndim} different names, got {names!s:.60}"))
        columns = {new: known.columns[old] for old, new in zip(known.dims, names, strict=True) if old in known.columns}
        named = self._labelled(Labels(names, columns, known.values))
        for dimension, array in (labels or {}).items():
            k = dimension_of(named, dimension)
            columns.pop(names[k], None)
            if array is not None:
                columns[names[k]] = column_of(array, names[k], self.shape[k])
        return named

    def _named(self, labels: Mapping[Dimension, npt.ArrayLike | None] | None, dims: Sequence[str] | None) -> Self:
        """`with_labels` where there are any."""
        return self if labels is None and dims is None else self.with_labels(labels, dims=dims)

    @property
    def density(self) -> float:
        """The share of cells that are stored: `nnz / size`; NaN where there are no cells."""
        return self.number_of_stored_values / self.size if self.size else math.nan

    @property
    def iso(self) -> bool:
        """Whether one value stands for all stored ones."""
        held = self._held
        return held.stored.tree.iso and held.perhaps_lazy(self._pad()).iso

    @property
    def number_of_stored_values(self) -> int:
        """The number of stored entries; with a structure, those of its triangle. A view counts its entries."""
        return self._held.count(self._pad())

    @property
    def nnz(self) -> int:
        """The number of stored entries, as scipy calls it: `number_of_stored_values`."""
        return self.number_of_stored_values

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays and values in memory; an iso tensor has one value."""
        tree = self._held.perhaps_lazy(self._pad())
        sizes = [len(array) * array.dtype.itemsize for array in tree.arrays.values()]
        return sum(sizes) + (1 if tree.iso else len(tree.values)) * tree.values.dtype.itemsize

    def with_attributes(self, attributes: Mapping[str, Any] | None, *, limits: Limits | None = None) -> Self:
        """The same tensor with other attributes, which replace all that it has. The arrays are shared.

        Parameters
        ----------
        attributes, limits : as for Tensor. None removes them.

        Raises
        ------
        TypeError, DescriptorError, LimitError : the attributes are no JSON, or too long.

        >>> from binsparse_levels import pack
        >>> tensor = pack([[0, 2]], [1, 2], 3, "CVEC").with_attributes({"unit": "m"})
        >>> dict(tensor.attributes)
        {'unit': 'm'}
        """
        kept = checked_json(attributes, self.limits if limits is None else limits)
        return self._of(self._held, replace(self._metadata, attributes=kept))

    def __enter__(self) -> Self:
        """The tensor itself. At the end of the block, the file that `open` has opened is closed."""
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file()

    def __reduce__(self) -> tuple[Any, ...]:
        labels = self._metadata.labels
        metadata = self._metadata if labels is None else replace(self._metadata, labels=labels.loaded())
        return type(self)._of, (self._held, metadata)

    def __dask_tokenize__(self) -> str:
        """What tells tensors apart: of an opened tensor the file, its token and the steps of the view."""
        buffers: list[pickle.PickleBuffer] = []
        digest = hashlib.blake2b(pickle.dumps(self, 5, buffer_callback=buffers.append), digest_size=16)
        for buffer in buffers:
            digest.update(buffer.raw())
        return digest.hexdigest()


def dimension_of(tensor: Contents, asked: Any) -> int:
    """The number of a dimension. Raises IndexError, TypeError."""
    if not isinstance(asked, str):
        return checked_dimension(asked, tensor.ndim)
    names = tensor.dims or ()
    if asked not in names:
        known = f"they are {', '.join(names):.200}" if names else "none has one; count from 0"
        raise IndexError(f"no dimension has the name {asked!r:.40}; {known}")
    return names.index(asked)


def labels_of(tensor: Contents, k: int) -> Column | None:
    """The labels of a dimension."""
    labels = tensor._metadata.labels
    return None if labels is None else labels.columns.get(labels.dims[k])
