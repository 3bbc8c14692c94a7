"""Encode a tree as the header and the arrays of a container. Binsparse 0.1, section 3."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ..arrays import Pieces, in_pieces, one_piece
from ..errors import ArrayError, DescriptorError, OptionError, Problem, raise_if
from ..formats.bitpacked import best_wrapper, bitpack_pieces
from ..formats.descriptor import NAMESPACE, VERSION, VERSIONS, Descriptor, parse_descriptor
from ..formats.dictionary import CODES
from ..formats.dictionary import encode as encode_dictionary
from ..formats.dtypes import DataType, data_type_of, encode
from ..formats.format import NO_EMPTY_FIBERS, Format
from ..formats.index_map import IndexMap
from ..formats.json import checked_text
from ..levels.base import Array
from ..levels.pointers import has_empty_fibers
from ..limits import Limits
from . import labels
from .contents import Contents
from .inside import Metadata

_LABELS_PER_PIECE = 2**20  # items of a lazy array of labels that are copied together


def encode_tensor(
    tensor: Contents,
    version: str = VERSION,
    narrow: bool = False,
    bitpacked: bool | Collection[str] = False,
    dictionary: bool = False,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of a tensor as a container stores them.

    narrow: store index and pointer arrays in the smallest type that fits. bitpacked: names of arrays to bit-pack with
    the smallest encoding; True means all index and pointer arrays, and codes. dictionary: store a table of values, and
    codes. Raises ArrayError, DescriptorError, OptionError.
    """
    own = tensor._inside.own
    stored, metadata = own.stored, tensor._inside.metadata
    if stored.shared:
        stored.check("full")
    raise_if(ArrayError, stored.diagonal_problems())
    if stored.structure is not None:
        i, j = stored.entries(None)[0]
        kept = {**metadata.descriptor_attributes, "number_of_diagonal_elements": int(np.count_nonzero(i == j))}
        metadata = replace(metadata, descriptor_attributes=kept)
    tree = stored.tree.plain.narrowed() if narrow else stored.tree.plain
    arrays, table = {**tree.arrays, "values": tree.blanked().values}, None
    if dictionary and not tree.iso:
        table, codes = encode_dictionary(one_piece(arrays["values"]))
        arrays |= {CODES: codes.whole()} if len(table) > 1 else {}
    wrappers = {}
    iso_value = arrays["values"][:1] if tree.iso else arrays["values"][:0]  # without entries, the value is unknown
    for name in _to_pack(bitpacked, arrays, len(iso_value) > 0 or CODES in arrays):
        wrappers[name] = best_wrapper(np.asarray(arrays[name], data_type_of(arrays[name].dtype, name).dtype))
    pieces = {name: one_piece(array) for name, array in arrays.items()}
    seen: dict[str, Any] = {"structure": stored.structure, "map": own.map, "table": table}
    header, encoded = encode_pieces(
        pieces, stored.format, stored.shape, metadata, **seen, iso_value=iso_value, wrappers=wrappers, version=version
    )
    return header, {name: x.whole() for name, x in encoded.items()}


def check_header_size(header: Mapping[str, Any], limits: Limits) -> None:
    """Raise LimitError if `read` would refuse the header because of its size."""
    checked_text(json.dumps(header), limits)
    limits.hold("rank", len(header[NAMESPACE]["shape"]), "shape", "the number of dimensions")
    if header[NAMESPACE]["format"] == "custom":
        parse_descriptor(header, limits)  # the stored tensor of a map may have more dimensions


def _to_pack(bitpacked: bool | Collection[str], arrays: Mapping[str, Array], few: bool) -> list[str]:
    """The names of the arrays to bit-pack. few: one value or a table is stored. Raises OptionError for other names."""
    if isinstance(bitpacked, str):
        raise OptionError(Problem("bitpacked", f"expected True, False, or names of arrays, got {bitpacked!r:.40}"))
    types = {name: data_type_of(array.dtype, name, few and name == "values") for name, array in arrays.items()}
    integers = [name for name, data_type in types.items() if data_type.integer]
    if isinstance(bitpacked, bool):
        return [name for name in integers if bitpacked and name != "values"]
    for name in bitpacked:
        if name not in integers:
            raise OptionError(Problem("bitpacked", f"{name!r:.40} is not an integer array; see Tensor.arrays"))
    return sorted(set(bitpacked))


