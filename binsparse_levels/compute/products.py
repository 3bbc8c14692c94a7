"""Sums of products of stored tensors and dense arrays, in the notation of numpy's einsum."""

from __future__ import annotations

import functools
import math
import re
import string
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import kernels
from ..errors import ArrayError, FormatError, OptionError, Problem, within_memory
from ..formats.format import FormatLike, coordinates
from ..levels.positions import Array
from ..limits import Limits
from ..tensors.changing import expanded
from ..tensors.foreign import as_operand
from ..tensors.packing import pack, pack_dense
from ..tensors.tensor import Tensor, inside, remade, tensor_of
from ..tensors.validation import checked_array, with_memory
from .arithmetic import combined
from .contracting import NONE, Mask, Rules, contracted, summed
from .leaves import Spec, factored, leaf_of
from .nest import Leaf
from .operands import fill_or_none, shared_metadata
from .seeing import Walk, in_memory, walk_of, walks, with_values
from .semirings import FIRST, PLUS_TIMES, semiring_of
from .types import DENSE, checked_result, number_type
from .walk import checked_memory, innermost, native, run

LETTERS = string.ascii_letters
_Types: TypeAlias = "tuple[np.dtype[Any], np.dtype[Any]]"  # see `product_types`


class _Options(NamedTuple):
    """The options of `einsum`. format: of a Tensor; None for a dense array if there is one stored tensor."""

    dtype: Any = None
    memory: int | None = None
    limits: Limits | None = None
    mask: Any = None
    format: Any = None


_NO_OPTIONS = _Options()


@within_memory
def einsum(
    spec: str,
    *operands: Any,
    semiring: str | tuple[Callable[..., Any], Callable[..., Any], float] = "plus_times",
    mask: Any = None,
    dtype: npt.DTypeLike | None = None,
    format: FormatLike | None = None,
    memory: int | None = None,
    limits: Limits | None = None,
) -> Any:
    """Sum products of stored tensors and dense arrays, in the notation of `numpy.einsum`.

    A tensor in a file is read in blocks. Several stored tensors are multiplied in pairs from the left, then by the
    dense arrays. One tensor of a pair is walked in any format whose outer dimensions are those of the result; if
    neither has such a format, the tensor with fewer values is converted. A tensor that does not fit the memory is read
    in parts.

    A product with a cell that is not stored is 0, even if another factor is infinite or NaN; numpy returns NaN there.
    A sum of no entries counts as not stored.

    Sums of integers and booleans have 64 bits. Sums of floats have at least the precision of float64. Results do not
    depend on the number of threads.

    Parameters
    ----------
    spec : str
        Letters for the dimensions of each operand, and of the result after `->`.
    *operands
        One or more Tensors, and numpy arrays, in the order of `spec`.
    semiring : str or tuple of two callables and a number, default 'plus_times'
        Another sum and product of one or two operands: "min_plus", "max_plus", "max_times", "min_first", "plus_pair",
        "any_pair" or "lor_land" as in GraphBLAS, or two functions compiled by numba and the identity of the first, a
        number. Only stored cells take part. The other cells of a result have this identity.
    mask : Tensor or array_like, optional
        A Tensor or array of the shape of the result. With one or two operands, only cells where it is not 0 are
        computed; `~mask` has the others. It is read into memory.
    dtype : dtype_like, optional
        Type of the result, to which the operands are cast first; by default the type of the sums, or numpy's type if
        nothing is summed.
    format : str, Format or mapping, optional
        Format of a Tensor result; by default dense and sparse levels, or the format of the only stored tensor. Sums of
        one tensor are a Tensor with it, and a dense array without.
    memory : int, optional
        Bytes for the result and the blocks that are read from a file; by default 2**28.
    limits : Limits, optional
        `dense_bytes` bounds the size of the result; by default the limits of the tensor.

    Returns
    -------
    Tensor
        Tensor for several stored tensors and no dense array, or for one with a `format`; a numpy scalar if the result
        has no dimensions. Otherwise, a Tensor with the index arrays of the stored tensor if the result has exactly its
        indices (row scaling, masks, sampled products), else a numpy.ndarray or scalar.

    Raises
    ------
    FormatError
        The specification is invalid, or a fill value is neither 0 nor the identity of the sum.
    ArrayError
        Shapes or types do not match, or complex numbers have no minimum.
    LimitError
        The result exceeds `limits` or `memory`.
    OptionError
        No operand is a Tensor, the semiring is unknown, numpy does not cast the operands to `dtype`, or `format` is
        given for a result that is a dense array.
    LabelError
        The tensors have different labels for an index, also for one that is summed.

    See Also
    --------
    reduce : Reduce dimensions.
    foreach : Call a compiled function for every stored entry.
    explain : Show the loops that compute a sum or product.

    Examples
    --------
    >>> import numpy as np
    >>> import binsparse_levels as bl
    >>> tensor = bl.pack([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), "CSR")
    >>> bl.einsum("ij,j->i", tensor, np.array([1.0, 2.0, 10.0])).tolist()
    [30.0, 4.0]
    >>> bl.einsum("ij,j->i", tensor, np.array([1.0, 2.0, 10.0]), semiring="min_plus").tolist()
    [13.0, 5.0]
    >>> bl.einsum("ij,i->ij", tensor, np.array([1.0, 0.5])).to_dense().tolist()
    [[0.0, 0.0, 3.0], [2.0, 0.0, 0.0]]
    """
    if not isinstance(spec, str):
        raise OptionError(
            Problem("spec", f"expected a string, got {type(spec).__name__}; write letters such as 'ij,j->i'")
        )
    at = [k for k, operand in enumerate(operands) if isinstance(operand, Tensor)]
    if not at:
        raise OptionError(Problem("operands", "expected a Tensor among the operands; call numpy.einsum, or as_tensor"))
    parsed = _parse(spec, len(operands), at[0])
    parsed = parsed._replace(semiring=semiring_of(semiring), is_masked=mask is not None)
    if len(operands) > 2 and (parsed.semiring is not PLUS_TIMES or parsed.is_masked):
        what = f"a semiring and a mask take two operands, got {len(operands)}; multiply two at a time"
        raise OptionError(Problem("operands", what))
    checked: list[Any] = [x if k in at else _checked_operand(x, k) for k, x in enumerate(operands)]
    made = _computed(parsed, checked, at, _Options(dtype, memory, limits, mask, format))
    if format is None or isinstance(made, Tensor):
        return made if format is None else made.convert(format)
    raise OptionError(Problem("format", "the result is a dense array; leave format out, or pack it by from_numpy"))


