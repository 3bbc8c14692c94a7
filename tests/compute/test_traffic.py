"""What a product reads: against a plain count for CSR, and within bounds for every kind and through maps."""

import math
from collections import OrderedDict

import numpy as np
import pytest

import binsparse_levels as bl
from binsparse_levels import OptionError, testing, traffic
from binsparse_levels.levels import OURS

HUGE = 2**40
GRAPH = testing.rmat(8, 1500, seed=3)
CHAINS = [f"dense, {kind.kind}" for kind in OURS if not kind.refuses and kind.min_rank == 1]


def counted_by_hand(tensor, x, lines, line):
    """The accesses of the product of a CSR matrix and a vector, in their order, through a cache."""
    accesses = []
    ptr, idx = tensor.arrays["pointers_to_1"], tensor.arrays["indices_1"]
    for row in range(tensor.shape[0]):
        accesses += [("result", 8 * row), *(("pointers_to_1", ptr.itemsize * k) for k in (row, row + 1))]
        for q in range(ptr[row], ptr[row + 1]):
            accesses += [("indices_1", idx.itemsize * q), ("values", 8 * q), ("operands[1]", x.itemsize * int(idx[q]))]
        accesses.append(("result", 8 * row))
    items, fetched, cache = {}, {}, OrderedDict()
    for name, offset in accesses:
        items[name] = items.get(name, 0) + 1
        fetched.setdefault(name, 0)
        place = name, offset // line
        if place in cache:
            cache.move_to_end(place)
            continue
        fetched[name] += 1
        cache[place] = True
        if len(cache) > lines:
            cache.popitem(last=False)
    return {name: (items[name], fetched[name], line * fetched[name]) for name in items}


@pytest.mark.parametrize(("cache", "line"), [(64, 64), (512, 32), (4096, 64), (HUGE, 128)])
def test_a_matrix_and_a_vector(cache, line):
    x = np.ones(GRAPH.shape[1], np.float32)
    counted = traffic(GRAPH, "ij,j->i", x, cache=cache, line=line)
    assert counted == counted_by_hand(GRAPH, x, cache // line, line)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format", [*CHAINS, "COO", "CSC", "dense, sparse, dense(2) through 0/4, 1/4, 0%4, 1%4"])
def test_a_cache_that_holds_all_fetches_each_line_once(format):
    tensor = GRAPH.convert(format)
    counted = traffic(tensor, "ij,jr->ir", np.ones((GRAPH.shape[1], 2)), cache=HUGE)
    arrays = {**tensor.stored.arrays, "values": tensor.stored.values}
    assert set(arrays) <= set(counted)
    for name, array in arrays.items():
        assert counted[name].lines <= math.ceil(array.nbytes / 64)
    assert counted["values"].items >= GRAPH.number_of_stored_values
    assert counted["values"].lines == math.ceil(tensor.stored.values.nbytes / 64)


def test_the_levels_that_a_product_skips_are_not_read():
    counted = traffic(GRAPH, "ij->j", cache=HUGE)
    assert set(counted) == {"indices_1", "values", "result"}
    assert counted["indices_1"].items == GRAPH.number_of_stored_values


def test_what_is_counted_of_other_tensors():
    file = {}
    bl.write(file, GRAPH)
    x = np.ones(GRAPH.shape[1])
    assert traffic(bl.open(file), "ij,j->i", x) == traffic(GRAPH, "ij,j->i", x)
    assert traffic(GRAPH[:0], "ij,j->i", x)["values"].items == 0
    assert traffic(GRAPH[:0].convert("COO"), "ij->i")["result"].items == 0
    assert traffic(bl.pack_dense(np.ones(9), "DVEC"), "i,i->i", np.ones(9))["result"].items == 9


def test_what_is_refused():
    for options in ({"cache": 32}, {"line": 0}, {"cache": "a lot"}, {"line": 1.5}):
        with pytest.raises(OptionError, match="cache of at least one line"):
            traffic(GRAPH, "ij->i", **options)
    with pytest.raises(OptionError, match=r"operands\[1\]"):
        traffic(GRAPH, "ij,ij->i", GRAPH)
