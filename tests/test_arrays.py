"""Arrays that are not in memory."""

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from binsparse_levels import arrays
from binsparse_levels.formats.bitpacked import BitPacked, bitpack

ITEMS = np.arange(20_000, dtype=np.int32) * 3


def counted(start, stop, *, read):
    assert 0 <= start < stop <= len(ITEMS)
    read.append((start, stop))
    return ITEMS[start:stop].copy()


def makers():
    """Each maker, and the array that it stands for."""
    yield arrays.lazy(len(ITEMS), ITEMS.dtype, lambda start, stop: ITEMS[start:stop]), ITEMS
    yield arrays.cut(ITEMS, 100, 5_000), ITEMS[100:5_100]
    yield arrays.cut(arrays.cut(ITEMS, 100, 5_000), 10, 300), ITEMS[110:410]
    yield BitPacked(bitpack(ITEMS, "bitpacked_delta"), "bitpacked_delta", ITEMS.dtype, "x"), ITEMS


@given(st.data(), st.sampled_from(range(len(list(makers())))))
def test_slices_and_positions_are_those_of_numpy(data, number):
    lazy, whole = list(makers())[number]
    ends = st.none() | st.integers(-len(whole) - 5, len(whole) + 5)
    window = slice(data.draw(ends), data.draw(ends), data.draw(st.sampled_from([None, 1, 2, 7, -1, -3])))
    positions = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1))), np.int64)
    for item in {0, -1, len(whole) // 2} if len(whole) else ():
        assert lazy[item] == whole[item]
        assert lazy[item].dtype == whole.dtype
    for item in (len(whole), -len(whole) - 1):
        with pytest.raises(IndexError):
            lazy[item]
    for key in (slice(None), window, positions):
        found = lazy[key]
        assert found.dtype == whole.dtype
        assert np.array_equal(found, whole[key])
    assert (lazy.shape, len(lazy)) == (whole.shape, len(whole))
    lazy.verify()


def test_positions_are_read_in_few_parts():
    read = []
    lazy = arrays.lazy(len(ITEMS), ITEMS.dtype, partial(counted, read=read))
    assert lazy[np.array([15_000, 3, 900, 3])].tolist() == ITEMS[[15_000, 3, 900, 3]].tolist()
    assert read == [(3, 901), (15_000, 15_001)]
    assert lazy[np.empty(0, int)].tolist() == lazy[5:5].tolist() == []
    assert len(read) == 2


def test_a_lazy_array_is_pickled_and_verified():
    lazy = pickle.loads(pickle.dumps(arrays.lazy(9, ITEMS.dtype, partial(np.arange, dtype=ITEMS.dtype))))
    assert lazy[2:5].tolist() == [2, 3, 4]

    def verify():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        arrays.lazy(9, ITEMS.dtype, np.arange, verify=verify).verify()


def test_packing_in_memory_imports_no_container():
    code = """if True:
        import sys
        import binsparse_levels as bl
        bl.pack([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), "CSR")[0].load()
        print(*{name.partition(".")[0] for name in sys.modules})
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"google_crc32c", "numba", "h5py", "zarr", "netCDF4"} & set(run.stdout.split())
