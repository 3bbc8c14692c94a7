"""Every fault of a tensor. `read` stops after faults of one kind; here each part is checked by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..arrays import Array, LazyArray
from ..containers import checksums
from ..engine.parts import check_in_parts
from ..engine.tree import Tree, at_name
from ..errors import BinsparseError, LimitError, Problem
from ..formats.descriptor import Descriptor, parse_descriptor
from ..formats.dtypes import decode
from ..io import Place, open_reader
from ..io import open as open_tensor
from ..io.kinds import resolved
from ..levels import places
from ..limits import Limits
from ..tensors.held import Stored
from ..tensors.tensor import Tensor

_AT_ONCE = 2**20  # items that are checked at once


def all_faults(place: Place, known: Sequence[Problem], limits: Limits) -> tuple[Problem, ...]:
    """The faults of the tensor at PATH[:GROUP], those that are known first."""
    stages = (lambda: known, partial(_faults_at, place, limits), partial(_faults_of_arrays, place, limits))
    return tuple(dict.fromkeys(_each(stages)))


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
    return Tensor._of(held.around(again), tensor._metadata)


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


def _faults_of_arrays(place: Place, limits: Limits) -> Iterator[Problem]:
    """The faults of the arrays of a container, whatever their lengths are."""
    with contextlib.ExitStack() as stack:
        location = stack.enter_context(resolved(place))
        if location.kind.tensors:  # a file of another system, which has no arrays of levels
            return
        reader = stack.enter_context(open_reader(location, limits=limits))
        header, sums = checksums.unsealed(reader.read_header())
        descriptor = parse_descriptor(header, limits)
        arrays: dict[str, Array] = {}

        def read(name: str) -> Iterable[Problem]:
            data_type, held = descriptor.data_types[name], reader.array(name)
            if held is not None and len(held.shape) == 1 and held.dtype.newbyteorder("=") == data_type.stored:
                stored = held[:]
                checksums.check_array(name, [stored], sums)
                if not data_type.wrapper and len(stored) % data_type.parts == 0:
                    arrays[name] = decode(stored.astype(data_type.stored, copy=False), data_type, name)
            return ()

        yield from _each([partial(read, name) for name in descriptor.data_types])
        yield from _faults_of_levels(descriptor, arrays)


def _faults_of_levels(descriptor: Descriptor, arrays: dict[str, Array]) -> Iterator[Problem]:
    """The faults of the levels above the first array that is missing, or whose length does not fit."""
    n: int | None = 1
    for place in places(descriptor.format.levels, descriptor.dims):
        here = {role: arrays[spec.name] for role, spec in place.arrays.items() if spec.name in arrays}
        if n is None or len(here) < len(place.arrays):
            return
        children, problems = place.level.lengths({role: len(x) for role, x in here.items()}, place.dims, n)
        if problems:
            return
        for problem in place.level.check(here, place.dims, n):
            yield at_name(problem, place, descriptor.format.order)
        n = children
