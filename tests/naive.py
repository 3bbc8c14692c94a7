"""The oracle: tensors as dictionaries of coordinates, in obvious Python, a loop for each idea and no cleverness."""

from __future__ import annotations

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
