"""Dask arrays of tensors in files. A block is a sparse.COO. Pickles contain the path of the file."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..building import write_from
from ..engine.tree import same
from ..errors import FormatError, OptionError, Problem, needing, within_memory
from ..formats.format import FormatLike
from ..io import open as open_tensor
from ..io.kinds import StoreLike
from ..levels.base import Array
from ..levels.registry import SentKind, register_sent, sent_kinds
from ..limits import DEFAULT_LIMITS, Limits
from ..parallel import Lock
from ..tensors.contents import dimension_of
from ..tensors.foreign import as_tensor, qualified
from ..tensors.tensor import Tensor, inside, remade
from ..tensors.validation import checked_format
from .pydata_sparse import to_sparse

if TYPE_CHECKING:
    import dask.array

_UNPICKLING = Lock()  # so that several threads do not open the same file


class Blocks:
    """An opened tensor or a view of it, whose slices are sparse.COO. A pickle contains the path and the view.

    Labels are dropped, because each block would send them.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = remade(tensor, labels=None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), sent_kinds(), pickle.dumps(self.tensor))

    def __dask_tokenize__(self) -> str:
        return self.tensor.__dask_tokenize__()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)

    def read(self, key: Any) -> Any:
        """A COO of a selection, or a value. Only the selection is read, and it is not cached."""
        selected = self.tensor[key]
        return to_sparse(selected) if isinstance(selected, Tensor) else selected


def _restored(made: type[Blocks], kinds: Sequence[SentKind], pickled: bytes) -> Blocks:
    """Restore pickled blocks in a process, and load the level kinds of the first process."""
    register_sent(kinds)
    _keep_fill_values()
    with _UNPICKLING:
        return made(_unpickled(pickled))


@functools.lru_cache(2**4)
def _unpickled(pickled: bytes) -> Tensor:
    """The tensor of a pickle. The process keeps its file open."""
    tensor: Tensor = pickle.loads(pickled)
    return tensor


@within_memory
def to_dask(place: StoreLike, *, chunks: Any = "auto") -> dask.array.Array:
    """Make a Dask array of the tensor at a path. Arrays of the file are read when a block is computed.

    Blocks are sparse.COO, with the tensor's fill value, or zero. Each process opens the file once. A slice of the array
    reads only its part of the file. Do not change the file in place meanwhile; a file that was replaced is refused.

    Parameters
    ----------
    place : str, PathLike, group, store or mapping
        PATH[:GROUP] or a URL, which every process can open.
    chunks : int, tuple, mapping or 'auto', default 'auto'
        Chunks in the form that `dask.array.from_array` takes; a mapping has numbers or names of dimensions. "auto" cuts
        only the outermost stored dimension. The entries of a block then take the bytes of Dask's option
        `array.chunk-size`, if they are spread evenly.

    Returns
    -------
    dask.array.Array
        Dask.array.Array of the shape and type of the tensor.

    Raises
    ------
    OptionError
        `place` is an open object, or a mapping; or `chunks` does not cut the shape.
    IndexError
        `chunks` names no dimension of the tensor.
    BinsparseError
        See `open`.

    See Also
    --------
    from_dask : Write a Dask array as one tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.write("matrix.h5", bl.pack([[0, 1], [2, 0]], [1.5, 2.5], (2, 3), "CSR"))
    >>> bl.to_dask("matrix.h5", chunks=(1, 3)).compute().todense().tolist()
    [[0.0, 0.0, 1.5], [2.5, 0.0, 0.0]]
    """
    tensor = open_tensor(checked_path(place))
    if isinstance(chunks, Mapping):
        chunks = {dimension_of(tensor, dimension): size for dimension, size in chunks.items()}
    return dask_of(Blocks(tensor), chunks)


def checked_path(place: Any) -> str | os.PathLike[str]:
    """A path or a URL. Raises OptionError for objects that another process cannot open."""
    if not isinstance(place, str | os.PathLike):
        what = "other processes open the tensor again; pass the path or the URL of its file"
        raise OptionError(f"expected a path, got {qualified(place)}; {what}")
    return place


