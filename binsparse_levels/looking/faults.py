"""All faults of a tensor. `read` stops after faults of one kind; these functions check every level and every array.

A level below broken pointers is not checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from ..arrays import LazyArray
from ..engine.parts import check_in_parts, check_lazy
from ..engine.tree import Tree
from ..errors import ArrayError, BinsparseError, LimitError, Problem, raise_if
from ..formats.format import coordinates
from ..io import StoreLike, describe, read
from ..io import open as open_tensor
from ..io.file_tensors import named
from ..io.kinds import is_foreign, resolved
from ..io.orders import order_names, within
from ..io.reading import opened, streamed
from ..limits import Limits
from ..tensors.backing import TreeBacking
from ..tensors.labels import repeated
from ..tensors.tensor import Tensor, inside, tensor_of
from ..tensors.views import Joined, around
from ..thresholds import THRESHOLDS


def all_faults(place: StoreLike, known: Sequence[Problem], limits: Limits) -> tuple[Problem, ...]:
    """List the faults of the tensor at PATH[:GROUP], after the known ones."""
    found = list(known)
    with _noting(found), open_tensor(place, limits=limits) as tensor:
        found.extend(faults_of(tensor))
        labels = inside(tensor).metadata.labels
        for column in labels.columns.values() if labels else ():
            with _noting(found):
                column.loaded()
    return tuple(dict.fromkeys(found))


def order_faults(place: StoreLike, tensor: Tensor, lenient: bool, limits: Limits) -> tuple[Problem, ...]:
    """List the faults of other orders of the tensor at PATH[:GROUP], which must have its entries. tensor: in memory."""
    found: list[Problem] = []
    with resolved(place) as location:
        for name in order_names(describe(location, lenient=lenient, limits=limits).descriptor):
            with _noting(found), named({}, name):
                other = read(within(location, name), lenient=lenient, limits=limits)
                pair = [other, tensor]
                if any(x.format.padded for x in pair):  # padding is no entry of the others
                    pair = [x.convert(coordinates(x.ndim)).drop_fill() for x in pair]
                if not pair[0].equals(pair[1]):
                    found.append(Problem(name, "has other entries than the tensor; write the tensor again"))
    return tuple(found)


def notes_on(place: StoreLike, tensor: Tensor, limits: Limits) -> tuple[Problem, ...]:
    """List what is no fault of a tensor read from a place: labels that several coordinates have, unsorted entries."""
    labels = inside(tensor).metadata.labels
    found, unsorted = list[Problem](), list[Problem]()
    with _noting(unsorted), streamed(place, limits=limits) as text:
        if text is None and is_foreign(place):  # a text is not read again, nor are values
            stored = opened(place, limits)[0].stored
            check_lazy(inside(stored).source, "entries", stored.format.order)
    if unsorted:
        found.append(Problem("entries", "are not sorted, so open refuses them; read and convert sort them"))
    for name, column in labels.columns.items() if labels else ():
        if again := repeated(column):
            what = f"{len(again)} repeat an earlier one, first {column.array()[again[0]]!s:.60} at {again[0]}"
            found.append(Problem(f"labels of {name}", f"{what}; append refuses such labels without existing='repeat'"))
    return tuple(found)


def faults_of(tensor: Tensor) -> tuple[Problem, ...]:
    """List the faults of a tensor. A tensor in a file is read in parts, and its checksums are compared.

    Raises LimitError if there is not enough memory.
    """
    found: list[Problem] = []
    held = inside(tensor).backing
    if isinstance(held, Joined) and held.lazy:
        for k, box in enumerate(held.boxes.boxes):
            with _noting(found), named({}, f"part {k}, from {box.origin}"):
                raise_if(ArrayError, list(faults_of(box.open())))
        return tuple(dict.fromkeys(found))
    tree = held.stored.tree
    arrays: list[Any] = [*tree.arrays.values(), tree.values]
    for array in arrays:
        if isinstance(array, LazyArray):
            with _noting(found):
                array.verify()
    with _noting(found):
        found.extend(check_in_parts(tree, THRESHOLDS.looked_items, tensor.stored.format.order))
    with _noting(found):
        _decode(tree)
    if not found and (tensor.structure is not None or not tree.lazy):
        with _noting(found):
            unloaded(tensor).check()
    return tuple(dict.fromkeys(found))


def unloaded(tensor: Tensor) -> Tensor:
    """Make a second tensor around the same arrays. Loading its lazy arrays does not load those of the first."""
    stored = inside(tensor).backing.stored
    again = TreeBacking(stored.format, stored.tree, stored.limits, stored.structure)
    return tensor_of(around(inside(tensor).backing, again), inside(tensor).metadata)


@contextlib.contextmanager
def _noting(found: list[Problem]) -> Iterator[None]:
    """Add the problems that the block raises."""
    try:
        yield
    except LimitError:
        raise
    except BinsparseError as error:
        found.extend(error.problems)


def _decode(tree: Tree) -> None:
    """Read the values in parts, which raises their faults."""
    if tree.lazy:
        for start in range(0, 1 if tree.iso else len(tree.values), THRESHOLDS.looked_items):
            tree.values[start : start + (1 if tree.iso else THRESHOLDS.looked_items)]
