"""HDF5: damaged files, attributes that hold no header, links that lead out of a group, files that others write."""

import contextlib
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

import binsparse_levels
from binsparse_levels import (
    BinsparseError,
    ContainerError,
    LimitError,
    UnsafeError,
    convert,
    pack,
    pack_dense,
    read,
    write,
)
from binsparse_levels.containers import hdf5
from binsparse_levels.limits import DEFAULT_LIMITS


@pytest.mark.parametrize("attribute", [h5py.Empty("S1"), h5py.Empty("f8"), [1, 2], 1j])
def test_attributes_that_are_no_header(tmp_path, attribute):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["binsparse"] = attribute
    with pytest.raises(ContainerError):
        read(tmp_path / "a.h5")


def test_damaged_files_are_errors_of_ours(tmp_path):
    path = tmp_path / "a.h5"
    write(path, pack_dense(np.arange(42.0).reshape(6, 7) % 5, "DCSR", fill_value=0))
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for cut in generator.integers(0, len(whole), 100):
        path.write_bytes(whole[:cut])
        with pytest.raises(BinsparseError):
            read(path)


@pytest.mark.parametrize(
    "group", ["soft", "soft/x", "external", "external/x", "dataset", "dataset/x", ".", "../x", "a/./b"]
)
@pytest.mark.parametrize("kind", ["hdf5", "netcdf"])
def test_writing_stays_in_its_file(tmp_path, group, kind):
    tensor = pack([[0]], [1.0], 3, "CVEC")
    write(f"{tmp_path}/other.h5:inner", tensor)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inside/values"] = [1]
        file["soft"] = h5py.SoftLink("/inside")
        file["external"] = h5py.ExternalLink("other.h5", "/inner")
        file["dataset"] = [1]
    before = [(tmp_path / name).read_bytes() for name in ("a.h5", "other.h5")]
    with pytest.raises((UnsafeError, ContainerError)):
        write(f"{tmp_path}/a.h5:{group}", tensor, overwrite=True, kind=kind)
    assert before == [(tmp_path / name).read_bytes() for name in ("a.h5", "other.h5")]


WRITER = """
import h5py, sys
with h5py.File(sys.argv[1], "r+") as file:
    print("open", flush=True)
    sys.stdin.readline()
    file["results"] = [1, 2, 3]
"""


@contextlib.contextmanager
def open_elsewhere(path):
    """Another program has the file open for writing, and changes it at the end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    other = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], **pipes)
    assert other.stdout.readline() == b"open\n"
    yield
    other.communicate(b"\n")


@contextlib.contextmanager
def open_here(path):
    """The same program has the file open for writing, and changes it at the end."""
    with h5py.File(path, "r+") as file:
        yield
        file["results"] = [1, 2, 3]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("opened", [open_elsewhere, open_here])
@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.h5ad", "a.sscdf"])
def test_what_another_writer_changes_is_never_lost(tmp_path, name, opened):
    """Law: a file that someone has open for writing is not replaced, whatever is asked for."""
    tensor = pack([[0, 2], [1, 0]], [1.0, 2.0], (3, 4), "CSR")
    path, source = tmp_path / name, tmp_path / "source.h5"
    write(source, tensor)
    write(path, tensor)
    group = "layers/x" if name == "a.h5ad" else "x"
    with opened(path):
        for call in (
            lambda: write(f"{path}:{group}", tensor),
            lambda: write(path, tensor, overwrite=True),
            lambda: write(path, tensor, overwrite="file"),
            lambda: convert(source, f"{path}:{group}", "CSC", memory=2**28),
        ):
            with pytest.raises(BinsparseError):
                call()
    with h5py.File(path) as file:
        assert file["results"][:].tolist() == [1, 2, 3]
    with h5py.File(path):  # who only reads keeps what it has open
        write(f"{path}:{group}", tensor)


@pytest.mark.parametrize("userblock", [0, 512])
def test_chunks_without_filters(tmp_path, userblock):
    """They are read at their offset; those that were never written have the fill value."""
    whole = np.arange(1000, dtype=np.int32)
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=userblock) as file:
        dataset = file.create_dataset("x", (1000,), np.int32, chunks=(64,), maxshape=(None,), fillvalue=7)
        for part in (slice(0, 128), slice(300, 310), slice(900, 1000)):
            dataset[part] = whole[part]
        whole = dataset[...]
    with h5py.File(tmp_path / "a.h5") as file:
        array = hdf5.HDF5Reader(file, DEFAULT_LIMITS).array("x")
        for start, stop in ((0, 1000), (0, 64), (63, 65), (10, 20), (200, 310), (305, 308), (900, 1000), (999, 1000)):
            np.testing.assert_array_equal(array[start:stop], whole[start:stop])
        np.testing.assert_array_equal(array[np.array([5, 70, 301, 999, 0])], whole[[5, 70, 301, 999, 0]])


def test_chunks_of_a_file_that_was_cut(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(1000), chunks=(500,))
    with h5py.File(tmp_path / "a.h5") as file:
        array = hdf5.HDF5Reader(file, DEFAULT_LIMITS).array("x")
        assert array[1] == 1
        os.truncate(tmp_path / "a.h5", os.path.getsize(tmp_path / "a.h5") - 100)
        with pytest.raises(ContainerError, match="the file ends before the array does"):
            array[:]


def test_an_array_without_chunks_takes_no_memory_that_is_not_free(tmp_path, monkeypatch):
    """A header may declare more than the file has: a part is read, and the whole is refused before it takes memory."""
    path, size = tmp_path / "a.h5", 2**25
    write(path, pack_dense(np.zeros(4), "dense"))
    with h5py.File(path, "a") as file:
        header = json.loads(file.attrs["binsparse"])
        header["binsparse"] |= {"shape": [size], "number_of_stored_values": size}
        file.attrs["binsparse"] = json.dumps(header)
        del file["values"]
        file.create_dataset("values", (size,), "<f8", chunks=(2**16,))
    monkeypatch.setattr("binsparse_levels.limits.available", lambda: 2**20)
    with pytest.raises(LimitError, match=r"values: .* bytes of memory that are free; open the tensor, and read a part"):
        read(path)
    with binsparse_levels.open(path) as opened:
        assert opened[5] == 0
