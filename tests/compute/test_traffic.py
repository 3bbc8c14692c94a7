"""What a product reads: against a plain count for CSR, and for every kind and through maps against plain caches."""

import math
from collections import OrderedDict
from types import FunctionType
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import OptionError, testing, traffic
from binsparse_levels.compute.nest import helpers_of
from binsparse_levels.kernels import caches
from binsparse_levels.levels import LEVELS, OURS
from binsparse_levels.thresholds import using_thresholds

HUGE = 2**40


class Plain(caches.Counted):
    """The oracle: caches that are dictionaries of places, the oldest first. It leaves `free` and `links` alone."""

    kept: dict  # by the number of a cache

    def __getitem__(self, key):
        return self.array[self.used(key)]

    def __setitem__(self, key, value):
        self.array[self.used(key)] = value

    def used(self, key):
        places = key if isinstance(key, tuple) else (key,)
        offset = sum(int(k) * step for k, step in zip(places, self.array.strides, strict=True))
        row, place = self.own[0], (self.own[0], offset // self.own[2])
        self.counts[row, 0] += 1
        for number, most in enumerate(self.free):
            cache = self.kept.setdefault(number, OrderedDict())
            if place not in cache:
                self.counts[row, 1 + number] += 1
                if len(cache) == most:
                    cache.popitem(last=False)
            cache[place] = None
            cache.move_to_end(place)
        return key


def plain_python(function):
    """A numba function as plain Python, and the numba functions that it calls by name."""
    python = getattr(function, "py_func", function)
    if not isinstance(python, FunctionType):
        return function
    called = {name: python.__globals__.get(name) for name in python.__code__.co_names}
    own = {name: plain_python(x) for name, x in called.items() if hasattr(x, "py_func")}
    return FunctionType(python.__code__, python.__globals__ | own, None, python.__defaults__, python.__closure__)


def expected(*arguments, **options):
    """`traffic` by plain Python with plain caches."""

    def helpers(levels):
        return {name: plain_python(x) for name, x in helpers_of(levels).items()}

    Plain.kept = {}
    counted, plain = mock.patch.object(caches, "Counted", Plain), mock.patch(HELPERS, helpers)
    with counted, plain, using_thresholds(counted_values=HUGE):
        return traffic(*arguments, **options)


HELPERS = "binsparse_levels.compute.traffic.helpers_of"
GRAPH = testing.rmat(8, 1500, seed=3)
BLOCKS = "dense, sparse, dense(2) through 0/4, 1/4, 0%4, 1%4"
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


@given(st.data())
def test_caches_are_those_of_the_oracle(data):
    """For any chain, some of whose helpers are compiled."""
    tensor = data.draw(testing.tensors(max_rank=3, dtypes=["float64", "uint8"], kinds=tuple(LEVELS.values())))
    assume(tensor.ndim and (tensor.fill_value is None or tensor.fill_value == 0))
    letters = "ijk"[: tensor.ndim]
    mine = data.draw(st.sampled_from([letters, letters[-1:], letters[:1] + "r", "r", ""]))
    left = data.draw(st.permutations(letters + "r" * ("r" in mine)))
    out = "".join(left[: data.draw(st.integers(0, len(left)))])
    sizes = dict(zip(letters, tensor.shape, strict=True)) | {"r": 3}
    dense = np.ones([sizes[x] for x in mine], data.draw(st.sampled_from(["float32", "int64"])))
    line = data.draw(st.sampled_from([1, 8, 24, 64]))
    several = [line * n for n in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))]
    given = tensor, f"{letters},{mine}->{out}", dense
    assert traffic(*given, cache=several, line=line) == expected(*given, cache=several, line=line)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["CSR", "COO", "dense, elias_fano", "dense, mask", "dense, run", "dense(2)", BLOCKS])
def test_compiled_caches_are_those_of_the_oracle(format):
    tensor, several = GRAPH.convert(format), (128, 1024, HUGE)
    for spec, shape in (("ij,j->i", (256,)), ("ij,jr->ir", (256, 3)), ("ij,->ij", ())):
        given = tensor, spec, np.ones(shape, np.float32)
        with using_thresholds(counted_values=0):
            found = traffic(*given, cache=several)
        assert found == expected(*given, cache=several)
        assert found[0] == traffic(*given, cache=128)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format", [*CHAINS, "COO", "CSC", BLOCKS])
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
    for options in ({"cache": 32}, {"cache": ()}, {"cache": (64, 32)}, {"line": 0}, {"cache": "a lot"}, {"line": 1.5}):
        with pytest.raises(OptionError, match="cache of at least one line"):
            traffic(GRAPH, "ij->i", **options)
    with pytest.raises(OptionError, match=r"operands\[1\]"):
        traffic(GRAPH, "ij,ij->i", GRAPH)
