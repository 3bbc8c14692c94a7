"""Several orders of one tensor: its entries are stored again in groups of its group, for slices along other dimensions.

Each order is a tensor without labels and attributes. The header of the tensor lists the names of the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from ..arrays import Array
from ..containers.base import ORDERS
from ..errors import ArrayError, DescriptorError, OptionError, Problem
from ..formats.descriptor import Descriptor
from ..formats.dictionary import CODES
from ..formats.format import Format, FormatLike
from ..limits import Limits
from ..tensors.encoding import encode_tensor
from ..tensors.inside import Metadata
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.validation import checked_format
from .kinds import Location

Encode: TypeAlias = Callable[[], tuple[dict[str, Any], Mapping[str, Array]]]  # returns a header and its arrays

_COMPARED = ("shape", "dtype", "fill_value", "structure", "map")  # of the tensor and its orders


def other_orders(
    tensor: Tensor,
    formats: Sequence[FormatLike],
    version: str,
    narrow: bool,
    bitpacked: bool | Collection[str],
    dictionary: bool,
    limits: Limits,
) -> dict[str, Encode]:
    """A function for each other order, by the name of its group. The arguments are those of `write`.

    Raises OptionError, FormatError.
    """
    if isinstance(formats, str):
        raise OptionError(Problem("orders", f"expected a list of formats, got {formats!r:.40}"))
    if formats and tensor.map is not None:
        raise OptionError(Problem("orders", "a tensor with a map has no other orders; leave this option out"))
    known, encoding = {tensor.format.order: tensor.format}, dict[str, Encode]()
    for given in formats:
        format, _ = checked_format(given, tensor.shape, limits)
        if (order := format.order) in known:
            what = f"{format} has the order {order}, as {known[order]} has; leave one out"
            raise OptionError(Problem("orders", what))
        known[order] = format
        encode = partial(_encode, tensor, format, version, narrow, bitpacked, dictionary)
        encoding["_".join(map(str, ("order", *order)))] = encode
    return encoding


def _encode(
    tensor: Tensor, format: Format, version: str, narrow: bool, bitpacked: bool | Collection[str], dictionary: bool
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and the arrays of the tensor in another format, without its labels and attributes."""
    plain = tensor_of(inside(tensor.convert(format)).backing, Metadata(tensor.fill_value))
    if not isinstance(bitpacked, bool):
        bitpacked = {*bitpacked} & {*plain.arrays, "values", CODES}
    return encode_tensor(plain, version, narrow, bitpacked, dictionary)


def order_names(descriptor: Descriptor) -> list[str]:
    """The names of the groups with other orders. Raises DescriptorError."""
    names = descriptor.extra.get(ORDERS, [])
    if not (isinstance(names, list) and all(isinstance(x, str) and x and "/" not in x for x in names)):
        raise DescriptorError(Problem(ORDERS, f"expected a list of names of groups, got {names!r:.60}"))
    return names


def within(location: Location, name: str) -> Location:
    """The location of an order of the tensor at a location."""
    return replace(location, group="/".join(filter(None, (location.group, name))))


def check_order(other: Tensor, tensor: Tensor) -> None:
    """Raise ArrayError for an opened order whose metadata differ from those of the tensor."""
    for what in _COMPARED:
        expected, there = str(getattr(tensor, what)), str(getattr(other, what))  # NaN is no equal of NaN
        if there != expected:
            message = f"expected {expected}, as the tensor has, got {there}; `read` reads the tensor without its orders"
            raise ArrayError(Problem(what, message))