@within_memory
def product(tensor: Any, other: Any) -> Any:
    """`tensor @ other`: the product with a dense vector or matrix, or with another tensor; see `einsum`."""
    tensor, other = as_operand(tensor), as_operand(other)
    if not isinstance(tensor, Tensor):
        return product_from_left(tensor, other)
    if not tensor.ndim:
        raise OptionError(Problem("operands", "a scalar has no dimension; call einsum for other products"))
    if tensor.ndim > len(LETTERS):
        what = f"has {tensor.ndim} dimensions, but einsum has {len(LETTERS)} letters; use reduce or foreach"
        raise FormatError(Problem("operands[0]", what))
    stored = isinstance(other, Tensor)
    other = other if stored else _checked_operand(other, 1)
    if not 1 <= other.ndim <= 2 or (stored and tensor.ndim > 2):
        what = f"@ does not multiply {tensor.ndim} and {other.ndim} dimensions; call einsum"
        raise ArrayError(Problem("operands", what))
    return _computed(_product_spec(tensor.ndim, other.ndim), [tensor, other], [0, 1] if stored else [0])


def product_from_left(other: Any, tensor: Tensor) -> Array:
    """`other @ tensor` for a matrix or a vector, computed as the product of the transposes."""
    if tensor.ndim not in (1, 2):
        what = f"array @ tensor requires a matrix or a vector, got {tensor.ndim} dimensions; call einsum"
        raise OptionError(Problem("operands", what))
    other = _checked_operand(other, 0)
    if other.ndim and other.shape[-1] != tensor.shape[0]:
        here, there = f"dimension {other.ndim - 1} has size {other.shape[-1]}", "dimension 0 of operands[1]"
        raise ArrayError(Problem("operands[0]", f"{here}, and {there} has {len(tensor)}; pass arrays that match"))
    made: Array = product(tensor.T, other.T).T
    return made


@functools.lru_cache(256)
def _product_spec(ndim: int, dense: int) -> Spec:
    letters, more = LETTERS[:ndim], "_" * (dense - 1)
    return Spec((letters, letters[-1] + more), 0, letters[:-1] + more)


