"""The kind of a file follows from its content."""

import os
import zipfile

import pytest
from places import vector

from binsparse_levels import ContainerError, list_tensors, read, write


def test_zip_files_are_told_by_what_they_hold(tmp_path):
    write(tmp_path / "a.zarr.zip", vector())
    os.rename(tmp_path / "a.zarr.zip", tmp_path / "a.dat")
    assert read(tmp_path / "a.dat").equals(vector())
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme", "nothing")
    with pytest.raises(ContainerError, match="holds no tensor"):
        read(tmp_path / "b.zip")


def test_list_tensors_looks_for_a_header(tmp_path):
    (tmp_path / "x.bspnpy").write_text("")
    (tmp_path / "x.nc").write_bytes(b"CDF\x01" + bytes(100))
    for place in ({}, tmp_path / "x.bspnpy", tmp_path / "x.nc"):
        with pytest.raises(ContainerError):
            list_tensors(place)