def dask_of(blocks: Blocks, chunks: Any) -> dask.array.Array:
    """A Dask array of a tensor or a view; chunks as for `to_dask`."""
    with needing("dask"):
        import dask.array
        from dask.base import tokenize
    with needing("sparse"):
        import sparse

    _keep_fill_values()
    tensor = blocks.tensor
    if isinstance(chunks, str) and chunks == "auto":
        chunks = _auto(tensor)
    empty = np.empty((tensor.ndim, 0), np.int64), np.empty(0, tensor.dtype)
    meta = sparse.COO(*empty, shape=(0,) * tensor.ndim, fill_value=inside(tensor).pad)
    from_array: Any = dask.array.from_array
    name = f"binsparse-{tokenize(blocks, chunks)}"
    try:
        made: dask.array.Array = from_array(blocks, chunks, name=name, asarray=False, fancy=False, meta=meta)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        what = f"{chunks!r:.40} does not cut the shape {tensor.shape}; pass a size for each dimension"
        raise OptionError(Problem("chunks", what)) from error
    return made


@functools.cache
def _keep_fill_values() -> None:
    """Let distributed pickle each COO, because its serializer drops the fill value."""
    with contextlib.suppress(ImportError):
        import distributed.protocol.sparse  # noqa: F401, registers the serializer
        import sparse
        from distributed.protocol.serialize import dask_serialize

        register: Any = dask_serialize.register
        register(sparse.COO)(_not_implemented)


def _not_implemented(array: Any) -> Any:
    raise NotImplementedError  # then distributed falls back to pickle


def _auto(tensor: Tensor) -> tuple[int, ...]:
    """The shape of blocks along the outermost stored dimension. Only metadata is read."""
    import dask
    from dask.utils import parse_bytes

    if not tensor.ndim:
        return ()
    outermost = tensor.format.order[0] if tensor.map is None else 0
    stored = inside(tensor).backing.positions() * (8 * tensor.ndim + tensor.dtype.itemsize)
    blocks = max(-(-stored // parse_bytes(dask.config.get("array.chunk-size"))), 1)
    return tuple(-(-size // blocks) if k == outermost else size for k, size in enumerate(tensor.shape))


@within_memory
def from_dask(
    array: dask.array.Array,
    path: StoreLike,
    format: FormatLike,
    *,
    memory: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> None:
    """Compute a Dask array block by block, and write its entries as one tensor, which may be larger than memory.

    Blocks are computed one after the other, in the order of the format. Blocks that are cut only along the outermost
    dimension are packed directly; others require scratch files.

    Parameters
    ----------
    array : dask.array.Array
        Its blocks are of any type that `as_tensor` accepts. Nonzero cells of numpy blocks are entries.
    path : str, PathLike, group, store or mapping
        Target; see `write`.
    format : str, Format or mapping
        Format of the stored tensor.
    memory : int, optional
        Bytes that the process may use. A block must fit in.
    attributes : mapping, optional
        JSON object that is stored with the tensor.
    overwrite : bool, default False
        True replaces an existing tensor; see `write`.
    limits : Limits, optional
        Bounds on the resources of this call.
    **options
        Options of `write_from`. `dims` and `values` name the dimensions and the values.

    Raises
    ------
    OptionError
        `array` is not a Dask array, or `as_tensor` does not accept its blocks.
    BinsparseError
        Sizes of blocks are unknown, or `write_from` refuses the entries.

    See Also
    --------
    to_dask : Make a Dask array of the tensor at a path.
    write_from : Write a stream of entries.

    Examples
    --------
    >>> import dask.array
    >>> import binsparse_levels as bl
    >>> bl.from_dask(dask.array.eye(4, chunks=2), "a.h5", "CSR")
    >>> bl.read("a.h5").number_of_stored_values
    4
    """
    with needing("dask"):
        import dask.array

    if not isinstance(array, dask.array.Array):
        raise OptionError(f"expected a Dask array, got {qualified(array)}; call dask.array.from_array")
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
        block = as_tensor((array.blocks[index] if index else array).compute())
        if block.fill_value is not None and not same(block.fill_value, fill):
            what = f"a block has the fill value {block.fill_value}, the array {fill}; call map_blocks to change one"
            raise FormatError(Problem("array", what))
        coords, values = block.unpack()
        yield [x + starts[k][index[k]] for k, x in enumerate(coords)], values
