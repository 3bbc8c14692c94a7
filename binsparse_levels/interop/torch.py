"""Sparse tensors of torch, in any layout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..arrays import apart
from ..errors import FormatError, OptionError, Problem, needing, within_memory
from ..formats.format import Format, coordinates, in_order, parse_format
from ..formats.index_map import Digit, IndexMap
from ..levels import full, listing
from ..tensors.changing import expanded
from ..tensors.foreign import qualified
from ..tensors.packing import pack_dense
from ..tensors.targets import check_representable
from ..tensors.tensor import Tensor

if TYPE_CHECKING:
    import torch

_LAYOUTS = {"coo": "sparse_coo", "csr": "sparse_csr", "csc": "sparse_csc", "bsr": "sparse_bsr", "bsc": "sparse_bsc"}


@within_memory
def from_torch(tensor: torch.Tensor, *, copy: bool = True, attributes: Mapping[str, Any] | None = None) -> Tensor:
    """Convert a sparse tensor of torch to a Tensor with the fill value 0.

    Batches become dense levels above, and the dense dimensions of *hybrid* tensors dense levels below.

    Parameters
    ----------
    tensor : of any sparse layout. COO is coalesced first. BSR and BSC are stored through a map, because their blocks
        divide dimensions. A tensor on a device is copied to the processor's memory.
    copy, attributes : as for `from_scipy`.

    Raises
    ------
    OptionError : `tensor` is another object.
    FormatError : numpy lacks the type of the values.
    ArrayError : the arrays contradict each other.

    >>> import torch  # doctest: +SKIP
    >>> from_torch(torch.eye(3).to_sparse_csr()).shape  # doctest: +SKIP
    (3, 3)
    """
    with needing("torch"):
        import torch

    names = {getattr(torch, layout): name for name, layout in _LAYOUTS.items()}
    layout = names.get(tensor.layout) if isinstance(tensor, torch.Tensor) else None
    if layout is None:
        if isinstance(tensor, torch.Tensor):
            raise OptionError(f"expected a sparse tensor of torch, got {tensor.layout}; call its to_sparse()")
        raise OptionError(f"expected a sparse tensor of torch, got {qualified(tensor)}; call as_tensor")
    return _tensor(tensor, layout, copy).with_attributes(attributes)


def _tensor(tensor: torch.Tensor, layout: str, copy: bool) -> Tensor:
    tensor, shape, dense = tensor.detach(), tuple(tensor.shape), tensor.dense_dim()
    if layout == "coo":
        tensor = tensor.coalesce()
        indices, values = _array(tensor.indices()), apart(_array(tensor.values()), copy)
        if not len(indices):  # a block of all dimensions, or none
            cells = np.zeros(shape, values.dtype) if not len(values) else values[0]
            return pack_dense(cells, Format(full(dense)), pattern=np.ones(shape, bool))
        listed = {f"indices_{k}": apart(x) for k, x in enumerate(indices)}
        return Tensor._owning(_chain(f"sparse({len(indices)})", dense), shape, listed, values.reshape(-1), fill_value=0)
    by_rows = layout in ("csr", "bsr")
    pointers = _array(tensor.crow_indices() if by_rows else tensor.ccol_indices())
    indices = _array(tensor.col_indices() if by_rows else tensor.row_indices())
    values = apart(_array(tensor.values()), copy)
    batch = pointers.ndim - 1
    # In torch, the pointers of each batch start at 0, and all batches have the same number of entries.
    firsts = np.arange(math.prod(shape[:batch])).reshape(*shape[:batch], 1) * indices.shape[-1]
    joined = np.append(0, (pointers + firsts)[..., 1:]) if batch else pointers
    arrays = {f"pointers_to_{batch + 1}": apart(joined), f"indices_{batch + 1}": apart(indices.reshape(-1))}
    order = [*range(batch), *((batch, batch + 1) if by_rows else (batch + 1, batch)), *range(batch + 2, len(shape))]
    blocked = layout in ("bsr", "bsc")
    format = _chain(f"dense({batch + 1}), sparse", dense + 2 * blocked)
    if not blocked:
        return Tensor._owning(in_order(format.levels, order), shape, arrays, values.reshape(-1), fill_value=0)
    map = _blocked(shape, order[: batch + 2], values.shape[batch + 1 : batch + 3])
    return Tensor._owning(format, map.stored_shape, arrays, values.reshape(-1), fill_value=0).with_map(map)


@within_memory
def to_torch(tensor: Tensor, layout: str | None = None, *, block: tuple[int, int] | None = None) -> torch.Tensor:
    """Convert a tensor to a sparse tensor of torch. Arrays are copied, because torch has no read-only arrays.

    Parameters
    ----------
    tensor : with the fill value 0 or none; the structure is expanded.
    layout : coo, csr, csc, bsr or bsc. By default the tensor keeps its layout if torch has it, else it becomes coo.
    block : the sizes of a block for bsr and bsc; they must divide those of the matrix.

    Raises
    ------
    FormatError : torch cannot represent the tensor.

    >>> to_torch(pack([[0], [2]], [1.0], (2, 3), "CSR"), "coo").layout  # doctest: +SKIP
    torch.sparse_coo
    """
    with needing("torch"):
        import torch

    whole = expanded(tensor)
    check_representable(whole, "torch")
    if layout is not None and layout not in _LAYOUTS:
        raise FormatError(Problem("layout", f"expected one of {', '.join(_LAYOUTS)}, got {layout!r:.40}"))
    if block is not None and layout not in ("bsr", "bsc"):
        raise FormatError(Problem("block", "only bsr and bsc have blocks; leave it out"))
    own = _layout_of(whole)
    if layout is not None and (own != layout or block is not None):
        own, whole = layout, _laid_out(whole, layout, block)
    elif own is None:
        own, whole = "coo", _laid_out(whole, "coo", None)
    stored = whole.stored
    above, rank, below = _profile(stored.format)
    shape, tail = whole.shape, stored.shape[stored.ndim - below :]
    if own == "coo":
        count = len(stored.arrays["indices_0"]) if rank else len(stored.values)
        table = np.array([stored.arrays[f"indices_{k}"] for k in range(rank)], np.int64).reshape(rank, count)
        values = stored.values.reshape(count, *tail)
        return torch.sparse_coo_tensor(
            torch.from_numpy(table), _copied(values), shape, is_coalesced=True, check_invariants=False
        )
    batch = above - 1
    numbers = math.prod(shape[:batch])
    pointers, indices = stored.arrays[f"pointers_to_{above}"], stored.arrays[f"indices_{above}"]
    each = len(indices) // numbers if numbers else 0
    # In torch, the pointers of each batch start at 0.
    lead = stored.shape[stored.format.order[batch]]
    begin = pointers[:-1].reshape(numbers, lead) if lead else np.zeros((numbers, 0), pointers.dtype)
    firsts = np.arange(numbers)[:, None] * each
    local = np.concatenate((begin - firsts, np.full((numbers, 1), each)), axis=1)
    integer = np.int32 if indices.dtype == np.int32 else np.int64
    return torch.sparse_compressed_tensor(
        torch.from_numpy(local.astype(integer).reshape(*shape[:batch], lead + 1)),
        torch.from_numpy(indices.astype(integer).reshape(*shape[:batch], each)),
        _copied(stored.values.reshape(*shape[:batch], each, *tail)),
        shape,
        layout=getattr(torch, _LAYOUTS[own]),
        check_invariants=False,
    )


def _blocked(shape: Sequence[int], outer: Sequence[int], block: Sequence[int]) -> IndexMap:
    """Blocks in the last two dimensions of `outer`: blocks, coordinates in a block, other dimensions."""
    first = len(outer) - 2
    sizes = dict(zip((first, first + 1), block, strict=True))
    digits = [Digit(k, sizes.get(k, 1), -(-shape[k] // sizes.get(k, 1))) for k in outer]
    digits += [Digit(k, 1, size) for k, size in sizes.items()]
    digits += [Digit(k, 1, shape[k]) for k in range(len(outer), len(shape))]
    return IndexMap(tuple(shape), tuple((digit,) for digit in digits))


def _chain(above: str, below: int) -> Format:
    """The format with these levels above so many dense dimensions."""
    return parse_format(f"{above}, dense({below})" if below else above)


def _profile(format: Format) -> tuple[int, int, int]:
    """Of a chain with one sparse level: the dense dimensions above it, its rank, those below. Else the rank is 0."""
    levels = format.canonical().levels
    depths = [k for k, level in enumerate(levels) if (level,) != full(1)]
    if len(depths) != 1 or (levels[depths[0]],) != listing(levels[depths[0]].rank):
        return 0, 0, len(levels)
    return depths[0], levels[depths[0]].rank, len(levels) - depths[0] - 1


def _layout_of(tensor: Tensor) -> str | None:
    """The layout of torch with the same arrays; None if there is none."""
    above, rank, _ = _profile(tensor.format)
    order, batch = list(tensor.format.order), above - 1
    straight = list(range(len(order)))
    if tensor.map is not None:
        if rank != 1 or batch < 0 or order != straight or tensor.ndim < batch + 2 or tensor.map.padded:
            return None
        block = tensor.map.stored_shape[batch + 2 : batch + 4]
        outer = [*range(batch), batch, batch + 1], [*range(batch), batch + 1, batch]
        maps = [_blocked(tensor.shape, order, block) for order in outer] if len(block) == 2 and all(block) else []
        layout = next((name for name, map in zip(("bsr", "bsc"), maps, strict=False) if map == tensor.map), None)
    elif batch < 0:
        return "coo" if rank and order == straight else None
    else:
        turned = [*order[:batch], *order[batch : batch + 2][::-1], *order[batch + 2 :]]
        layout = None if rank != 1 else "csr" if order == straight else "csc" if turned == straight else None
    if layout and batch:
        stored = tensor.stored
        fibers = stored.shape[order[batch]]  # of each batch
        ends = stored.arrays[f"pointers_to_{above}"][:: fibers or 1]
        if not fibers or len(set(np.diff(ends).tolist())) > 1:
            return None  # in torch all batches have the same number of entries
    return layout


def _laid_out(tensor: Tensor, layout: str, block: tuple[int, int] | None) -> Tensor:
    """The same entries in the format with the arrays of a layout."""
    whole = tensor.without_map()
    if layout == "coo":
        return whole.convert(coordinates(whole.ndim))
    if whole.ndim != 2:
        raise FormatError(Problem("layout", f"{layout} needs a matrix, not {whole.ndim} dimensions; choose coo"))
    if layout in ("csr", "csc"):
        return whole.convert(layout.upper())
    if block is None:
        raise FormatError(Problem("block", f"{layout} needs the sizes of a block; pass block=(rows, columns)"))
    checked = IndexMap.blocks(whole.shape, block).stored_shape[2:]
    map = _blocked(whole.shape, (0, 1) if layout == "bsr" else (1, 0), checked)
    if map.padded:
        raise FormatError(
            Problem("block", f"{block} does not divide {whole.shape}, which torch requires; choose other sizes")
        )
    return whole.convert("dense, sparse, dense(2)", map=map)


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = tensor.resolve_conj().resolve_neg().cpu().numpy()
    except TypeError as error:
        raise FormatError(Problem("values", f"numpy lacks the type of the values: {error}; cast them")) from None
    return array


def _copied(values: npt.NDArray[Any]) -> torch.Tensor:
    import torch

    try:
        return torch.from_numpy(np.array(values))
    except TypeError as error:
        raise FormatError(Problem("values", f"torch lacks this type: {error}; call astype() first")) from None
