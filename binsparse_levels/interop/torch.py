"""torch: sparse tensors of any layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, Problem, within_memory
from ..formats.format import Format, coordinates, in_order
from ..formats.index_map import Digit, IndexMap
from ..levels import Dense, Level, Sparse
from ..tensors.mapped import AnyTensor, MappedTensor, without_map
from ..tensors.tensor import Tensor, pack_dense

if TYPE_CHECKING:
    import torch


_LAYOUTS = {"coo": "sparse_coo", "csr": "sparse_csr", "csc": "sparse_csc", "bsr": "sparse_bsr", "bsc": "sparse_bsc"}


@within_memory
def from_torch(tensor: torch.Tensor) -> AnyTensor:
    """A sparse tensor of torch in any of its layouts, in memory of the processor, with its arrays where they can be
    shared; the fill value is 0, which is what torch means.

    Batches are dense levels above, dense dimensions (of *hybrid* tensors) dense levels below. Blocked ones are stored
    through a map, since their blocks divide dimensions. COO tensors are coalesced first. Raises TypeError for another
    object, FormatError for a type that numpy does not have, ArrayError for what is not sound.
    """
    import torch

    names = {getattr(torch, layout): name for name, layout in _LAYOUTS.items()}
    layout = names.get(tensor.layout) if isinstance(tensor, torch.Tensor) else None
    if layout is None:
        raise TypeError(f"expected a sparse tensor of torch, got {getattr(tensor, 'layout', type(tensor).__name__)}")
    tensor, shape, dense = tensor.detach(), tuple(tensor.shape), tensor.dense_dim()
    if layout == "coo":
        tensor = tensor.coalesce()
        indices, values = _array(tensor.indices()), _array(tensor.values())
        if not len(indices):  # one block of all dimensions, or none
            cells = np.zeros(shape, values.dtype) if not len(values) else values[0]
            return pack_dense(cells, Format(_dense(dense)), pattern=np.ones(shape, bool))
        listed = {f"indices_{k}": x for k, x in enumerate(indices)}
        return Tensor(Format((Sparse(len(indices)), *_dense(dense))), shape, listed, values.reshape(-1), fill_value=0)
    by_rows = layout in ("csr", "bsr")
    pointers = _array(tensor.crow_indices() if by_rows else tensor.ccol_indices())
    indices = _array(tensor.col_indices() if by_rows else tensor.row_indices())
    values = _array(tensor.values())
    batch = pointers.ndim - 1
    # The pointers of each batch begin anew, and every batch has as many entries.
    firsts = np.arange(math.prod(shape[:batch])).reshape(*shape[:batch], 1) * indices.shape[-1]
    joined = np.append(0, (pointers + firsts)[..., 1:]) if batch else pointers
    arrays = {f"pointers_to_{batch + 1}": joined, f"indices_{batch + 1}": indices.reshape(-1)}
    order = [*range(batch), *((batch, batch + 1) if by_rows else (batch + 1, batch)), *range(batch + 2, len(shape))]
    blocked = layout in ("bsr", "bsc")
    levels: tuple[Level, ...] = (Dense(batch + 1), Sparse(), *_dense(dense + 2 * blocked))
    if not blocked:
        return Tensor(in_order(levels, order), shape, arrays, values.reshape(-1), fill_value=0)
    map = _blocked(shape, order[: batch + 2], values.shape[batch + 1 : batch + 3])
    return MappedTensor(Tensor(Format(levels), map.stored_shape, arrays, values.reshape(-1), fill_value=0), map)


@within_memory
def to_torch(tensor: AnyTensor, layout: str | None = None, *, block: tuple[int, int] | None = None) -> torch.Tensor:
    """A sparse tensor of torch, of the layout that the tensor has, if torch has it, else coo.

    layout: another one of coo, csr, csc, bsr, bsc; the last two with the sizes of a block, which have to divide those
    of the matrix. Arrays are copied, since torch has none that cannot be written to. Raises FormatError for a fill
    value other than zero, and for what torch cannot hold.
    """
    import torch

    whole = tensor if isinstance(tensor, MappedTensor) else tensor.expand_structure()
    if whole.fill_value is not None and whole.fill_value != 0:
        raise FormatError(Problem("fill_value", f"torch has no fill value other than 0, got {whole.fill_value}"))
    if layout is not None and layout not in _LAYOUTS:
        raise FormatError(Problem("layout", f"expected one of {', '.join(_LAYOUTS)}, got {layout!r:.40}"))
    if block is not None and layout not in ("bsr", "bsc"):
        raise FormatError(Problem("block", "only bsr and bsc have blocks"))
    own = _layout_of(whole)
    if layout is not None and (own != layout or block is not None):
        own, whole = layout, _laid_out(whole, layout, block)
    elif own is None:
        own, whole = "coo", _laid_out(whole, "coo", None)
    stored = whole.tensor if isinstance(whole, MappedTensor) else whole
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
    # The pointers of each batch begin anew.
    lead = stored.shape[stored.format.order[batch]]
    begin = pointers[:-1].reshape(numbers, lead) if lead else np.zeros((numbers, 0), pointers.dtype)
    firsts = np.arange(numbers)[:, None] * each
    local = np.concatenate((begin - firsts, np.full((numbers, 1), each)), axis=1)
    kind = np.int32 if indices.dtype == np.int32 else np.int64
    return torch.sparse_compressed_tensor(
        torch.from_numpy(local.astype(kind).reshape(*shape[:batch], lead + 1)),
        torch.from_numpy(indices.astype(kind).reshape(*shape[:batch], each)),
        _copied(stored.values.reshape(*shape[:batch], each, *tail)),
        shape,
        layout=getattr(torch, _LAYOUTS[own]),
        check_invariants=False,
    )


def _blocked(shape: Sequence[int], outer: Sequence[int], block: Sequence[int]) -> IndexMap:
    """Blocks in the last two dimensions of `outer`: these by blocks, then what is within a block, then the others."""
    first = len(outer) - 2
    sizes = dict(zip((first, first + 1), block, strict=True))
    digits = [Digit(k, sizes.get(k, 1), -(-shape[k] // sizes.get(k, 1))) for k in outer]
    digits += [Digit(k, 1, size) for k, size in sizes.items()]
    digits += [Digit(k, 1, shape[k]) for k in range(len(outer), len(shape))]
    return IndexMap(tuple(shape), tuple((digit,) for digit in digits))


def _profile(format: Format) -> tuple[int, int, int]:
    """How many dense dimensions lie above one sparse level, its rank, and how many below; rank 0 for other chains."""
    levels = format.canonical().levels
    found = [k for k, level in enumerate(levels) if level != Dense()]
    if len(found) != 1 or levels[found[0]] != Sparse(levels[found[0]].rank):
        return 0, 0, len(levels)
    return found[0], levels[found[0]].rank, len(levels) - found[0] - 1


def _layout_of(tensor: AnyTensor) -> str | None:
    """The layout of torch that stores the same arrays."""
    above, rank, _ = _profile(tensor.format)
    order, batch = list(tensor.format.order), above - 1
    straight = list(range(len(order)))
    if isinstance(tensor, MappedTensor):
        if rank != 1 or batch < 0 or order != straight or tensor.ndim < batch + 2 or tensor.map.padded:
            return None
        block = tensor.map.stored_shape[batch + 2 : batch + 4]
        outer = [*range(batch), batch, batch + 1], [*range(batch), batch + 1, batch]
        maps = [_blocked(tensor.shape, order, block) for order in outer] if len(block) == 2 and all(block) else []
        found = next((name for name, map in zip(("bsr", "bsc"), maps, strict=False) if map == tensor.map), None)
    elif batch < 0:
        return "coo" if rank and order == straight else None
    else:
        turned = [*order[:batch], *order[batch : batch + 2][::-1], *order[batch + 2 :]]
        found = None if rank != 1 else "csr" if order == straight else "csc" if turned == straight else None
    if found and batch:
        stored = tensor.tensor if isinstance(tensor, MappedTensor) else tensor
        fibers = stored.shape[order[batch]]  # of each batch
        ends = stored.arrays[f"pointers_to_{above}"][:: fibers or 1]
        if not fibers or len(set(np.diff(ends).tolist())) > 1:
            return None  # every batch of torch has as many entries
    return found


def _laid_out(tensor: AnyTensor, layout: str, block: tuple[int, int] | None) -> AnyTensor:
    """The same entries in a format whose arrays are those of a layout."""
    whole = without_map(tensor)
    if layout == "coo":
        return whole.convert(coordinates(whole.ndim))
    if whole.ndim != 2:
        raise FormatError(Problem("layout", f"a tensor of {whole.ndim} dimensions is not brought into {layout}"))
    if layout in ("csr", "csc"):
        return whole.convert(layout.upper())
    if block is None:
        raise FormatError(Problem("block", f"{layout} needs the sizes of a block"))
    checked = IndexMap.blocks(whole.shape, block).stored_shape[2:]
    map = _blocked(whole.shape, (0, 1) if layout == "bsr" else (1, 0), checked)
    if map.padded:
        raise FormatError(Problem("block", f"{block} does not divide {whole.shape}, as torch demands"))
    return MappedTensor(whole).convert("dense, sparse, dense(2)", map)


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = tensor.resolve_conj().resolve_neg().cpu().numpy()
    except TypeError as error:
        raise FormatError(Problem("values", f"numpy has no such type: {error}")) from None
    return found


def _copied(values: npt.NDArray[Any]) -> torch.Tensor:
    import torch

    try:
        return torch.from_numpy(np.array(values))
    except TypeError as error:
        raise FormatError(Problem("values", f"torch has no such type: {error}")) from None


def _dense(rank: int) -> tuple[Dense, ...]:
    return (Dense(rank),) if rank else ()
