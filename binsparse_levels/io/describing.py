"""A tensor by its metadata, for programs that read no arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..containers.base import ArrayInfo
from ..errors import within_memory
from ..formats.descriptor import Descriptor
from ..formats.dtypes import DataType
from ..formats.extensions import PARTS
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.labels import KEY
from ..tensors.tensor import Tensor, inside
from .file_tensors import Loading
from .interface import refuse
from .kinds import StoreLike, resolved
from .reading import joined_at, name_tensors, opened, reader_of


class Description(NamedTuple):
    """A tensor by its metadata: the descriptor, the metadata of the arrays, the repairs of lenient reading, and the
    fill value in its stored type.
    """

    descriptor: Descriptor
    arrays: Mapping[str, ArrayInfo]
    repairs: Sequence[str] = ()
    fill_value: Any = None


@within_memory
def describe(path: StoreLike, *, lenient: bool = False, limits: Limits = DEFAULT_LIMITS) -> Description:
    """Describe the tensor at PATH[:GROUP] from its header, which is compared with the metadata of the arrays.

    Only the fill value is read. A text file has no header, so it is read whole. lenient, limits: as for `read`. Raises
    the errors of `read`.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> store = {}
    >>> bl.write(store, bl.pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR"))
    >>> describe(store).descriptor.shape
    (3, 4)
    """
    with resolved(path, explain=name_tensors) as location:
        if location.kind.foreign:
            refuse(location.path, (), lenient=lenient or None)
            with opened(location, limits)[0] as tensor:
                return _described(tensor)
        with reader_of(location, limits) as reader:
            loading = Loading(reader, limits, lenient)
            if PARTS in loading.descriptor.extra:
                return Description(loading.descriptor, {}, fill_value=joined_at(location, loading, limits).fill_value)
            return Description(loading.descriptor, loading.described(), loading.repairs, loading.fill_value())


def _described(tensor: Tensor) -> Description:
    """The description of a tensor in another system's file, in terms of Binsparse. No array is read."""
    backing, labels = inside(tensor).backing, inside(tensor).metadata.labels
    stored, tree = backing.stored, backing.stored.tree
    arrays = {**tree.arrays, "values": tree.values}
    types = {name: DataType(x.dtype, tree.iso and name == "values") for name, x in arrays.items()}
    infos = {}
    for name, x in arrays.items():
        count = 1 if types[name].iso else len(x)
        size = x.dtype.itemsize if types[name].iso else x.nbytes
        infos[name] = ArrayInfo((count * types[name].parts,), types[name].stored, size)
    if tensor.fill_value is not None:
        types["fill_value"] = DataType(tree.values.dtype)
    extra = {} if labels is None else {KEY: labels.header()}
    descriptor = Descriptor(
        stored.format, stored.shape, len(tree.values), types, structure=stored.structure,
        user=dict(tensor.attributes), map=backing.map, extra=extra,
    )  # fmt: skip
    return Description(descriptor, infos, fill_value=tensor.fill_value)