def encode_pieces(
    arrays: Mapping[str, Pieces],
    format: Format,
    shape: tuple[int, ...],
    metadata: Metadata,
    *,
    structure: str | None = None,
    map: IndexMap | None = None,
    iso_value: Array | None = None,
    table: Array | None = None,
    wrappers: Mapping[str, str] = MappingProxyType({}),
    version: str = VERSION,
    packed: bool = False,
) -> tuple[dict[str, Any], dict[str, Pieces]]:
    """The header and the encoded arrays. The header names the predefined format if there is one.

    format, shape, structure: of the stored tensor, below the map. iso_value: an array of one value, or of none if it is
    unknown. table: the entries of a dictionary, whose codes are among the arrays; one entry is an iso value. wrappers:
    the encodings of bit-packed arrays, by name. packed: the tree was packed from entries, so that
    sparse levels have no empty fibers. Raises ArrayError for types that Binsparse does not have, DescriptorError for an
    unknown version.
    """
    if len(version) > 64 or not VERSIONS.fullmatch(version):
        raise DescriptorError(Problem("version", f"expected 0.1 or 0.1.x, got {version!r:.60}"))
    data_types = {name: data_type_of(array.dtype, name) for name, array in arrays.items()}
    for name in wrappers.keys() & data_types.keys():
        data_types[name] = DataType(data_types[name].dtype, wrapper=wrappers[name])
    pieces, value_type = dict(arrays), arrays["values"].dtype
    if table is not None and len(table) > 1:
        data_types["values"] = replace(data_types["values"], dictionary=True)
        pieces["values"] = one_piece(table)
    elif table is not None:
        iso_value = table
    if iso_value is not None and len(iso_value):
        data_types["values"] = data_type_of(value_type, "values", True)
        pieces["values"] = one_piece(iso_value)
    if metadata.fill_value is not None:
        data_types["fill_value"] = data_type_of(value_type, "fill_value")
        pieces["fill_value"] = one_piece(np.full(1, metadata.fill_value, value_type))
    extra_json = {}
    if metadata.labels is not None:
        extra_json[labels.KEY] = metadata.labels.header()
        metadata.labels.check()
        for name, items in metadata.labels.arrays().items():
            data_types[name] = data_type_of(items.dtype, name)
            pieces[name] = in_pieces(items, _LABELS_PER_PIECE)
    own, user = dict(metadata.descriptor_attributes), dict(metadata.attributes)
    named = (None, structure, own, user, version, (), map, extra_json)
    descriptor = Descriptor(format, shape, arrays["values"].length, data_types, *named)
    alias = packed or format.alias not in NO_EMPTY_FIBERS or not _repeats(arrays["pointers_to_1"])
    return descriptor.header(alias=alias), {name: _encoded(x, data_types[name]) for name, x in pieces.items()}


def _encoded(pieces: Pieces, data_type: DataType) -> Pieces:
    if not data_type.wrapper:
        return pieces.mapped(partial(encode, data_type=data_type), data_type.parts, data_type.stored)
    native = pieces.mapped(partial(np.asarray, dtype=data_type.dtype), 1, data_type.dtype)
    return one_piece(bitpack_pieces(native, data_type.wrapper))


def _repeats(pieces: Pieces) -> bool:
    """Return True if an item equals the one before it."""
    before = np.empty(0, pieces.dtype)
    for piece in pieces.each():
        if has_empty_fibers(piece) or (len(piece) and (before == piece[:1]).any()):
            return True
        before = piece[-1:] if len(piece) else before
    return False
