"""Dask arrays of tensors in files. A block is a COO of pydata/sparse; what is pickled is the path of the file."""

from __future__ import annotations

import functools
import itertools
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..building import write_from
from ..containers.base import is_url
from ..engine.tree import same
from ..errors import ContainerError, FormatError, OptionError, Problem, needing, within_memory
from ..formats.format import FormatLike
from ..io import open as open_tensor
from ..io.kinds import Place, split_place
from ..levels.base import Array
from ..levels.registry import Travelling, arrive, travelling
from ..limits import DEFAULT_LIMITS, Limits
from ..tensors.foreign import as_tensor, qualified
from ..tensors.tensor import Tensor
from ..tensors.validation import checked_format
from .pydata_sparse import to_sparse

if TYPE_CHECKING:
    import dask.array

_OPEN = 2**4  # tensors that a process keeps open
_OPENING = threading.Lock()  # else several threads open the same file at once


class Placed:
    """A tensor at a path, or a view of it. Pickled, it is the path, a token and the steps that make the view.

    token: tells a file from another at the same path. steps: pairs of a method of Tensor and its argument.
    """

    __slots__ = ("_made", "tensor")

    def __init__(self, path: str, token: object, steps: tuple[tuple[str, Any], ...] = ()) -> None:
        with _OPENING:
            tensor = _opened(path, token)
        for method, argument in steps:
            tensor = getattr(tensor, method)(argument)
        self._made = path, token, steps
        self.tensor = tensor

    @classmethod
    def at(cls, place: Place) -> Placed:
        """The tensor at a path or a URL. Raises TypeError for another place, which no other process finds."""
        if not isinstance(place, str | os.PathLike):
            what = "other processes open the tensor again, so give the path or the URL of its file"
            raise TypeError(f"expected a path, got {qualified(place)}; {what}")
        path, group = split_place(place)
        if is_url(path):
            return cls(os.fspath(place), uuid.uuid4().hex)
        path = os.path.abspath(path)
        return cls(path if group is None else f"{path}:{group}", _token(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (travelling(), *self._made)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self._made

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    def then(self, method: str, argument: Any) -> Placed:
        """A view of this view, made by a method of Tensor that returns a Tensor. Nothing is read."""
        path, token, steps = self._made
        return Placed(path, token, (*steps, (method, argument)))

    def __getitem__(self, key: Any) -> Any:
        """A COO of a selection, or a value. Nothing but the selection is read, and none of it is kept."""
        selected = self.tensor[key]
        return to_sparse(selected) if isinstance(selected, Tensor) else selected


def _arrived(kinds: Sequence[Travelling], *made: Any) -> Placed:
    """A Placed in another process, which may load the level kinds that the first process knows."""
    arrive(kinds)
    return Placed(*made)


@functools.lru_cache(_OPEN)
def _opened(path: str, token: object) -> Tensor:
    tensor = open_tensor(path)
    if token != (_token(split_place(path)[0]) or token):
        raise ContainerError(Problem(path, "was written again since this array was made; make the array again"))
    return tensor


def _token(path: str) -> tuple[int, ...] | None:
    """Numbers that change when a file or a folder is replaced; None for a URL."""
    if is_url(path):
        return None
    try:
        status = os.stat(path)
    except OSError:  # `open` tells what is wrong
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


@within_memory
def to_dask(place: Place, *, chunks: Any = "auto") -> dask.array.Array:
    """Make a Dask array of the tensor at a path. No array of the file is read before a block is computed.

    Blocks are sparse.COO, with the tensor's fill value, or zero. Each process opens the file once. A slice of the array
    reads what it needs. Do not change the file in place meanwhile; a file that was replaced is refused.

    Parameters
    ----------
    place : PATH[:GROUP] or a URL, which every process can open.
    chunks : as for `dask.array.from_array`. "auto" cuts only the outermost stored dimension, such that the entries of
        a block take as many bytes as Dask's option `array.chunk-size` says, if they are spread evenly.

    Raises
    ------
    TypeError : `place` is an open object, or a mapping.
    BinsparseError : as `open` raises it.

    >>> import binsparse_levels as bl
    >>> bl.write("matrix.h5", bl.pack([[0, 1], [2, 0]], [1.5, 2.5], (2, 3), "CSR"))
    >>> float(bl.to_dask("matrix.h5", chunks=(1, 3)).sum().compute().todense())
    4.0
    """
    return dask_of(Placed.at(place), chunks)


def dask_of(placed: Placed, chunks: Any) -> dask.array.Array:
    """A Dask array of blocks of a tensor or a view; chunks as for `to_dask`."""
    with needing("dask"):
        import dask.array
        from dask.base import tokenize
    with needing("sparse"):
        import sparse

    tensor = placed.tensor
    if isinstance(chunks, str) and chunks == "auto":
        chunks = _auto(tensor)
    empty = np.empty((tensor.ndim, 0), np.int64), np.empty(0, tensor.dtype)
    meta = sparse.COO(*empty, shape=(0,) * tensor.ndim, fill_value=tensor._pad())
    from_array: Any = dask.array.from_array
    name = f"binsparse-{tokenize(placed, chunks)}"
    try:
        made: dask.array.Array = from_array(placed, chunks, name=name, asarray=False, fancy=False, meta=meta)
    except (TypeError, ValueError) as error:
        what = f"{chunks!r:.40} does not cut the shape {tensor.shape}; pass a size for each dimension"
        raise OptionError(Problem("chunks", what)) from error
    return made


def _auto(tensor: Tensor) -> tuple[int, ...]:
    """The shape of blocks along the outermost stored dimension. Only metadata is needed."""
    import dask
    from dask.utils import parse_bytes

    if not tensor.ndim:
        return ()
    outermost = tensor.format.order[0] if tensor.map is None else 0
    stored = len(tensor._source.values) * (8 * tensor.ndim + tensor.dtype.itemsize)
    blocks = max(-(-stored // parse_bytes(dask.config.get("array.chunk-size"))), 1)
    return tuple(-(-size // blocks) if k == outermost else size for k, size in enumerate(tensor.shape))


@within_memory
def from_dask(
    array: dask.array.Array,
    path: Place,
    format: FormatLike,
    *,
    memory: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Compute a Dask array block by block, and write its entries as one tensor, which may be larger than memory.

    Blocks are computed one after the other, in the order of the format. A block cut along the outermost dimension
    alone is packed as it comes; others need scratch files.

    Parameters
    ----------
    array : its blocks are of any type that `as_tensor` takes. Cells of numpy that are not zero are entries.
    path, format, memory, attributes, overwrite, limits, options : as for `write_from`. A block has to fit in memory.
        `dims` and `values` name the dimensions and the values.

    Raises
    ------
    TypeError : this is no Dask array, or `as_tensor` does not take its blocks.
    BinsparseError : sizes of blocks are unknown, or as `write_from` raises it.

    >>> import binsparse_levels as bl, dask.array, numpy
    >>> bl.from_dask(dask.array.eye(4, chunks=2), "a.h5", "CSR")
    >>> bl.read("a.h5").number_of_stored_values
    4
    """
    with needing("dask"):
        import dask.array

    if not isinstance(array, dask.array.Array):
        raise TypeError(f"expected a Dask array, got {qualified(array)}; call dask.array.from_array")
    if any(size != size for sizes in array.chunks for size in sizes):
        raise FormatError(Problem("array", "the sizes of its blocks are unknown; call compute_chunk_sizes() first"))
    fill = np.asarray(getattr(array._meta, "fill_value", 0), array.dtype)[()]
    arguments = {"attributes": attributes, "overwrite": overwrite, "limits": limits, **options}
    ranks = range(array.ndim) if "map" in options else checked_format(format, array.shape, limits)[0].order
    blocks = _entries(array, list(ranks), fill)
    write_from(blocks, path, array.shape, format, memory=memory, dtype=array.dtype, fill_value=fill, **arguments)


def _entries(array: dask.array.Array, order: Sequence[int], fill: Any) -> Iterator[tuple[list[Array], Array]]:
    """The entries of each block. order: the dimensions from the slowest to the fastest."""
    starts = [np.cumsum([0, *sizes[:-1]]).tolist() for sizes in array.chunks]
    for numbers in itertools.product(*(range(array.numblocks[k]) for k in order)):
        index = tuple(numbers[order.index(k)] for k in range(array.ndim))
        coords, values = _entries_of((array.blocks[index] if index else array).compute(), fill)
        yield [x + starts[k][index[k]] for k, x in enumerate(coords)], values


def _entries_of(block: Any, fill: Any) -> tuple[Sequence[Array], Array]:
    """The coordinates and the values of a block."""
    tensor = as_tensor(block)
    if tensor.fill_value is not None and not same(tensor.fill_value, fill):
        what = f"a block has the fill value {tensor.fill_value}, the array {fill}; call map_blocks to change one"
        raise FormatError(Problem("array", what))
    return tensor.unpack()
