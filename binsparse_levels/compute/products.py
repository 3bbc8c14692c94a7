"""Sums of products of stored tensors and dense arrays, in the notation of numpy's einsum."""

from __future__ import annotations

import functools
import math
import re
import string
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import kernels
from ..errors import ArrayError, FormatError, OptionError, Problem, within_memory
from ..formats.format import FormatLike
from ..levels.positions import Array
from ..limits import Limits
from ..tensors.foreign import as_operand
from ..tensors.tensor import Tensor, inside, remade, tensor_of
from ..tensors.validation import checked_array, with_memory
from .arithmetic import combined
from .contracting import NONE, contracted, summed
from .cursors import indented
from .nest import Leaf
from .operands import shared_metadata
from .seeing import Walk, in_memory, walk_of, walks, with_values
from .types import DENSE, checked_result, number_type, product_types
from .walk import checked_memory, innermost, native, run

_LETTERS = string.ascii_letters
_Types: TypeAlias = "tuple[np.dtype[Any], np.dtype[Any]]"  # see `product_types`


class _Spec(NamedTuple):
    """The letters of each operand and of the result. at: the index of the stored tensor among the operands."""

    operands: tuple[str, ...]
    at: int
    out: str

    @property
    def stored(self) -> str:
        return self.operands[self.at]

    @property
    def dense(self) -> list[str]:
        return [letters for k, letters in enumerate(self.operands) if k != self.at]