def _computed(parsed: Spec, operands: list[Any], at: list[int], options: _Options = _NO_OPTIONS) -> Any:
    """`einsum` of checked operands. at: the indices of those that are stored."""
    types = _types(parsed, operands, at, options.dtype)
    if parsed.is_masked:
        sizes = _sizes(parsed.operands, [x.shape for x in operands])
        options = options._replace(mask=_mask_of(options.mask, parsed.out, tuple([sizes[x] for x in parsed.out])))
    to_sum = options.format is not None and len(operands) == 1 and parsed.out and parsed.semiring is PLUS_TIMES
    several = len(at) > 1 or (to_sum and not parsed.is_masked)
    if several or inside(operands[at[0]]).metadata.labels is not None:
        _sizes(parsed.operands, [x.shape for x in operands])
        both = [(operands[k], parsed.operands[k]) for k in at]
        metadata = shared_metadata(both, parsed.out, parsed.semiring.identity(types[1]))
    if not several:  # the result keeps the names of its only tensor
        return _einsum(parsed, operands.pop(at[0]), operands, types, options)
    made = _of_several(parsed, operands, at, types, options)
    return tensor_of(inside(made).backing, metadata) if isinstance(made, Tensor) else made


def _einsum(parsed: Spec, tensor: Tensor, dense: list[Array], types: _Types, options: _Options) -> Any:
    """`einsum` of one stored tensor and checked dense arrays."""
    plan, inputs = _prepared(parsed, tensor, dense, types)
    if plan.is_tensor:
        if parsed.is_masked:
            tensor = _restricted(tensor, parsed, options)
        return _as_tensor(parsed, tensor, inputs, plan)
    limits = tensor.limits if options.limits is None else options.limits
    limits.hold("dense_bytes", plan.nbytes, "operands", "the size in bytes of the result")
    if parsed.is_masked:
        cells = (options.mask.cells.to_dense() != 0).reshape(plan.shape or 1)
        inputs = (*inputs, kernels.readable(cells))
    trees = walks(tensor, checked_memory(options.memory), plan.nbytes)
    semiring = parsed.semiring
    out = np.full(plan.shape or 1, semiring.identity(plan.result), plan.work)

    def joined(a: tuple[Array], b: tuple[Array]) -> tuple[Array]:
        return (semiring.join(a[0], b[0], out=a[0]),)

    for walk in trees:
        (out,) = run(walk, plan.leaf_for(walk), inputs, (out,), joined, kept=not semiring.functions)
    return out.astype(plan.result, copy=False) if plan.shape else out[0].astype(plan.result)


def planned(spec: str, tensor: Tensor, operands: Sequence[Any]) -> tuple[Plan, tuple[Any, ...]]:
    """The plan of `einsum(spec, tensor, *operands)` with dense operands, and the inputs of its leaf."""
    dense = [_checked_operand(x, k) for k, x in enumerate(operands, 1)]
    parsed = _parse(spec, 1 + len(dense), 0)
    return _prepared(parsed, tensor, dense, _types(parsed, [tensor, *dense], [0], None))


def _prepared(parsed: Spec, tensor: Tensor, dense: Sequence[Array], types: _Types) -> tuple[Plan, tuple[Any, ...]]:
    plan = _planned(parsed, tensor.shape, tuple([x.shape for x in dense]), types)
    return plan, (*map(native, dense), *plan.lanes, *parsed.semiring.functions)


def _types(parsed: Spec, operands: Sequence[Any], at: Sequence[int], dtype: Any) -> _Types:
    """The types of the computation and of the result. Raises FormatError for a fill value that is not 0."""
    kinds = [x.dtype for x in operands]
    for k in at:
        path, fill = f"operands[{k}]." if len(at) > 1 else "", operands[k].fill_value
        kinds[k] = number_type(kinds[k], f"{path}values")
        end = 0 if kinds[k].kind == "b" else parsed.semiring.identity(kinds[k])
        if fill is not None and fill not in (0, end):
            what = f"cells that are not stored have the value {fill}, not 0; use to_dense() and numpy"
            raise FormatError(Problem(f"{path}fill_value", what))
    return _typed(parsed, tuple(kinds), None if dtype is None else checked_result(dtype))


