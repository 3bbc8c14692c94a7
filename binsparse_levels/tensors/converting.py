"""The methods of a tensor that convert it: its format, map, structure, type and values."""

from __future__ import annotations

from typing import Any, Self

import numpy.typing as npt

from ..errors import within_memory
from ..formats.format import FormatLike, with_map
from ..formats.index_map import IndexMap, MapLike
from ..limits import Limits
from . import changing
from .delegating import Delegating
from .validation import checked_type


@within_memory
class Converting(Delegating):
    """Conversions of a tensor. They are functions of `changing`."""

    __slots__ = ()

    def convert(self, format: FormatLike, *, map: MapLike | None = None, limits: Limits | None = None) -> Self:
        """The same entries in another format.

        Formats with the same order of dimensions share the values, and the indices that list every entry. A format that
        stores cells without entries, such as one that ends with a dense level, is padded with the fill value, or zero.
        The padding counts as entries afterwards; `drop_fill` removes it.

        Parameters
        ----------
        format : of the stored tensor. `LEVELS through MAP` has a map: `sparse, sparse(3) through 0/8, 1/8, 0%8, 1%8`.
        map : an index map or its notation. By default the tensor keeps its map; `without_map` removes it. A new map
            expands the structure.
        limits : by default those of this tensor.

        Returns
        -------
        Tensor of the same shape.

        Raises
        ------
        FormatError : the format cannot represent the tensor.
        LimitError : the arrays would be too large.

        >>> from binsparse_levels import pack_dense
        >>> tensor = pack_dense([[0, 2], [3, 0]], "CSR")
        >>> tensor.convert("CSC").values.tolist(), tensor.convert("sparse", map="(1 0)").values.tolist()
        ([3, 2], [3, 2])
        """
        return changing.converted(self, *with_map(format, map), self.limits if limits is None else limits)

    def with_map(self, map: IndexMap) -> Self:
        """See this tensor through a map: a tensor of shape `map.shape` that stores the same arrays.

        Parameters
        ----------
        map : its `stored_shape` is the shape of this tensor. If this tensor has a map too, the result has one map that
            composes both. Values stored at padding are not entries.

        Returns
        -------
        Tensor of shape `map.shape`.

        Raises
        ------
        FormatError : the shapes differ, this tensor has a structure, or the maps cannot be composed.

        >>> from binsparse_levels import IndexMap, pack
        >>> stored = pack([[1, 2]], [2, 3], 4, "CVEC", fill_value=0)
        >>> stored.with_map(IndexMap.grouping((2, 2), (0, 1), ())).to_dense().tolist()
        [[0, 2], [3, 0]]
        """
        return changing.seen_through(self, map)

    def without_map(self, format: FormatLike | None = None, *, limits: Limits | None = None) -> Self:
        """The same entries without a map.

        Parameters
        ----------
        format : by default a list of coordinates; a tensor without a map is returned unchanged.
        limits : by default those of this tensor.

        Returns
        -------
        Tensor of the same shape.

        Raises
        ------
        FormatError, LimitError : as for `convert`.

        >>> from binsparse_levels import pack_dense
        >>> str(pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").without_map("CSR").format)
        'CSR'
        """
        return changing.without_map(self, format, limits)

    def drop_fill(self) -> Self:
        """A tensor of the same format without the entries that equal the fill value, or zero if it is None.

        A format that ends with a dense level stores them again; convert it first.

        Returns
        -------
        Tensor of the same shape.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [0, 2], 3, "CVEC").drop_fill().values.tolist()
        [2]
        """
        return changing.drop_fill(self)

    def astype(self, dtype: npt.DTypeLike) -> Self:
        """The same tensor with values of another type, cast by numpy's rules. The other arrays are shared.

        Parameters
        ----------
        dtype : a numpy dtype.

        Returns
        -------
        Tensor of the same shape.

        Raises
        ------
        ArrayError : tensors do not support the type.
        FormatError : this structure does not support the type, or the mirror images would differ.

        >>> from binsparse_levels import pack
        >>> pack([[0, 2]], [1.5, 2.5], 3, "CVEC").astype("int8").values.tolist()
        [1, 2]
        """
        return changing.astype(self, checked_type(dtype))

    def with_values(self, values: npt.ArrayLike, *, fill_value: Any = None) -> Self:
        """The same entries with other values, such as a function of `values`. The other arrays are shared.

        Parameters
        ----------
        values : an array of the length of `values`, or a scalar for all.
        fill_value : by default that of this tensor.

        Returns
        -------
        Tensor of the same shape, with the type of `values`.

        Raises
        ------
        ArrayError : the length differs, or tensors do not support the type.
        FormatError : this structure does not support the type.

        >>> from binsparse_levels import pack
        >>> tensor = pack([[0, 2]], [4.0, 9.0], 3, "CVEC")
        >>> tensor.with_values(np.sqrt(tensor.values)).to_dense().tolist()
        [2.0, 0.0, 3.0]
        """
        return changing.with_values(self, values, fill_value)

    def expand_structure(self) -> Self:
        """The same matrix without a structure: it stores the entries of both triangles in the same format.

        Returns
        -------
        Tensor of the same shape.

        >>> from binsparse_levels import pack
        >>> lower = pack([[0, 1], [0, 0]], [1, 5], (2, 2), "CSR", structure="symmetric_lower")
        >>> lower.expand_structure().to_dense().tolist()
        [[1, 5], [5, 0]]
        """
        return changing.without_structure(self)

    def with_structure(self, structure: str) -> Self:
        """The same matrix with one triangle stored, the inverse of `expand_structure`.

        Parameters
        ----------
        structure : one of the six structures of Binsparse, such as "symmetric_lower".

        Returns
        -------
        Tensor of the same shape.

        Raises
        ------
        ArrayError : the triangles contradict each other. The error says where.
        FormatError : structures do not support the shape, the type or the map.

        >>> from binsparse_levels import pack_dense
        >>> pack_dense([[1, 5], [5, 0]], "CSR").with_structure("symmetric_lower").number_of_stored_values
        2
        """
        return changing.with_structure(self, structure)
