"""Sparse tensors of torch, in any layout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..arrays import copy_if_writable
from ..errors import FormatError, OptionError, Problem, needing, within_memory
from ..formats.format import Format, in_order
from ..formats.index_map import Digit, IndexMap
from ..levels import full, listing
from ..tensors.changing import expanded
from ..tensors.foreign import check_representable, qualified
from ..tensors.packing import pack_dense
from ..tensors.tensor import Tensor, owning

if TYPE_CHECKING:
    import torch

_LAYOUTS = {"coo": "sparse_coo", "csr": "sparse_csr", "csc": "sparse_csc", "bsr": "sparse_bsr", "bsc": "sparse_bsc"}
_BLOCKED = ("bsr", "bsc")


def _stored(
    layout: str, shape: Sequence[int], batch: int, dense: int, block: Sequence[int] | None
) -> tuple[Format, IndexMap | None]:
    """The format and the map whose arrays are those of a layout. batch, dense: the numbers of these dimensions.

    block: the sizes of a block for bsr and bsc, else None.
    """
    ndim = len(shape)
    if layout == "coo":
        return Format((*listing(ndim - dense), *full(dense))), None
    matrix = (batch, batch + 1) if layout in ("csr", "bsr") else (batch + 1, batch)
    order = [*range(batch), *matrix, *range(batch + 2, ndim)]
    compressed = (*full(batch + 1), *listing(1))
    if block is None:
        return in_order((*compressed, *full(dense)), order), None
    # The numbers of the blocks, the coordinates in a block, the dense dimensions.
    sizes = dict(zip((batch, batch + 1), block, strict=True))
    digits = [Digit(k, sizes.get(k, 1), -(-shape[k] // sizes.get(k, 1))) for k in order[: batch + 2]]
    digits += [Digit(k, 1, size) for k, size in sizes.items()]
    digits += [Digit(k, 1, shape[k]) for k in range(batch + 2, ndim)]
    return Format((*compressed, *full(dense + 2))), IndexMap(tuple(shape), tuple((digit,) for digit in digits))


@within_memory
def from_torch(tensor: torch.Tensor, *, copy: bool = True, attributes: Mapping[str, Any] | None = None) -> Tensor:
    """Convert a sparse tensor of torch to a Tensor with the fill value 0.

    Batch dimensions become dense levels above the sparse one, and the dense dimensions of *hybrid* tensors become dense
    levels below it.

    Parameters
    ----------
    tensor : torch.Tensor
        Tensor of any sparse layout. COO is coalesced first. BSR and BSC are stored through a map, because their blocks
        divide dimensions. A tensor on a device is copied to CPU memory.
    copy : bool, default True
        See `from_scipy`.
    attributes : mapping, optional
        JSON object that is stored with the tensor.

    Returns
    -------
    Tensor
        Tensor of the shape of `tensor`.

    Raises
    ------
    OptionError
        `tensor` is another object.
    FormatError
        numpy does not support the type of the values.
    ArrayError
        The arrays contradict each other.

    See Also
    --------
    to_torch : Convert a tensor to a sparse tensor of torch.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> import torch  # doctest: +SKIP
    >>> bl.from_torch(torch.eye(3).to_sparse_csr()).shape  # doctest: +SKIP
    (3, 3)
    """
    with needing("torch"):
        import torch

    if not isinstance(tensor, torch.Tensor):
        raise OptionError(f"expected a sparse tensor of torch, got {qualified(tensor)}; call as_tensor")
    layout = next((name for name, known in _LAYOUTS.items() if getattr(torch, known) == tensor.layout), None)
    if layout is None:
        raise OptionError(f"expected a sparse tensor of torch, got {tensor.layout}; call its to_sparse()")
    return _tensor(tensor, layout, copy).with_attributes(attributes)


def _tensor(tensor: torch.Tensor, layout: str, copy: bool) -> Tensor:
    tensor, shape, dense = tensor.detach(), tuple(tensor.shape), tensor.dense_dim()
    if layout == "coo":
        tensor = tensor.coalesce()
        indices, values = _array(tensor.indices()), copy_if_writable(_array(tensor.values()), copy)
        if not len(indices):  # a block of all dimensions, or none
            cells = np.zeros(shape, values.dtype) if not len(values) else values[0]
            return pack_dense(cells, Format(full(dense)), pattern=np.ones(shape, bool))
        format, _ = _stored(layout, shape, 0, dense, None)
        listed = {f"indices_{k}": copy_if_writable(x) for k, x in enumerate(indices)}
        return owning(format, shape, listed, values.reshape(-1), fill_value=0)
    by_rows = layout in ("csr", "bsr")
    pointers = _array(tensor.crow_indices() if by_rows else tensor.ccol_indices())
    indices = _array(tensor.col_indices() if by_rows else tensor.row_indices())
    values = copy_if_writable(_array(tensor.values()), copy)
    batch = pointers.ndim - 1
    # In torch, the pointers of each batch start at 0, and all batches have the same number of entries.
    firsts = np.arange(math.prod(shape[:batch])).reshape(*shape[:batch], 1) * indices.shape[-1]
    joined = np.append(0, (pointers + firsts)[..., 1:]) if batch else pointers
    arrays = {
        f"pointers_to_{batch + 1}": copy_if_writable(joined),
        f"indices_{batch + 1}": copy_if_writable(indices.reshape(-1)),
    }
    block = values.shape[batch + 1 : batch + 3] if layout in _BLOCKED else None
    format, map = _stored(layout, shape, batch, dense, block)
    stored_shape = shape if map is None else map.stored_shape
    made = owning(format, stored_shape, arrays, values.reshape(-1), fill_value=0)
    return made if map is None else made.with_map(map)


@within_memory
def to_torch(tensor: Tensor, layout: str | None = None, *, block: tuple[int, int] | None = None) -> torch.Tensor:
    """Convert a tensor to a sparse tensor of torch. Arrays are copied, because torch has no read-only arrays.

    Parameters
    ----------
    tensor : Tensor
        With the fill value 0 or none; the structure is expanded.
    layout : str, optional
        Coo, csr, csc, bsr or bsc. By default that of the tensor if torch supports it, else coo.
    block : tuple of two int, optional
        The sizes of a block for bsr and bsc; they must divide those of the matrix.

    Returns
    -------
    torch.Tensor
        Torch.Tensor of the same shape, in CPU memory.

    Raises
    ------
    FormatError
        Torch cannot represent the tensor.

    See Also
    --------
    from_torch : Convert a sparse tensor of torch to a Tensor with the fill value 0.
    batches : Iterate over batches of rows of a tensor.

    Examples
    --------
    >>> import binsparse_levels as bl
    >>> bl.to_torch(bl.pack([[0], [2]], [1.0], (2, 3), "CSR"), "coo").layout  # doctest: +SKIP
    torch.sparse_coo
    """
    with needing("torch"):
        import torch

    whole = expanded(tensor)
    check_representable(whole, "torch")
    if layout is not None and layout not in _LAYOUTS:
        raise FormatError(Problem("layout", f"expected one of {', '.join(_LAYOUTS)}, got {layout!r:.40}"))
    if block is not None and layout not in _BLOCKED:
        raise FormatError(Problem("block", "only bsr and bsc have blocks; omit it"))
    own = _layout_of(whole)
    if own is None or layout not in (None, own) or block is not None:
        own = layout or "coo"
        whole = _in_layout(whole, own, block)
    stored = whole.stored
    dense_above, rank, below = _profile(stored.format)
    shape, tail = whole.shape, stored.shape[stored.ndim - below :]
    if own == "coo":
        count = len(stored.arrays["indices_0"]) if rank else len(stored.values)
        table = np.array([stored.arrays[f"indices_{k}"] for k in range(rank)], np.int64).reshape(rank, count)
        values = stored.values.reshape(count, *tail)
        return torch.sparse_coo_tensor(
            torch.from_numpy(table), _copied(values), shape, is_coalesced=True, check_invariants=False
        )
    batch = dense_above - 1
    numbers = math.prod(shape[:batch])
    pointers, indices = stored.arrays[f"pointers_to_{dense_above}"], stored.arrays[f"indices_{dense_above}"]
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


def _profile(format: Format) -> tuple[int, int, int]:
    """The dense dimensions above the only sparse level, its rank, and those below. The rank is 0 for other chains."""
    levels = format.canonical().levels
    depths = [k for k, level in enumerate(levels) if (level,) != full(1)]
    if len(depths) != 1 or (levels[depths[0]],) != listing(levels[depths[0]].rank):
        return 0, 0, len(levels)
    return depths[0], levels[depths[0]].rank, len(levels) - depths[0] - 1


def _layout_of(tensor: Tensor) -> str | None:
    """The layout of torch with the same arrays; None if there is none."""
    dense_above, rank, below = _profile(tensor.format)
    map, batch = tensor.map, dense_above - 1
    block = None if map is None else map.stored_shape[dense_above + 1 : dense_above + 3]
    if not rank:
        return None
    if map is not None and (batch < 0 or below < 2 or tensor.ndim < batch + 2 or map.padded or not all(block or ())):
        return None
    own = tensor.format.canonical(), map
    names = ["coo"] if batch < 0 else ["csr", "csc"] if map is None else _BLOCKED
    dense = below if map is None else below - 2
    layout = next((name for name in names if _stored(name, tensor.shape, batch, dense, block) == own), None)
    if layout and batch > 0:
        stored = tensor.stored
        fibers = stored.shape[stored.format.order[batch]]  # in each batch
        ends = stored.arrays[f"pointers_to_{dense_above}"][:: fibers or 1]
        if not fibers or len(set(np.diff(ends).tolist())) > 1:
            return None  # in torch all batches have the same number of entries
    return layout


def _in_layout(tensor: Tensor, layout: str, block: Sequence[int] | None) -> Tensor:
    """The same entries in the format with the arrays of a layout."""
    whole = tensor.without_map()
    if layout != "coo" and whole.ndim != 2:
        raise FormatError(Problem("layout", f"{layout} requires a matrix, got {whole.ndim} dimensions; choose coo"))
    if layout in _BLOCKED:
        if block is None:
            raise FormatError(Problem("block", f"{layout} requires the sizes of a block; pass block=(rows, columns)"))
        block = IndexMap.blocks(whole.shape, block).stored_shape[2:]  # checked
    format, map = _stored(layout, whole.shape, 0, 0, block)
    if map is None:
        return whole.convert(format)
    if map.padded:
        raise FormatError(
            Problem("block", f"{block} does not divide {whole.shape}, which torch requires; choose other sizes")
        )
    return whole.convert(format, map=map)


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = tensor.resolve_conj().resolve_neg().cpu().numpy()
    except TypeError as error:
        what = f"numpy does not support the type of the values: {error}; cast them"
        raise FormatError(Problem("values", what)) from None
    return array


def _copied(values: npt.NDArray[Any]) -> torch.Tensor:
    import torch

    try:
        return torch.from_numpy(np.array(values))
    except TypeError as error:
        what = f"torch does not support this type: {error}; call astype() first"
        raise FormatError(Problem("values", what)) from None