@functools.lru_cache(1024)
def _typed(parsed: Spec, kinds: tuple[np.dtype[Any], ...], dtype: np.dtype[Any] | None) -> _Types:
    sums = not set("".join(parsed.operands)) <= set(parsed.out)
    return parsed.semiring.types(kinds, dtype, sums=sums)


def _of_several(parsed: Spec, operands: Sequence[Any], at: Sequence[int], types: _Types, options: _Options) -> Any:
    """`einsum` of several stored tensors, at the indices `at`, and dense arrays: in pairs until one tensor is left."""
    work, result = types
    left, allowed = [(_plain(operands[k], work), parsed.operands[k]) for k in at], checked_memory(options.memory)
    of_dense = [letters for k, letters in enumerate(parsed.operands) if k not in at]
    is_plain = parsed.semiring is PLUS_TIMES and not parsed.is_masked
    while len(left) > 1:
        (a, mine), (b, others), *rest = left
        needed = set(parsed.out).union(NONE, *of_dense, *(letters for _, letters in rest))
        own = "" if is_plain else mine + others  # in some semirings, a sum of products is no product of sums
        a, mine = summed(a, mine, needed.union(others, own), work, allowed)
        b, others = summed(b, others, needed.union(mine, own), work, allowed)
        if is_plain and set(mine) == set(others):
            b = b.permute([others.index(x) for x in mine])
            product = combined(np.multiply, a, b, {"dtype": work}, allowed)
            left = [summed(product, mine, needed, work, allowed), *rest]
        else:
            rules = Rules(needed, work, allowed, parsed.semiring, options.mask)
            left = [contracted(a, mine, b, others, rules), *rest]
    tensor, letters = left[0]
    if of_dense:
        dense = [x for k, x in enumerate(operands) if k not in at]
        return _einsum(Spec((letters, *of_dense), 0, parsed.out), tensor, dense, types, options)
    tensor, letters = summed(tensor, letters, set(parsed.out), work, allowed)
    made = tensor if tensor.dtype == result else tensor.astype(result)
    return made.permute([letters.index(x) for x in parsed.out]) if parsed.out else made.to_dense().reshape(())[()]


def _restricted(tensor: Tensor, parsed: Spec, options: _Options) -> Tensor:
    """The entries of a tensor in the cells of a mask: its product with a number, of which the first factor is kept."""
    one, dtype = pack((), [True], (), "element"), tensor.dtype
    product = Spec((parsed.stored, ""), 0, parsed.stored, FIRST, True)
    made = _of_several(product, [tensor, one], [0, 1], (dtype, dtype), options)
    return tensor_of(inside(made).backing, inside(tensor).metadata)


def _mask_of(mask: Any, letters: str, shape: tuple[int, ...]) -> Mask:
    """The cells of a mask that are not 0, as those that it stores or all others. Raises ArrayError."""
    if not isinstance(mask, Tensor):
        mask = pack_dense(checked_array(with_memory(mask), "mask") != 0, coordinates(np.ndim(mask)))
    if mask.shape != shape:
        what = f"the mask has the shape {mask.shape}, but the result {shape}; pass a mask of the same shape"
        raise ArrayError(Problem("mask", what))
    whole = remade(expanded(mask.load()), labels=None)
    others = bool(inside(whole).pad)
    if not ((inside(whole).tree.values != 0) != others).all():
        coords, values = whole.unpack()
        kept = (values != 0) != others
        coords, values = [x[kept] for x in coords], values[kept] != 0
        whole = pack(coords, values, shape, coordinates(whole.ndim) if shape else "bitmap(0)", fill_value=others)
    return Mask(whole, letters, others)


def _plain(tensor: Tensor, work: np.dtype[Any]) -> Tensor:
    """The tensor without names and labels, with values of a type that numpy casts to the type `work`."""
    kind = number_type(tensor.dtype, "values")
    if not np.can_cast(kind, work, "same_kind"):  # at most the truth of values matters
        tensor, kind = expanded(tensor), np.dtype(bool)
    return remade(tensor if tensor.dtype == kind else tensor.astype(kind), labels=None)


