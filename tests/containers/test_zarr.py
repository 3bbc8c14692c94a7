"""Zarr: missing chunks, consolidated metadata, reserved names, failed writes."""

import glob
import os
import re

import numpy as np
import pytest
import zarr
from helpers.places import vector
from zarr.storage import MemoryStore

import binsparse_levels
from binsparse_levels import (
    ContainerError,
    IncompleteError,
    list_tensors,
    pack,
    pack_dense,
    read,
    write,
)
from binsparse_levels.errors import PathExistsError
from binsparse_levels.io import describe


@pytest.mark.parametrize("options", [{"shards": 2**17}, {"kind": "zarr2", "chunks": 2**16}])
def test_a_missing_chunk_is_not_one_of_zeros(tmp_path, options):
    write(tmp_path / "a.zarr", pack([np.arange(200_000)], np.arange(200_000.0), 300_000, "CVEC"), **options)
    chunks = [name for name in glob.glob(f"{tmp_path}/a.zarr/values/**", recursive=True) if os.path.isfile(name)]
    os.remove(max(name for name in chunks if os.path.basename(name).isdigit()))
    with pytest.raises(IncompleteError):
        read(tmp_path / "a.zarr")


@pytest.mark.parametrize("kind", ["zarr", "zarr2"])
@pytest.mark.parametrize("group", [":/", ":g"])
@pytest.mark.filterwarnings("ignore")
def test_metadata_that_were_consolidated(tmp_path, kind, group):
    path = f"{tmp_path}/a.zarr{group}"
    write(path, vector(1), kind=kind)
    zarr.consolidate_metadata(f"{tmp_path}/a.zarr")
    write(path, pack([[1], [1]], [7.0], (2, 2), "CSR"), kind=kind, overwrite=True)
    assert read(path).values.tolist() == [7]
    assert list_tensors(f"{tmp_path}/a.zarr") == [group[1:]]
    group_again = zarr.open_group(f"{tmp_path}/a.zarr", mode="r")
    assert "pointers_to_1" in (group_again if group == ":/" else group_again["g"])


def test_a_write_into_a_store_that_failed_can_be_tried_again(monkeypatch):
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr("binsparse_levels.containers.zarr.ZarrWriter.write_header", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write(store, vector(1))
    write(store, vector(1))
    assert read(store).equals(vector(1))


@pytest.mark.parametrize("name", [".zattrs", "zarr.json", "a/.zgroup"])
def test_no_group_takes_the_name_of_what_zarr_keeps(tmp_path, name):
    tensor = pack([[0], [0]], [1.0], (2, 2), "CSR")
    write(tmp_path / "m.zarr", tensor)
    with pytest.raises(ContainerError, match="no group has the name"):
        write(f"{tmp_path}/m.zarr:{name}", tensor)
    assert read(tmp_path / "m.zarr").equals(tensor)


def test_a_missing_chunk_that_only_zarr_reads_is_told_by_a_part_too(tmp_path):
    write(tmp_path / "a.zarr", pack_dense(np.arange(1.0, 13).reshape(3, 4), "CSR"), kind="zarr2", chunks=4)
    os.unlink(tmp_path / "a.zarr" / "values" / "1")
    opened = binsparse_levels.open(tmp_path / "a.zarr")
    for use in (opened.load, opened[1].load, lambda: opened[1, 1]):
        with pytest.raises(IncompleteError):
            use()


@pytest.mark.parametrize("options", [{}, {"chunks": 1}, {"kind": "zarr2"}], ids=str)
def test_names_of_zarr_arrays_that_begin_alike(tmp_path, options):
    tensor = pack([np.array([0, 1])] * 12, [1.0, 2.0], (2,) * 12, "sparse(12)")
    for place in (tmp_path / "a.zarr.zip", zarr.storage.MemoryStore()):
        write(place, tensor, **options)
        assert read(place).equals(tensor)
        sizes = {name: info.nbytes for name, info in describe(place).arrays.items()}
        named = "kind" not in options  # the metadata of version 3 hold the name, which is longer by one
        assert sizes["indices_1"] + named == sizes["indices_11"]


def test_a_tensor_in_the_way_is_named_by_its_path(tmp_path):
    path = tmp_path / "a.zarr"
    write(f"{path}:x", pack([[0]], [1.0], (3,), "sparse"))
    with pytest.raises(PathExistsError, match=re.escape(f"{path}:x: has a tensor")):
        write(f"{path}:x", pack([[0]], [1.0], (3,), "sparse"))
