"""A tree → the header and the arrays that a container holds. Binsparse 0.1, section 3."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arrays import Pieces, one_piece
from ..engine.tree import Tree
from ..errors import OptionError, Problem
from ..formats.bitpacked import best_wrapper, bitpack_pieces
from ..formats.descriptor import Descriptor
from ..formats.dtypes import DataType, data_type_of, encode
from ..formats.format import NO_EMPTY_FIBERS, Format, has_empty_fibers

Array: TypeAlias = npt.NDArray[Any]


def stored(
    tree: Tree,
    format: Format,
    shape: tuple[int, ...],
    fill_value: Any,
    structure: str | None,
    attributes: Mapping[str, Any],
    user: Mapping[str, Any],
    version: str,
    narrow: bool,
    bitpacked: bool | Collection[str],
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the encoded arrays; the predefined name wherever there is one. narrow: indices and pointers take
    the smallest type that holds them. bitpacked: those of these names, or all index and pointer arrays, are packed in
    the way that takes the least. Raises ArrayError for types that Binsparse does not have, OptionError.
    """
    # Of an iso tree without positions nobody knows the value any more.
    iso = tree.iso and len(tree.values) > 0
    levels = {name: narrowed(array) if narrow else array for name, array in tree.arrays.items()}
    data_types = {name: data_type_of(array.dtype, name) for name, array in levels.items()}
    data_types["values"] = data_type_of(tree.values.dtype, "values", iso)
    arrays: dict[str, Array] = {**levels, "values": tree.blanked().values}
    if fill_value is not None:
        data_types["fill_value"] = data_type_of(tree.values.dtype, "fill_value")
        arrays["fill_value"] = np.full(1, fill_value, tree.values.dtype)
    for name in _to_pack(bitpacked, levels, data_types):
        dtype = data_types[name].dtype
        data_types[name] = DataType(dtype, wrapper=best_wrapper(arrays[name].astype(dtype, copy=False)))
    descriptor = Descriptor(
        format, shape, len(tree.values), data_types, None, structure, attributes, dict(user), version
    )
    alias = format.alias not in NO_EMPTY_FIBERS or not has_empty_fibers(tree.arrays["pointers_to_1"])
    encoded = {name: encode(array, data_types[name]) for name, array in arrays.items()}
    return descriptor.header(alias=alias), encoded


def _to_pack(
    bitpacked: bool | Collection[str], levels: Mapping[str, Array], data_types: Mapping[str, DataType]
) -> list[str]:
    """The arrays that are to be bit-packed. Raises OptionError for what cannot be."""
    if isinstance(bitpacked, bool):
        return [name for name in levels if data_types[name].integer] if bitpacked else []
    if isinstance(bitpacked, str):
        raise OptionError(Problem("bitpacked", f"expected True, False, or names of arrays, got {bitpacked!r:.40}"))
    for name in bitpacked:
        if name not in data_types or not data_types[name].integer or name == "fill_value":
            raise OptionError(Problem("bitpacked", f"no array of integers has the name {name!r:.40}"))
    return sorted(set(bitpacked))


def stored_pieces(
    arrays: Mapping[str, Pieces],
    format: Format,
    shape: tuple[int, ...],
    one: Array | None,
    fill_value: Any,
    structure: str | None,
    attributes: Mapping[str, Any],
    user: Mapping[str, Any],
    wrappers: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, Pieces]]:
    """As `stored`, of arrays that come in pieces. one: the one value of an iso tensor. wrappers: of the arrays that are
    bit-packed; values that are one for all are not.
    """
    data_types = {name: data_type_of(pieces.dtype, name) for name, pieces in arrays.items()}
    for name in wrappers.keys() & data_types.keys():
        data_types[name] = DataType(data_types[name].dtype, wrapper=wrappers[name])
    given, value_type = dict(arrays), arrays["values"].dtype
    if one is not None and len(one):
        data_types["values"] = data_type_of(value_type, "values", True)
        given["values"] = one_piece(one)
    if fill_value is not None:
        data_types["fill_value"] = data_type_of(value_type, "fill_value")
        given["fill_value"] = one_piece(np.full(1, fill_value, value_type))
    descriptor = Descriptor(
        format, shape, arrays["values"].length, data_types, None, structure, dict(attributes), dict(user)
    )
    alias = format.alias not in NO_EMPTY_FIBERS or not _repeats(arrays["pointers_to_1"])
    return descriptor.header(alias=alias), {name: _encoded(pieces, data_types[name]) for name, pieces in given.items()}


def _encoded(pieces: Pieces, data_type: DataType) -> Pieces:
    if data_type.wrapper:
        native = pieces.mapped(partial(np.asarray, dtype=data_type.dtype), 1, data_type.dtype)
        return bitpack_pieces(native, data_type.wrapper)
    return pieces.mapped(partial(encode, data_type=data_type), data_type.parts, data_type.stored)


def narrowed(array: Array) -> Array:
    """The same numbers in the smallest unsigned integers that hold them; what is negative stays as it is."""
    if array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        return array
    return array.astype(np.min_scalar_type(array.max(initial=0)).str, copy=False)


def _repeats(pieces: Pieces) -> bool:
    """Whether an item is the one before it."""
    before = np.empty(0, pieces.dtype)
    for piece in pieces.each():
        run = np.concatenate((before, piece))
        if (run[1:] == run[:-1]).any():
            return True
        before = run[-1:]
    return False
