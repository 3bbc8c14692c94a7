"""The numbers of levels, against lists of Python; in memory and from files alike."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import levels_of, pack, testing, write
from binsparse_levels.levels import LEVELS
from binsparse_levels.levels.positions import as_array
from binsparse_levels.looking import fibers
from binsparse_levels.tensors.tensor import inside
from binsparse_levels.thresholds import using_thresholds


def expected(tensor):
    """For each level: its place and the lengths of its fibers, from the entries of the stored tensor alone."""
    positions = np.zeros(1, int)
    for place, arrays, _ in inside(tensor.stored).tree.walk():
        counts, _, children = place.level.expand(arrays, place.dims, positions, [range(size) for size in place.dims])
        yield place, np.broadcast_to(counts, len(positions)).tolist()
        positions = np.unique(as_array(children))


@given(testing.tensors(max_rank=4, kinds=tuple(LEVELS.values())))
def test_levels_are_counted_as_python_counts(tensor):
    made = levels_of(tensor)
    assert [x.level for x in made] == list(tensor.stored.format.levels)
    for level, (place, lengths) in zip(made, expected(tensor), strict=True):
        assert level.sizes == tuple(place.dims)
        assert level.listed == sum(lengths)
        assert level.longest == max(lengths, default=0)
        assert level.nbytes == sum(tensor.stored.arrays[spec.name].nbytes for spec in place.arrays.values())
        if level.positions == len(lengths):  # below gaps, fibers that no entry reaches are not listed
            assert level.counts == Counter(lengths)
            for share in (0.25, 0.5, 1.0):
                if lengths:
                    assert level.quantile(share) == sorted(lengths)[max(math.ceil(share * len(lengths)) - 1, 0)]
        cells = level.positions * math.prod(place.dims)
        assert math.isclose(level.limit, math.log2(math.comb(cells, level.listed)), rel_tol=1e-9, abs_tol=1e-9)


@given(testing.tensors(max_rank=3, kinds=tuple(LEVELS.values())), st.sampled_from([1, 2, 7]))
def test_a_file_has_the_levels_of_its_tensor(tensor, at_once):
    store = {}
    write(store, tensor)
    spelled = tensor.convert(bl.read(store).format)  # a predefined name may spell the same levels in another way
    wanted = [x.__dict__ for x in levels_of(spelled)]
    with using_thresholds(looked_items=at_once), bl.open(store) as opened:
        found = [x.__dict__ for x in levels_of(opened)]
    np.testing.assert_equal(found, wanted)


@pytest.mark.parametrize(
    ("places", "chosen"), [*product([0, 1, 5, 300, 2000], [0, 1, 5]), (10**4, 3000), (10**5, 99_000)]
)
def test_the_limit_is_the_logarithm_of_a_binomial(places, chosen):
    chosen = min(chosen, places)
    assert math.isclose(fibers.limit(places, chosen), math.log2(math.comb(places, chosen)), rel_tol=1e-10, abs_tol=1e-9)


def test_the_limit_of_ten_million_entries():
    assert round(fibers.limit(10**10, 10**7) / 10**7, 2) == 11.41
    assert round(fibers.limit(10**12, 10**7) / 10**7, 2) == 18.05


def test_lengths_beyond_the_exact_ones():
    tensor = pack([np.repeat([0, 1, 2], [5000, 10, 3000])[:8010], np.r_[0:5000, 0:10, 0:3000]], 1.0, (3, 9000), "CSR")
    sparse = levels_of(tensor)[1]
    assert (sparse.quantile(0.3), sparse.quantile(0.6), sparse.longest) == (10, 3000, 5000)
    assert sparse.quantile(1.0) == 5000
