"""The faults of a tensor. `read` stops after faults of one kind; here levels and arrays are checked each by itself.

A level below broken pointers is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays import LazyArray
from ..engine.parts import check_in_parts
from ..engine.tree import Tree
from ..errors import BinsparseError, LimitError, Problem
from ..io import Place
from ..io import open as open_tensor
from ..limits import Limits
from ..tensors.backing import TreeBacking
from ..tensors.tensor import Tensor
from ..tensors.views import around

_AT_ONCE = 2**20  # items that are checked at once


def all_faults(place: Place, known: Sequence[Problem], limits: Limits) -> tuple[Problem, ...]:
    """The faults of the tensor at PATH[:GROUP], those that are known first."""
    found = list(known)

    def look() -> None:
        with open_tensor(place, limits=limits) as tensor:
            found.extend(faults_of(tensor))
            for name in tensor.dims or ():
                _note(found, lambda: tensor.labels(name))  # noqa: B023 (called at once)

    _note(found, look)
    return tuple(dict.fromkeys(found))


def faults_of(tensor: Tensor) -> tuple[Problem, ...]:
    """The faults of a tensor. One in a file is read in parts, and its checksums are compared.

    Raises LimitError where memory does not suffice.
    """
    tree = tensor._source
    found: list[Problem] = []
    held: list[Any] = [*tree.arrays.values(), tree.values]
    for array in held:
        if isinstance(array, LazyArray):
            _note(found, array.verify)
    _note(found, lambda: found.extend(check_in_parts(tree, _AT_ONCE, tensor.stored.format.order)))
    _note(found, lambda: _decode(tree))
    if not found and (tensor.structure is not None or not tree.lazy):
        _note(found, apart(tensor).check)
    return tuple(dict.fromkeys(found))


def apart(tensor: Tensor) -> Tensor:
    """A second tensor around the same arrays. When its lazy arrays are loaded, the first tensor keeps its own."""
    held = tensor._backing
    again = TreeBacking(held.stored.format, held.stored.tree, held.stored.limits, held.stored.structure)
    return Tensor._of(around(held, again), tensor._metadata)


def _note(found: list[Problem], check: Callable[[], Any]) -> None:
    """Add the problems that a check raises."""
    try:
        check()
    except LimitError:
        raise
    except BinsparseError as error:
        found.extend(error.problems)


def _decode(tree: Tree) -> None:
    """Read the values in parts, which raises what is wrong with them."""
    if tree.lazy:
        for start in range(0, 1 if tree.iso else len(tree.values), _AT_ONCE):
            tree.values[start : start + (1 if tree.iso else _AT_ONCE)]
