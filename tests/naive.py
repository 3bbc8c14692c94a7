"""The oracle: tensors as dictionaries of coordinates, in obvious Python, a loop for each idea and no cleverness."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy as np

from binsparse_levels import Format


def merge(coords, values, duplicates):
    """A dictionary from coordinates to values, in input order, with duplicates merged."""
    entries = {}
    places = zip(*coords, strict=True) if coords else [()] * len(values)
    for place, value in zip(places, values, strict=True):
        if place not in entries or duplicates == "last":
            entries[place] = value
        elif duplicates == "sum":
            with np.errstate(all="ignore"):
                entries[place] = operator.add(entries[place], value)
        else:
            assert duplicates == "first"
    return entries


def permute(entries, order):
    """The entries by stored dimension: stored dimension k is dimension order[k]."""
    return {tuple(place[k] for k in order): value for place, value in entries.items()}


def build(format: Format, shape, entries, pad):
    """The arrays of a tree of dense and sparse levels, by stored name, and its values; all as lists."""
    order = format.order
    dims = [shape[k] for k in order]
    arrays = {}
    fibers = [permute(entries, order)]  # of each position, its entries by the coordinates that are left
    depth = 0
    for level in format.levels:
        sizes, rank = dims[depth : depth + level.rank], level.rank
        below, pointers, indices = [], [0], [[] for _ in range(rank)]
        for fiber in fibers:
            if level.kind == "dense":
                here = list(itertools.product(*(range(size) for size in sizes)))
            else:
                here = sorted({place[:rank] for place in fiber})
            for prefix in here:
                below.append({place[rank:]: value for place, value in fiber.items() if place[:rank] == prefix})
                for column, x in zip(indices, prefix, strict=True):
                    column.append(x)
            pointers.append(len(below))
        if level.kind == "sparse":
            if depth:
                arrays[f"pointers_to_{depth}"] = pointers
            for k in range(rank):
                arrays[f"indices_{depth + k}"] = indices[k]
        fibers = below
        depth += rank
    return arrays, [fiber.get((), pad) for fiber in fibers]


def dense(shape, entries, fill, dtype):
    """A numpy array of the entries."""
    array = np.full(shape, fill, dtype)
    for place, value in entries.items():
        array[place] = value
    return array


def select(shape, entries, key):
    """The shape and the entries of array[key]: the cells are numbered, and numpy selects the numbers."""
    cells = list(itertools.product(*map(range, shape)))
    numbers = np.arange(len(cells)).reshape(shape)[key]
    chosen = {place: cells[number] for place, number in np.ndenumerate(numbers)}
    return numbers.shape, {place: entries[cell] for place, cell in chosen.items() if cell in entries}


MIRRORS = {"symmetric": lambda value: value, "hermitian": np.conjugate, "skew_symmetric": operator.neg}


def mirror(entries, structure):
    """The entries of both triangles."""
    kind, _, _ = structure.rpartition("_")
    with np.errstate(all="ignore"):
        return entries | {(j, i): MIRRORS[kind](value) for (i, j), value in entries.items() if i != j}


def join(first, second, dimension, offset):
    """The entries of two tensors, the second behind the first along a dimension."""
    moved = {(*x[:dimension], x[dimension] + offset, *x[dimension + 1 :]): value for x, value in second.items()}
    return first | moved


def equal(a, b):
    """Whether two scalars are equal; NaN is."""
    return bool(a == b) or bool(a != a and b != b)


SUMS = {"b": np.int64, "i": np.int64, "u": np.uint64, "f": np.float64, "c": np.complex128}
REDUCTIONS = ("sum", "count", "min", "max", "any", "all", "mean", "var", "std", "norm")


def reduce(shape, cells, axis, how, dtype):
    """An array of numpy's reduction of the cells that share the other coordinates. cells: by their coordinates."""
    axis = range(len(shape)) if axis is None else axis
    kept = [k for k in range(len(shape)) if k not in axis]
    groups = {place: [] for place in itertools.product(*(range(shape[k]) for k in kept))}
    for place, value in sorted(cells.items()):
        groups[tuple(place[k] for k in kept)].append(value)
    made = np.empty([shape[k] for k in kept], object)
    with np.errstate(all="ignore"):
        for place, values in groups.items():
            made[place] = _reduced(np.array(values, dtype), how)
    return made


def _reduced(values, how):
    wide = values.astype(SUMS[values.dtype.kind]) if how in ("sum", "norm") else values
    if how == "count":
        return len(values)
    if how == "norm":
        return np.sqrt(np.sum(np.abs(wide.astype(np.result_type(wide, np.float64))) ** 2))
    if how in ("mean", "var", "std"):
        wide = values.astype(np.result_type(values, np.float64))
        return getattr(wide, how)() if len(wide) else np.nan
    if how in ("min", "max") and not len(wide) and wide.dtype.kind in "fc":
        return np.nan
    return getattr(wide, how)()


def einsum(texts, operands, out, add, multiply):
    """The entries of a sum of products. texts: the letters of each operand. operands: their entries."""
    sums = {}
    for entries in itertools.product(*(x.items() for x in operands)):
        at = [pair for text, (place, _) in zip(texts, entries, strict=True) for pair in zip(text, place, strict=True)]
        if all(at_one == dict(at)[x] for x, at_one in at):
            place = tuple(dict(at)[x] for x in out)
            term = functools.reduce(multiply, [value for _, value in entries])
            sums[place] = add(sums[place], term) if place in sums else term
    return sums


# By name: the sum, the product, and the identity of sums of floats.
SEMIRINGS = {
    "plus_times": (operator.add, operator.mul, 0),
    "min_plus": (np.minimum, operator.add, np.inf),
    "max_plus": (np.maximum, operator.add, -np.inf),
    "max_times": (np.maximum, operator.mul, -np.inf),
    "min_first": (np.minimum, lambda a, b: a, np.inf),
    "plus_pair": (operator.add, lambda a, b: 1, 0),
    "any_pair": (lambda a, b: a, lambda a, b: True, False),
    "lor_land": (lambda a, b: bool(a or b), lambda a, b: bool(a and b), False),
}


def identity(end, dtype):
    """The identity of sums of a type."""
    limits = {np.inf: "max", -np.inf: "min"}
    return dtype.type(getattr(np.iinfo(dtype), limits[end]) if dtype.kind in "iu" and end in limits else end)
