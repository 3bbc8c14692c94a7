"""Conversions of tensors: formats, maps, structures and types; sorted entries and dense arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..arrays import one_piece, repeat_one
from ..engine import packing
from ..engine.tree import Tree, index_dtype
from ..errors import ArrayError, FormatError, OptionError, Problem, raise_if
from ..formats.descriptor import array_classes
from ..formats.dictionary import Dictionary, encode
from ..formats.dtypes import data_type_of
from ..formats.format import Format, FormatLike, coordinates, with_map
from ..formats.index_map import IndexMap, MapLike, parse_map
from ..formats.structure import expand, in_triangle, structure_problems, symmetry_problems
from ..levels.base import Array
from ..limits import Limits
from .backing import Listed, TreeBacking, packed
from .blocks import block_of, blocked, converts, listed
from .contents import Contents, remade
from .validation import (
    checked_format,
    differ,
    fitting_format,
    mirror_problems,
)
from .views import Mapped, around

Self = TypeVar("Self", bound=Contents)


# Methods of Tensor, which lists them


def convert(
    self: Self,
    format: FormatLike,
    *,
    map: MapLike | None = None,
    narrow: bool = False,
    dictionary: bool = False,
    limits: Limits | None = None,
) -> Self:
    """The same entries in another format.

    Formats with the same order of dimensions share the values, and the indices that list every entry. A format that
    stores cells without entries, such as one that ends with a dense level, is padded with the fill value, or zero.
    The padding counts as entries afterwards; `drop_fill` removes it.

    Parameters
    ----------
    format : str, Format or mapping
        Format of the stored tensor. `LEVELS through MAP` has a map: `sparse, sparse(3) through 0/8, 1/8, 0%8, 1%8`.
    map : str or IndexMap, optional
        An index map or its notation. By default the tensor keeps its map; `without_map` removes it. A new map expands
        the structure.
    narrow : bool, default False
        Store each index and pointer array as the smallest sufficient unsigned integers. A later conversion stores the
        arrays that it makes as int32 or int64.
    dictionary : bool, default False
        Store values as a table of distinct entries, and codes of one or two bytes. Products and sums look up the
        entries; conversions without a map, slices, and functions of one tensor keep the dictionary.
    limits : Limits, optional
        Bounds on the resources of this call; by default those of this tensor.

    Returns
    -------
    Tensor
        Tensor of the same shape.

    Raises
    ------
    FormatError
        The format cannot represent the tensor.
    LimitError
        The arrays would be too large.
    OptionError
        A dictionary would not be smaller than the values, or has more than 65,536 entries.

    See Also
    --------
    Tensor.load : Read the tensor into memory.
    Tensor.without_map : The same entries without a map.
    advise : Rank formats by size.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack_dense([[0, 2], [3, 0]], "CSR")
    >>> tensor.convert("CSC").values.tolist(), tensor.convert("sparse", map="(1 0)").values.tolist()
    ([3, 2], [3, 2])
    >>> tensor.convert("CSR", narrow=True).arrays["indices_1"].dtype.name
    'uint8'
    """
    if narrow or dictionary:
        made = convert(self, format, map=map, limits=limits)
        stored = made._inside.own.stored
        tree = stored.tree.narrowed() if narrow else stored.tree
        return with_tree(made, stored.format, _with_dictionary(tree) if dictionary else tree)
    (format, map), limits = with_map(format, map), self.limits if limits is None else limits
    if map is None:
        return _of_stored(self, format, limits)
    target, whole = parse_map(map, self.shape), expanded(self)
    parsed = fitting_format(format, target.stored_shape, limits)
    if whole.map is None and (block := block_of(parsed, target)) and converts(whole.format, whole._inside.tree):
        stored = TreeBacking(parsed, blocked(whole._inside.tree, parsed, block, self._inside.pad, limits), limits)
        return remade(whole, Mapped(stored, target))
    coords, values = entries(whole)
    shape = target.stored_shape
    return with_entries(whole, target.forward(coords), values, format, limits, shape=shape, map=target)


def without_map(self: Self, format: FormatLike | None = None, *, limits: Limits | None = None) -> Self:
    """The same entries without a map.

    Parameters
    ----------
    format : str, Format or mapping, optional
        Format of the result; by default a list of coordinates; a tensor without a map is returned unchanged.
    limits : Limits, optional
        Bounds on the resources of this call; by default those of this tensor.

    Returns
    -------
    Tensor
        Tensor of the same shape.

    Raises
    ------
    FormatError, LimitError
        See `convert`.

    See Also
    --------
    Tensor.with_map : See this tensor through a map.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> str(bl.pack_dense([[0, 2], [3, 0]], "sparse", map="(0 1)").without_map("CSR").format)
    'CSR'
    """
    limits = self.limits if limits is None else limits
    if self.map is None:
        return self if format is None else _of_stored(self, format, limits)
    if format is None:  # a list of coordinates of rank 0 always has one entry
        format = self.format if self.ndim == self.format.rank == 0 else coordinates(self.ndim)
    stored, (rows, _) = self.stored, checked_format(format, self.shape, limits)
    plain = not self._inside.backing.viewed and stored.structure is None
    if plain and block_of(stored.format, self.map) and converts(rows, stored._inside.tree):
        return remade(self, TreeBacking(rows, listed(stored._inside.tree, rows), limits))
    return with_entries(self, *entries(self), format, limits)


def drop_fill(self: Self) -> Self:
    """A tensor of the same format without the entries that equal the fill value, or zero if it is None.

    A format that ends with a dense level stores them again; convert it first.

    Returns
    -------
    Tensor
        Tensor of the same shape.

    See Also
    --------
    Tensor.with_values : The same entries with other values, such as a function of `values`.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack([[0, 2]], [0, 2], 3, "CVEC").drop_fill().values.tolist()
    [2]
    """
    pad, stored = self._inside.pad, self._inside.own.stored
    coords, values = stored.entries(pad)
    left = differ(values, pad)
    if left.all():
        return self
    kept = [x[left] for x in coords]
    made = packed(stored.format, stored.shape, kept, values[left], self.iso, pad, stored.limits)
    return with_tree(self, stored.format, made.tree)


def expand_structure(self: Self) -> Self:
    """The same matrix without a structure.

    It stores the entries of both triangles in the same format, with padding if the format pads, as `convert` does.

    Returns
    -------
    Tensor
        Tensor of the same shape.

    See Also
    --------
    Tensor.with_structure : The same matrix with one triangle stored, the inverse of.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> lower = bl.pack([[0, 1], [0, 0]], [1, 5], (2, 2), "CSR", structure="symmetric_lower")
    >>> lower.expand_structure().to_dense().tolist()
    [[1, 5], [5, 0]]
    """
    if self.structure is None:
        return self
    tree, pad = self._inside.tree, self._inside.pad
    listed = self._inside.backing.entries(pad, index_dtype(self.shape, 2 * len(tree.values)))
    coords, values = expand(self.structure, *listed)
    iso = tree.iso and bool(len(values) == 0 or (values == values[0]).all())
    return remade(self, packed(self.format, self.shape, coords, values, iso, pad, self.limits))


def with_structure(self: Self, structure: str) -> Self:
    """The same matrix with one triangle stored, the inverse of `expand_structure`.

    Parameters
    ----------
    structure : str
        One of the six structures of Binsparse, such as "symmetric_lower".

    Returns
    -------
    Tensor
        Tensor of the same shape.

    Raises
    ------
    ArrayError
        The triangles contradict each other. The error says where.
    FormatError
        Structures do not support the shape, the type or the map.

    See Also
    --------
    Tensor.expand_structure : The same matrix without a structure.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.pack_dense([[1, 5], [5, 0]], "CSR").with_structure("symmetric_lower").number_of_stored_values
    2
    """
    if self.map is not None:
        raise FormatError(Problem("map", "a tensor with a map has no structure; call without_map() first"))
    whole = expand_structure(self)
    raise_if(FormatError, structure_problems(structure, whole.shape, whole.dtype))
    raise_if(FormatError, mirror_problems(structure, whole.format, whole._inside.pad))
    coords, values = in_order(whole)
    if whole.format.padded:
        coords, values = _without_padding(coords, values, whole._inside.pad)
    raise_if(ArrayError, symmetry_problems(structure, coords, values))
    kept = in_triangle(structure, coords)
    half = with_entries(whole, [x[kept] for x in coords], values[kept], whole.format)
    return with_tree(half, half.format, half._inside.tree, structure=structure)


# Parts of these methods


def with_tree(tensor: Self, format: Format, tree: Tree, **changes: Any) -> Self:
    """The tensor with another stored tree and the same map. changes: new metadata or a new structure."""
    own = tensor._inside.own
    stored = own.stored
    structure = changes.pop("structure", stored.structure)
    made = around(own, TreeBacking(format, tree, stored.limits, structure, shared=stored.shared))
    return remade(tensor, made, **changes)


def with_entries(
    tensor: Self,
    coords: Sequence[Array],
    values: Array,
    format: FormatLike,
    limits: Limits | None = None,
    *,
    shape: Sequence[int] | None = None,
    map: IndexMap | None = None,
    **changes: Any,
) -> Self:
    """A tensor of these stored entries through a map. All else is that of `tensor`, except for `changes`."""
    limits = tensor.limits if limits is None else limits
    parsed, sizes = checked_format(format, tensor.shape if shape is None else shape, limits)
    stored = packed(parsed, sizes, coords, values, tensor.iso, tensor._inside.pad, limits, tensor.structure)
    return remade(tensor, stored if map is None else Mapped(stored, map), **changes)


def entries(tensor: Contents, dtype: str | None = None, own: npt.DTypeLike = np.int64) -> Listed:
    """`Tensor.unpack`. own: the type of the coordinates if `dtype` is None. Raises OptionError."""
    if dtype not in (None, "stored"):
        raise OptionError(Problem("dtype", f"{dtype!r:.40} is not a type of coordinates; pass 'stored' or None"))
    return tensor._inside.backing.entries(tensor._inside.pad, own if dtype is None else None)


def reformatted(tensor: Self, format: FormatLike) -> Self:
    """The same entries in a format, whose notation may include a map."""
    levels, map = with_map(format, None)
    return without_map(tensor, levels) if map is None else convert(tensor, levels, map=map)


def _of_stored(tensor: Self, format: FormatLike, limits: Limits) -> Self:
    """Convert the stored tensor to another format and keep the map."""
    pad, own = tensor._inside.pad, tensor._inside.own
    stored = own.stored
    parsed = fitting_format(format, stored.shape, limits, mapped=own.map is not None)
    if parsed.canonical() == stored.format.canonical():  # both store the same bytes
        return with_tree(tensor, parsed, stored.tree)
    order = tuple(map(stored.format.order.index, parsed.order))
    if stored.structure is not None:
        raise_if(FormatError, mirror_problems(stored.structure, parsed, pad))
        if stored.format.padded:
            return with_entries(tensor, *entries(tensor), parsed, limits)
    return with_tree(tensor, parsed, _converted(stored.tree, parsed, order, pad, limits))


def _converted(tree: Tree, format: Format, order: Sequence[int], pad: Any, limits: Limits) -> Tree:
    """`convert_tree`. The codes of a dictionary move in place of the values, if the padding can have a code."""
    pads = not format.levels or format.padded
    known = None if tree.dictionary is None else tree.dictionary.with_entry(pad, pads)
    if known is None:
        return packing.convert_tree(tree.plain, format.levels, order, pad, limits)
    made = packing.convert_tree(tree.of_codes, format.levels, order, known[1], limits)
    return made.with_values(known[0].with_codes(made.values), False)


def _with_dictionary(tree: Tree) -> Tree:
    """The same tree with a dictionary, or with one value for all. Raises ArrayError, OptionError."""
    if tree.form != "each":
        return tree
    data_type_of(tree.values.dtype, "values")
    table, codes = encode(one_piece(tree.blanked().values))
    if len(table) < 2:
        return tree.with_values(repeat_one(table, codes.length), True) if len(table) else tree
    return tree.with_values(Dictionary(table, codes.whole()).loaded(), False)


def is_dense(tensor: Contents) -> bool:
    """Return True if all cells are stored, as in a numpy array."""
    return tensor.ndim > 0 and not array_classes(tensor.format)


def expanded(tensor: Self) -> Self:
    """The same matrix without a structure.

    It is a list of coordinates if its format may refuse the mirrored entries, or would store padding between them.
    """
    pads = tensor.format.padded and not is_dense(tensor)
    listed = tensor.structure is not None and (pads or any(level.refuses for level in tensor.format.levels))
    return expand_structure(convert(tensor, coordinates(tensor.ndim)) if listed else tensor)


def _without_padding(coords: tuple[Array, ...], values: Array, pad: object) -> tuple[tuple[Array, ...], Array]:
    """The entries without those that a level stored as padding: they equal it and have no mirror image."""
    i, j = coords
    cells = np.stack([i, j], 1)
    _, number = np.unique(np.concatenate([cells, cells[:, ::-1]]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    alone = ~np.isin(number[len(i) :], number[: len(i)])
    padding = values == pad if pad == pad else values != values
    kept = ~(alone & padding)
    return (i[kept], j[kept]), values[kept]


def in_order(tensor: Contents) -> Listed:
    """All entries in lexicographic order, the structure expanded."""
    if not tensor.ndim:  # a list of coordinates of rank 0 always has one entry
        return entries(tensor)
    return entries(expand_structure(without_map(tensor, coordinates(tensor.ndim))))
