"""Seals: with checksum=True nothing that was stored can change without being noticed, in any container."""

import json

import h5py
import numpy as np
import pytest

from binsparse_levels import ContainerError, pack, read, write
from binsparse_levels.arrays import one_piece
from binsparse_levels.containers import checksums
from binsparse_levels.io import describe

TENSOR = pack([[0, 2, 0], [1, 0, 3]], [1.5, 2.5, 3.5], (3, 4), "CSR", fill_value=0, attributes={"made": "here"})
PLACES = ["a.h5", "a.zarr", "a.zarr.zip", "a.npz", "a.bspnpy", "a.bspra", "a.nc"]


@pytest.mark.parametrize("name", PLACES)
def test_a_sealed_tensor_is_read_as_any_other(tmp_path, name):
    write(tmp_path / name, TENSOR, checksum=True)
    found = read(tmp_path / name)
    assert found.equals(TENSOR)
    assert dict(found.attributes) == dict(TENSOR.attributes) == dict(describe(tmp_path / name).descriptor.user)
    write(tmp_path / name, found, overwrite=True)  # a seal is not passed on
    assert read(tmp_path / name).equals(TENSOR)


def test_a_seal_in_a_mapping():
    place = {}
    write(place, TENSOR, checksum=True)
    assert read(place).equals(TENSOR)
    place["values"] = place["values"] + 1
    with pytest.raises(ContainerError, match="values: checksum mismatch"):
        read(place)


def test_every_change_of_a_contiguous_file_is_noticed(tmp_path):
    path = tmp_path / "a.h5"
    write(path, TENSOR, checksum=True)
    for change in ("values", "indices_1", "pointers_to_1", "fill_value"):
        raw = path.read_bytes()
        with h5py.File(path, "r+") as file:
            file[change][0] = 3
        with pytest.raises(ContainerError, match=f"{change}: checksum mismatch"):
            read(path)
        assert read(path, check="none").shape == (3, 4)
        path.write_bytes(raw)


@pytest.mark.parametrize("edit", [("made", "there"), (checksums.SEAL, None), (checksums._MARK, False), ("more", 1)])
def test_every_change_of_the_header_is_noticed(tmp_path, edit):
    path = tmp_path / "a.h5"
    write(path, TENSOR, checksum=True)
    with h5py.File(path, "r+") as file:
        header = json.loads(file.attrs["binsparse"])
        key, value = edit
        header |= {key: value} if value is not None else {}
        if value is None:
            del header[key]
        file.attrs["binsparse"] = json.dumps(header)
    with pytest.raises(ContainerError, match="header: checksum mismatch"):
        read(path)


def test_no_seal_unless_asked_for(tmp_path):
    write(tmp_path / "a.h5", TENSOR)
    with h5py.File(tmp_path / "a.h5") as file:
        assert set(json.loads(file.attrs["binsparse"])) == {"binsparse", "made"}


def test_the_byte_order_of_memory_does_not_matter():
    array = np.arange(5.0)
    sums = {}
    checksums.summed("values", one_piece(array), sums).whole()
    checksums.check_array("values", [array.astype(">f8")], sums)


# Cases that hostile use found


def test_a_seal_covers_the_types(tmp_path):
    write(tmp_path / "s.bspnpy", pack([[0, 1]], [1.5, 2.0], (2,), "CVEC"), checksum=True)
    file = tmp_path / "s.bspnpy" / "values.npy"
    file.write_bytes(file.read_bytes().replace(b"<f8", b"<i8"))
    with pytest.raises(ContainerError, match="values: checksum mismatch"):
        read(tmp_path / "s.bspnpy", lenient=True)