class Plan(NamedTuple):
    """The plan of a product, for the shapes and types of its operands.

    spec: the product. work, result: the types of the sums and of the result. shape: the shape of the result. nbytes:
    its size in the type `work`. is_tensor: the result has exactly the indices of the stored tensor. lanes: the sizes of
    the indices that the stored tensor does not have.
    """

    spec: Spec
    work: np.dtype[Any]
    result: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    is_tensor: bool
    leaf: Leaf
    lanes: tuple[np.uint64, ...]

    def leaf_for(self, walk: Walk) -> Leaf:
        """The leaf for a tree. Factors that a long fiber does not change are applied once."""
        plain = self.spec.semiring is PLUS_TIMES and not self.spec.is_masked
        last = innermost(walk) if plain and self.lanes and not self.is_tensor else None
        return (factored(self.spec, self.work.name, last) if last else None) or self.leaf


@functools.lru_cache(1024)  # without the cache, a small product takes twice as long
def _planned(
    parsed: Spec,
    shape: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    types: _Types,
) -> Plan:
    sizes = _sizes(parsed.operands, [*shapes[: parsed.at], shape, *shapes[parsed.at :]])
    work, result = types
    is_tensor = parsed.out != "" and sorted(parsed.out) == sorted(parsed.stored)  # the result has each letter once
    made = tuple([sizes[c] for c in parsed.out])
    lanes = tuple([np.uint64(sizes[c]) for c in parsed.lanes])
    leaf = leaf_of(parsed, work.name, is_tensor)
    return Plan(parsed, work, result, made, work.itemsize * math.prod(made), is_tensor, leaf, lanes)


@functools.lru_cache(1024)
def _parse(spec: str, operands: int, at: int) -> Spec:
    if not re.fullmatch(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*", spec.replace(" ", "")):
        raise FormatError(Problem("spec", f"{spec!r:.60} is not a specification; write letters such as 'ij,j->i'"))
    left, out = spec.replace(" ", "").split("->")
    parsed = Spec(tuple(left.split(",")), at, out)
    if len(parsed.operands) != operands:
        what = f"{spec!r:.60} has {len(parsed.operands)} operands, got {operands}; pass one for each"
        raise FormatError(Problem("spec", what))
    strange = sorted(set(out) - set("".join(parsed.operands)))
    if strange or len(set(out)) != len(out):
        what = f"has {strange[0]!r}, which no operand has" if strange else "repeats an index"
        raise FormatError(Problem("spec", f"the result of {spec!r:.60} {what}; name indices of operands, each once"))
    return parsed


def _checked_operand(operand: Any, k: int) -> Array:
    operand = with_memory(operand)
    if not isinstance(operand, DENSE):
        name = type(operand).__name__
        what = f"expected a dense numpy array, got {name}; convert it by numpy.asarray or its toarray()"
        raise OptionError(Problem(f"operands[{k}]", what))
    array = checked_array(operand, f"operands[{k}]")
    array = array.astype(number_type(array.dtype, f"operands[{k}]"), copy=False)
    return kernels.readable(array).reshape(array.shape)


def _sizes(operands: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The sizes of all indices. Raises ArrayError."""
    first: dict[str, tuple[int, str]] = {}  # the size of an index, and where it has that size
    for k, (letters, shape) in enumerate(zip(operands, shapes, strict=True)):
        if len(letters) != len(shape):
            what = f"has {len(shape)} dimensions, but {letters!r} has {len(letters)} letters; write one for each"
            raise ArrayError(Problem(f"operands[{k}]", what))
        for d, (letter, size) in enumerate(zip(letters, shape, strict=True)):
            expected, where = first.setdefault(letter, (size, f"dimension {d} of operands[{k}]"))
            if expected != size:
                what = f"dimension {d} has size {size}, and {where} has {expected}; pass arrays that match"
                raise ArrayError(Problem(f"operands[{k}]", what))
    return {letter: size for letter, (size, _) in first.items()}


def _as_tensor(parsed: Spec, tensor: Tensor, inputs: tuple[Any, ...], plan: Plan) -> Tensor:
    """A result with exactly the indices of the stored tensor, as a Tensor with the same index arrays."""
    whole = in_memory(tensor)
    walk = walk_of(whole)
    fill = parsed.semiring.identity(plan.result)
    out = np.full(len(walk.tree.values), fill, plan.work)
    run(walk, plan.leaf, inputs, (out,), kept=not parsed.semiring.functions)
    made = with_values(whole, out.astype(plan.result, copy=False), fill_or_none([tensor], fill))
    return made.permute([parsed.stored.index(c) for c in parsed.out])
