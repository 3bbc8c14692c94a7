"""Folders of .npy files: malformed headers, and members that are no regular file."""

import os
import zipfile

import pytest
from helpers.places import vector

from binsparse_levels import BinsparseError, ContainerError, read, write

NPY_TEXTS = [
    b"{'descr': ('<f8',), 'shape': (2,), 'fortran_order': False}",
    b"{'descr': (), 'shape': (2,), 'fortran_order': False}",
    b"{'descr': '|S1', 'shape': (35184372088832,), 'fortran_order': False}",
    b"{'descr': '<f8', 'shape': (0, 99999999999999999999), 'fortran_order': False}",
    b"{'descr': '<f8', 'shape': (True,), 'fortran_order': False}",
    b"(" * 9000,
    b"'''",
    b" \n  {'descr': '<f8'",
    b"-" * 9000 + b"1",
]


@pytest.mark.parametrize("text", NPY_TEXTS, ids=range(len(NPY_TEXTS)))
def test_npy_headers_that_are_none(tmp_path, text):
    write(tmp_path / "a.bspnpy", vector())
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (tmp_path / "a.bspnpy" / "values.npy").write_bytes(member)
    with pytest.raises(BinsparseError):
        read(tmp_path / "a.bspnpy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("binsparse.npy", member)
    with pytest.raises(BinsparseError):
        read(tmp_path / "a.npz")


def test_a_pipe_is_not_waited_for(tmp_path):
    write(tmp_path / "a.bspnpy", vector())
    (tmp_path / "a.bspnpy" / "values.npy").unlink()
    os.mkfifo(tmp_path / "a.bspnpy" / "values.npy")
    with pytest.raises(ContainerError):
        read(tmp_path / "a.bspnpy")
