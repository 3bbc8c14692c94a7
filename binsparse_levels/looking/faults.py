"""The faults of a tensor. `read` stops after faults of one kind; here levels and arrays are checked each by itself.

A level below broken pointers is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..arrays import LazyArray
from ..engine.parts import check_in_parts
from ..engine.tree import Tree
from ..errors import BinsparseError, LimitError, Problem
from ..io import Place
from ..io import open as open_tensor
from ..limits import Limits
from ..tensors.held import Stored
from ..tensors.tensor import Tensor
from ..tensors.views import around

_AT_ONCE = 2**20  # items that are checked at once


def all_faults(place: Place, known: Sequence[Problem], limits: Limits) -> tuple[Problem, ...]:
    """The faults of the tensor at PATH[:GROUP], those that are known first."""
    return tuple(dict.fromkeys(_each((lambda: known, partial(_faults_at, place, limits)))))


def faults_of(tensor: Tensor) -> tuple[Problem, ...]:
    """The faults of a tensor. One in a file is read in parts, and its checksums are compared.

    Raises LimitError where memory does not suffice.
    """
    tree = tensor._source
    held: list[Any] = [*tree.arrays.values(), tree.values]
    stages: list[Callable[[], Iterable[Problem]]] = [
        *(partial(_verified, array) for array in held if isinstance(array, LazyArray)),
        partial(check_in_parts, tree, _AT_ONCE, tensor.stored.format.order),
        partial(_decoded, tree),
    ]
    problems = list(dict.fromkeys(_each(stages)))
    if not problems and (tensor.structure is not None or not tree.lazy):
        problems = list(_each([partial(_checked, tensor)]))
    return tuple(problems)


def apart(tensor: Tensor) -> Tensor:
    """A second tensor around the same arrays. When its lazy arrays are loaded, the first tensor keeps its own."""
    held = tensor._held
    again = Stored(held.stored.format, held.stored.tree, held.stored.limits, held.stored.structure)
    return Tensor._of(around(held, again), tensor._metadata)


def _each(stages: Iterable[Callable[[], Iterable[Problem]]]) -> Iterator[Problem]:
    """The problems that the stages list or raise."""
    for stage in stages:
        try:
            yield from stage()
        except LimitError:
            raise
        except BinsparseError as error:
            yield from error.problems


def _verified(array: LazyArray) -> Iterable[Problem]:
    array.verify()
    return ()


def _decoded(tree: Tree) -> Iterable[Problem]:
    """Read the values in parts, which raises what is wrong with them."""
    if tree.lazy:
        for start in range(0, 1 if tree.iso else len(tree.values), _AT_ONCE):
            tree.values[start : start + (1 if tree.iso else _AT_ONCE)]
    return ()


def _labelled(tensor: Tensor, dimension: str) -> Iterable[Problem]:
    tensor.labels(dimension)
    return ()


def _checked(tensor: Tensor) -> Iterable[Problem]:
    apart(tensor).check()
    return ()


def _faults_at(place: Place, limits: Limits) -> Iterator[Problem]:
    with open_tensor(place, limits=limits) as tensor:
        yield from faults_of(tensor)
        yield from _each(partial(_labelled, tensor, name) for name in tensor.dims or ())
