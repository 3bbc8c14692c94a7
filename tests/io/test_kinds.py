"""The kind of a file follows from its content."""

import os
import zipfile

import h5py
import numpy as np
import pytest
from helpers.places import vector

from binsparse_levels import ContainerError, DialectWarning, OptionError, convert, list_tensors, pack, read, write
from binsparse_levels.containers.base import Storage
from binsparse_levels.io import write_arrays


def test_zip_files_are_told_by_what_they_hold(tmp_path):
    write(tmp_path / "a.zarr.zip", vector())
    os.rename(tmp_path / "a.zarr.zip", tmp_path / "a.dat")
    assert read(tmp_path / "a.dat").equals(vector())
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("readme", "nothing")
    with pytest.raises(ContainerError, match="contains no tensor"):
        read(tmp_path / "b.zip")


def test_list_tensors_looks_for_a_header(tmp_path):
    (tmp_path / "x.bspnpy").write_text("")
    for place in ({}, tmp_path / "x.bspnpy"):
        with pytest.raises(ContainerError):
            list_tensors(place)
    (tmp_path / "x.nc").write_bytes(b"CDF\x01" + bytes(100))  # NetCDF 3 without variables
    assert list_tensors(tmp_path / "x.nc") == []


def test_arrays_are_written_with_checksums_and_only_into_containers(tmp_path):
    header = {"version": "0.1", "format": "DVEC", "shape": [2], "number_of_stored_values": 2}
    header = {"binsparse": header | {"data_types": {"values": "float64"}}}
    write_arrays(tmp_path / "a.h5", header, {"values": np.ones(2)}, storage=Storage(checksum=True))
    assert read(tmp_path / "a.h5").values.tolist() == [1, 1]
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["values"][1] = 2
    with pytest.raises(ContainerError, match="values: checksum mismatch"):
        read(tmp_path / "a.h5")
    with pytest.raises(OptionError, match="cannot be written in pieces"):
        write_arrays(tmp_path / "a.mtx", header, {"values": np.ones(2)})


def test_a_warning_is_at_the_line_that_called_the_package(tmp_path):
    unsorted = {}
    write(unsorted, pack([[0, 2]], [1.0, 2.0], 3, "CVEC"))
    unsorted["indices_0"] = unsorted["indices_0"][::-1].copy()
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 5")
    write(tmp_path / "a.h5", vector())
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        file["x"] = 1.0
    calls = [
        lambda: read(unsorted, lenient=True),
        lambda: read(tmp_path / "a.mtx"),
        lambda: convert(tmp_path / "a.mtx", tmp_path / "b.h5"),
        lambda: convert(tmp_path / "a.h5", tmp_path / "c.h5"),
    ]
    for call in calls:
        with pytest.warns(DialectWarning) as caught:
            call()
        assert {warning.filename for warning in caught} == {__file__}
