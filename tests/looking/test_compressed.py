"""The compressed sizes that `advise` estimates, and the formats that it ranks by them."""

import os

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import binsparse_levels as bl
from binsparse_levels import testing
from binsparse_levels.containers.objects import codecs
from binsparse_levels.looking import compressed

RANDOM = np.random.default_rng(0)


def size(path):
    """The bytes of all files of a store, or of a file."""
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names)


def one_hot(rows=60_000):
    """Three features of 12, 50 and 200 categories: CSC takes fewer bytes in memory, and more when it is compressed."""
    columns = np.stack(
        [RANDOM.integers(0, 12, rows), 12 + RANDOM.zipf(1.3, rows) % 50, 62 + RANDOM.integers(0, 200, rows)]
    )
    coords = [np.repeat(np.arange(rows), 3), columns.T.reshape(-1)]
    return bl.pack(coords, np.ones(3 * rows), (rows, 262), "CSR")


def late(n=150_000):
    """Events with a time that begins far from zero."""
    coords = [10**15 + np.sort(RANDOM.integers(0, 10**9, n)), RANDOM.integers(0, 300, n)]
    return bl.pack(coords, RANDOM.integers(1, 5, n), (2 * 10**15, 300), "COOR", duplicates="first")


def crowded(n=150_000):
    """Half of the entries in two rows of a million."""
    rows = np.concatenate([RANDOM.integers(0, 2, n // 2), RANDOM.integers(0, 10**6, n // 2)])
    return bl.pack([rows, RANDOM.integers(0, 10**5, n)], 1.0, (10**6, 10**5), "COOR", duplicates="first")


def short(n=150_000):
    """A few coordinates in each of the outer dimensions."""
    coords = [RANDOM.integers(0, k, n) for k in (4, 5, 90, 400)]
    return bl.pack(coords, RANDOM.integers(0, 50, n) / 10, (4, 5, 90, 400), "sparse(4)", duplicates="first")


def banded(n=40_000):
    """Five diagonals."""
    rows = np.repeat(np.arange(2, n - 2), 5)
    values = RANDOM.choice([-1.0, 2.5, 7.1], len(rows))
    return bl.pack([rows, rows + np.tile(np.arange(-2, 3), n - 4)], values, (n, n), "CSR")


TENSORS = {
    "uniform": lambda: testing.uniform((5000, 3000), 150_000), "one hot": one_hot, "late": late, "crowded": crowded,
    "short": short, "banded": banded,
}  # fmt: skip


@given(testing.tensors(max_rank=3), st.sampled_from(["small", "blosc", "zstd"]))
def test_a_small_tensor_is_compressed_whole(tensor, compression):
    advice = bl.advise(tensor, compression=compression, count=4)
    codec, settings = codecs.COMPRESSIONS[compression]
    for candidate in advice.candidates:
        made = tensor.without_map().convert(candidate.format).stored
        values = made.values[:1] if made.iso else made.values
        total = 0
        for x in (*made.arrays.values(), values):
            parts = np.ascontiguousarray(x).view(x.real.dtype) if x.dtype.kind == "c" else np.ascontiguousarray(x)
            items = parts.view(np.uint8) if parts.dtype == bool else parts
            sizes = [len(codecs.CODECS[codec].encode(items, how)) for how in settings(items.dtype, 3)]
            total += min(sizes) if len(items) else 0
        assert candidate.compressed_nbytes == advice.compressed(candidate) == total


@pytest.mark.parametrize("name", TENSORS)
def test_the_slabs_tell_the_size_of_the_file(tmp_path, name):
    """The estimates, and the choice, which takes at most 1.15 times the bytes of the best candidate. Slabs miss single
    rows that have most of the entries.
    """
    tensor = TENSORS[name]()
    advice = bl.advise(tensor, compression="small", count=5)
    files = {}
    for candidate in advice.candidates:
        path = tmp_path / f"{len(files)}.zarr"
        bl.write(path, tensor.convert(candidate.format), compression="small")
        files[candidate] = size(path) - size(path / "zarr.json") - sum(map(size, path.glob("*/zarr.json")))
        assert 0.6 <= candidate.compressed_nbytes / files[candidate] <= 2.1, candidate
    assert files[advice.candidates[0]] <= (1.25 if name == "crowded" else 1.15) * min(files.values())
    assert list(files) == sorted(files, key=lambda c: c.compressed_nbytes)


def test_gzip_is_that_of_hdf5(tmp_path):
    tensor = testing.uniform((300, 200), 3000)
    advice = bl.advise(tensor, compression="gzip")
    bl.write(tmp_path / "a.h5", tensor.convert(advice.best), compression="gzip")
    with h5py.File(tmp_path / "a.h5") as file:
        stored = sum(x.id.get_storage_size() for name, x in file.items() if name != "fill_value")
    assert advice.candidates[0].compressed_nbytes == stored


def test_compressed_and_plain_bytes_rank_differently():
    tensor = one_hot()
    assert str(bl.advise(tensor).best) == "CSC"
    advice = bl.advise(tensor, compression="small")
    assert str(advice.best) == "CSR"
    ranked = [ratio for rank, _, ratio in advice.rows() if rank and rank != "*"]
    assert ranked == sorted(ranked)
    head = str(advice).splitlines()[1].split()
    assert head[-2:] == ["≈", "small"]
    sliced = bl.advise(tensor, compression="small", slices_by=1)
    assert sliced.candidates == tuple(sorted(sliced.candidates, key=lambda c: (c.slice_nbytes, c.compressed_nbytes)))


def test_the_default_ranks_plain_bytes_and_shows_estimates():
    tensor = testing.uniform((300, 200), 2000)
    advice = bl.advise(tensor)
    assert advice.candidates[0].compressed_nbytes is None
    assert str(advice).splitlines()[2].endswith(f"≈{advice.compressed(advice.candidates[0]):,}")
    listed = bl.advise(tensor.unpack()[0], tensor.shape)
    assert listed.compressed(listed.candidates[0]) is None
    assert "≈" not in str(listed)


def test_what_is_not_estimated(monkeypatch):
    tensor = testing.uniform((300, 200), 2000)
    assert bl.advise(tensor, compression="none").candidates == bl.advise(tensor).candidates
    for compression in ("lzma", 5):
        with pytest.raises(bl.OptionError, match="compression"):
            bl.advise(tensor, compression=compression)
    with pytest.raises(bl.OptionError, match="no values"):
        bl.advise(tensor.unpack()[0], tensor.shape, compression="small")
    refused = bl.advise(tensor, formats="dense, n_of_m(1, n=1, m=2)", compression="small").compared[0]
    assert refused.refused
    assert refused.compressed_nbytes is None
    days = bl.advise(bl.pack([[0, 2], [1, 3]], np.array(["2026-01-01"] * 2, "M8[D]"), (50, 40), "CSR"))
    assert days.compressed(days.candidates[0]) is None, "no container has this type"
    assert "≈" not in str(days).partition("≈ small")[2]
    monkeypatch.setattr(compressed, "_MAX_BYTES", 100_000)
    advice = bl.advise(tensor, compression="small", formats=["CSR", "DMATR"])
    assert [c.compressed_nbytes is None for c in advice.compared] == [False, True]