@within_memory
def einsum(
    spec: str,
    *operands: Any,
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
    spec : letters for the dimensions of each operand, and of the result after `->`.
    operands : one or more Tensors, and numpy arrays, in the order of `spec`.
    dtype : type of the result, to which the operands are cast first; by default the type of the sums, or numpy's type
        if nothing is summed.
    format : format of a Tensor result; by default dense and sparse levels, or the format of the only stored tensor.
    memory : bytes for the result and the blocks that are read from a file; by default 2**28.
    limits : `dense_bytes` bounds the size of the result; by default the limits of the tensor.

    Returns
    -------
    Tensor for several stored tensors and no dense array, or a numpy scalar if the result has no dimensions. Otherwise,
    a Tensor with the index arrays of the stored tensor if the result has exactly its indices (row scaling, masks,
    sampled products), else a numpy.ndarray or scalar.

    Raises
    ------
    FormatError : the specification is invalid, or a fill value is not 0.
    ArrayError : shapes or types do not match.
    LimitError : the result exceeds `limits` or `memory`.
    OptionError : no operand is a Tensor, numpy does not cast the operands to `dtype`, or `format` is given for a result
        that is a dense array.
    LabelError : the tensors have different labels for an index, also for one that is summed.

    >>> tensor = pack([[0, 1], [2, 0]], [3.0, 4.0], (2, 3), "CSR")
    >>> einsum("ij,j->i", tensor, np.array([1.0, 2.0, 10.0])).tolist()
    [30.0, 4.0]
    >>> einsum("ij,i->ij", tensor, np.array([1.0, 0.5])).to_dense().tolist()
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
    checked: list[Any] = [x if k in at else _checked_operand(x, k) for k, x in enumerate(operands)]
    made = _computed(parsed, checked, at, dtype, memory, limits)
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
    if tensor.ndim > len(_LETTERS):
        what = f"has {tensor.ndim} dimensions, but einsum has {len(_LETTERS)} letters; use reduce or foreach"
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
    made: Array = product(tensor.T, _checked_operand(other, 0).T).T
    return made


@functools.lru_cache(256)
def _product_spec(ndim: int, dense: int) -> _Spec:
    letters, more = _LETTERS[:ndim], "_" * (dense - 1)
    return _Spec((letters, letters[-1] + more), 0, letters[:-1] + more)


def _computed(
    parsed: _Spec,
    operands: list[Any],
    at: list[int],
    dtype: Any = None,
    memory: int | None = None,
    limits: Limits | None = None,
) -> Any:
    """`einsum` of checked operands. at: the indices of those that are stored."""
    types = _types(parsed, operands, at, dtype)
    if len(at) > 1 or inside(operands[at[0]]).metadata.labels is not None:
        _sizes(parsed.operands, [x.shape for x in operands])
        both = [(operands[k], parsed.operands[k]) for k in at]
        metadata = shared_metadata(both, parsed.out, np.zeros((), types[1])[()])
    if len(at) == 1:  # the result keeps the names of its only tensor
        return _einsum(parsed, operands.pop(at[0]), operands, types, memory, limits)
    made = _of_several(parsed, operands, at, types, memory, limits)
    return tensor_of(inside(made).backing, metadata) if isinstance(made, Tensor) else made


def _einsum(
    parsed: _Spec, tensor: Tensor, dense: list[Array], types: _Types, memory: int | None, limits: Limits | None
) -> Any:
    """`einsum` of one stored tensor and checked dense arrays."""
    plan, inputs = _prepared(parsed, tensor, dense, types)
    if plan.is_tensor:
        return _as_tensor(parsed, tensor, inputs, plan)
    limits = tensor.limits if limits is None else limits
    limits.hold("dense_bytes", plan.nbytes, "operands", "the size in bytes of the result")
    trees = walks(tensor, checked_memory(memory), plan.nbytes)
    out = np.zeros(plan.shape or 1, plan.work)
    for walk in trees:
        (out,) = run(walk, plan.leaf_for(walk), inputs, (out,), _added)
    return out.astype(plan.result, copy=False) if plan.shape else out[0].astype(plan.result)


def planned(spec: str, tensor: Tensor, operands: Sequence[Any]) -> tuple[Plan, tuple[Any, ...]]:
    """The plan of `einsum(spec, tensor, *operands)` with dense operands, and the inputs of its leaf."""
    dense = [_checked_operand(x, k) for k, x in enumerate(operands, 1)]
    parsed = _parse(spec, 1 + len(dense), 0)
    return _prepared(parsed, tensor, dense, _types(parsed, [tensor, *dense], [0], None))


def _prepared(parsed: _Spec, tensor: Tensor, dense: Sequence[Array], types: _Types) -> tuple[Plan, tuple[Any, ...]]:
    plan = _planned(parsed, tensor.shape, tuple([x.shape for x in dense]), types)
    return plan, (*map(native, dense), *plan.lanes)


def _types(parsed: _Spec, operands: Sequence[Any], at: Sequence[int], dtype: Any) -> _Types:
    """The types of the computation and of the result. Raises FormatError for a fill value that is not 0."""
    kinds = [x.dtype for x in operands]
    for k in at:
        path, fill = f"operands[{k}]." if len(at) > 1 else "", operands[k].fill_value
        if fill is not None and fill != 0:
            what = f"cells that are not stored have the value {fill}, not 0; use to_dense() and numpy"
            raise FormatError(Problem(f"{path}fill_value", what))
        kinds[k] = number_type(kinds[k], f"{path}values")
    return _typed(parsed, tuple(kinds), None if dtype is None else checked_result(dtype))


@functools.lru_cache(1024)
def _typed(parsed: _Spec, kinds: tuple[np.dtype[Any], ...], dtype: np.dtype[Any] | None) -> _Types:
    sums = not set("".join(parsed.operands)) <= set(parsed.out)
    return product_types(kinds, dtype, sums=sums)


def _of_several(
    parsed: _Spec,
    operands: Sequence[Any],
    at: Sequence[int],
    types: _Types,
    memory: int | None,
    limits: Limits | None,
) -> Any:
    """`einsum` of several stored tensors, at the indices `at`, and dense arrays: in pairs until one tensor is left."""
    work, result = types
    left, allowed = [(_plain(operands[k], work), parsed.operands[k]) for k in at], checked_memory(memory)
    of_dense = [letters for k, letters in enumerate(parsed.operands) if k not in at]
    while len(left) > 1:
        (a, mine), (b, others), *rest = left
        needed = set(parsed.out).union(NONE, *of_dense, *(letters for _, letters in rest))
        a, mine = summed(a, mine, needed | set(others), work, allowed)
        b, others = summed(b, others, needed | set(mine), work, allowed)
        if set(mine) == set(others):
            b = b.permute([others.index(x) for x in mine])
            product = combined(np.multiply, a, b, {"dtype": work}, allowed)
            left = [summed(product, mine, needed, work, allowed), *rest]
        else:
            left = [contracted(a, mine, b, others, needed, work, allowed), *rest]
    tensor, letters = left[0]
    if of_dense:
        dense = [x for k, x in enumerate(operands) if k not in at]
        return _einsum(_Spec((letters, *of_dense), 0, parsed.out), tensor, dense, types, memory, limits)
    tensor, letters = summed(tensor, letters, set(parsed.out), work, allowed)
    made = tensor if tensor.dtype == result else tensor.astype(result)
    return made.permute([letters.index(x) for x in parsed.out]) if parsed.out else made.to_dense().reshape(())[()]


def _plain(tensor: Tensor, work: np.dtype[Any]) -> Tensor:
    """The tensor without names and labels, with values of a type that numpy casts to the type `work`."""
    kind = number_type(tensor.dtype, "values")
    kind = kind if np.can_cast(kind, work, "same_kind") else work
    return remade(tensor if tensor.dtype == kind else tensor.astype(kind), labels=None)


class Plan(NamedTuple):
    """The plan of a product, for the shapes and types of its operands.

    spec: the product. work, result: the types of the sums and of the result. shape: the shape of the result. nbytes:
    its size in the type `work`. is_tensor: the result has exactly the indices of the stored tensor. lanes: the sizes of
    the indices that the stored tensor does not have.
    """

    spec: _Spec
    work: np.dtype[Any]
    result: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int
    is_tensor: bool
    leaf: Leaf
    lanes: tuple[np.uint64, ...]

    def leaf_for(self, walk: Walk) -> Leaf:
        """The leaf for a tree. Factors that a long fiber does not change are applied once."""
        last = innermost(walk) if self.lanes and not self.is_tensor else None
        return (_factored(self.spec, self.work.name, last) if last else None) or self.leaf


@functools.lru_cache(1024)  # without the cache, a small product takes twice as long
def _planned(
    parsed: _Spec,
    shape: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    types: _Types,
) -> Plan:
    sizes = _sizes(parsed.operands, [*shapes[: parsed.at], shape, *shapes[parsed.at :]])
    work, result = types
    is_tensor = parsed.out != "" and sorted(parsed.out) == sorted(parsed.stored)  # the result has each letter once
    made = tuple([sizes[c] for c in parsed.out])
    lanes = tuple([np.uint64(sizes[c]) for c in _lanes(parsed)])
    leaf = _leaf(parsed, work.name, is_tensor)
    return Plan(parsed, work, result, made, work.itemsize * math.prod(made), is_tensor, leaf, lanes)


def _added(a: tuple[Array], b: tuple[Array]) -> tuple[Array]:
    return (np.add(a[0], b[0], out=a[0]),)


@functools.lru_cache(1024)
def _parse(spec: str, operands: int, at: int) -> _Spec:
    if not re.fullmatch(r"[A-Za-z]*(,[A-Za-z]*)*->[A-Za-z]*", spec.replace(" ", "")):
        raise FormatError(Problem("spec", f"{spec!r:.60} is not a specification; write letters such as 'ij,j->i'"))
    left, out = spec.replace(" ", "").split("->")
    parsed = _Spec(tuple(left.split(",")), at, out)
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
    sizes: dict[str, int] = {}
    for k, (letters, shape) in enumerate(zip(operands, shapes, strict=True)):
        if len(letters) != len(shape):
            what = f"has {len(shape)} dimensions, but {letters!r} has {len(letters)} letters; write one for each"
            raise ArrayError(Problem(f"operands[{k}]", what))
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                what = f"the index {letter!r} has size {size} here and {sizes[letter]} before; pass arrays that match"
                raise ArrayError(Problem(f"operands[{k}]", what))
    return sizes


def _lanes(parsed: _Spec) -> tuple[str, ...]:
    """The indices that the stored tensor does not have: first those of the result, in its order."""
    dense = "".join(parsed.dense)
    order = [*parsed.out, *sorted(set(dense) - set(parsed.out))]
    return tuple(letter for letter in order if letter in dense and letter not in parsed.stored)


def _leaf(parsed: _Spec, work: str, at_positions: bool) -> Leaf:
    """The leaf of a product. at_positions: the result has an item for each stored value."""
    stored, lanes = parsed.stored, _lanes(parsed)
    place = {letter: f"r{k}" for k, letter in enumerate(lanes)}
    place |= {letter: f"c{stored.index(letter)}" for letter in stored}
    factors = []
    for k, letters in enumerate(parsed.dense):
        at = ", ".join(place[letter] for letter in letters) or "()"
        factors.append((f"np.{work}(f{k}[{at}])", set(letters) & set(lanes)))
    inner = [k for k, letter in enumerate(lanes) if letter not in parsed.out]
    outer = [k for k, letter in enumerate(lanes) if letter in parsed.out]
    target = "out[q]" if at_positions else f"out[{', '.join(place[letter] for letter in parsed.out) or '0'}]"
    local = not at_positions and not outer  # a local variable sums consecutive entries of the same item
    lines = [f"v = np.{work}(value)" + "".join(f" * {text}" for text, used in factors if not used)]
    pad = ""
    for k in outer:
        lines.append(f"{pad}for r{k} in range(e{k}):")
        pad += "    "
    term = " * ".join(text for text, used in factors if used)
    if inner:
        lines.append(f"{pad}t = np.{work}(0)")
        deeper = pad
        for k in inner:
            lines.append(f"{deeper}for r{k} in range(e{k}):")
            deeper += "    "
        lines.append(f"{deeper}t += {term}")
        term = "t"
    lines.append(f"{pad}{'total' if local else target} {'' if at_positions else '+'}= v{' * ' + term if term else ''}")
    twice = [(place[a], f"c{k}") for k, a in enumerate(stored) if stored.index(a) != k]
    if twice:
        lines = [f"if {' and '.join(f'{a} == {b}' for a, b in twice)}:", *(f"    {line}" for line in lines)]
    names = (*(f"f{k}" for k in range(len(parsed.dense))), *(f"e{k}" for k in range(len(lanes))), "out")
    kept = frozenset(stored.index(letter) for letter in stored if at_positions or letter in parsed.out)
    used = {stored.index(x) for letters in parsed.dense for x in letters if x in stored}
    used |= set() if at_positions else kept
    used |= set(range(len(stored))) if twice else set()
    around = f"total = {target}\nyield\n{target} = total" if local else "yield"
    totals = ("total",) if local and not inner else ()
    return Leaf(names, "\n".join(lines), kept, frozenset(used), around, totals, stored.find(parsed.out[:1]))


@functools.lru_cache(1024)
def _factored(parsed: _Spec, work: str, last: frozenset[int]) -> Leaf | None:
    """The leaf that applies factors once for each fiber of the last level, if the fiber does not change them.

    If the fiber adds to the same items, it is summed first: `out += (v + v) * factors`, and else the factors are
    multiplied first: `out += v * (factors)`. last: the dimensions that change within a fiber. None if it gains nothing.
    """
    stored, lanes = parsed.stored, _lanes(parsed)
    changed = {stored[k] for k in last}
    outer = [k for k, letters in enumerate(parsed.dense) if not changed & set(letters)]
    inner = [k for k in range(len(parsed.dense)) if k not in outer]
    sums = not changed & set(parsed.out)
    lanes_of = {k: set(lanes) & set(letters) for k, letters in enumerate(parsed.dense)}
    gains = any(lanes_of[k] for k in outer) and len(outer) > (0 if sums else 1)
    if not gains or not set(lanes) <= set(parsed.out) or len(set(stored)) < len(stored):
        return None
    place = {x: f"r{k}" for k, x in enumerate(lanes)} | {x: f"c{k}" for k, x in enumerate(stored)}
    used = [x for x in lanes if any(x in lanes_of[k] for k in (inner if sums else outer))]

    def product(first: str, operands: Sequence[int]) -> str:
        at = [", ".join(place[x] for x in parsed.dense[k]) or "()" for k in operands]
        return " * ".join([first, *(f"np.{work}(f{k}[{x}])" for k, x in zip(operands, at, strict=True))])

    def each(letters: Sequence[str], statement: str) -> list[str]:
        for x in reversed(letters):
            statement = "\n".join([f"for {place[x]} in range(e{place[x][1:]}):", *indented(statement.splitlines())])
        return statement.splitlines()

    part = f"part[{', '.join(place[x] for x in used)}]" if used else "part"
    target = f"out[{', '.join(place[x] for x in parsed.out)}]"
    if sums:  # nothing is added for no entries: 0 * inf is NaN
        entry = ["is_empty = False", *each(used, f"{part} += {product('v', inner)}")]
        around = ["is_empty = True", *each(used, f"{part} = np.{work}(0)"), "yield", "if not is_empty:"]
        around += indented(each(lanes, f"{target} += {product(part, outer)}"))
    else:
        entry = each(lanes, f"{target} += {product(f'v * {part}', inner)}")
        around = [*each(used, f"{part} = {product(f'np.{work}(1)', outer)}"), "yield"]
    letters = {x for k in outer for x in parsed.dense[k]} | set(parsed.out if sums else "")
    return _leaf(parsed, work, False)._replace(
        entry="\n".join([f"v = np.{work}(value)", *entry]),
        around="\n".join(around),
        fixed=frozenset([k for k, x in enumerate(stored) if x in letters]),
        before=f"part = np.empty(({', '.join(f'e{place[x][1:]}' for x in used)},), np.{work})" if used else "",
    )


def _as_tensor(parsed: _Spec, tensor: Tensor, inputs: tuple[Any, ...], plan: Plan) -> Tensor:
    """A result with exactly the indices of the stored tensor, as a Tensor with the same index arrays."""
    whole = in_memory(tensor)
    walk = walk_of(whole)
    out = np.zeros(len(walk.tree.values), plan.work)
    run(walk, plan.leaf, inputs, (out,))
    fill = None if tensor.fill_value is None else plan.result.type(0)
    return with_values(whole, out.astype(plan.result, copy=False), fill).permute(
        [parsed.stored.index(c) for c in parsed.out]
    )
